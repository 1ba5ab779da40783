"""Talking to a cluster as an admin client does: bootstrap, versions, the controller, any broker, a given broker.

A call is repeated, with a pause, while brokers disconnect or the controller moves, until a time limit; what the answer
says is for the caller. Version of a request: the highest that both sides know. Source: Kafka 3.9 `KafkaAdminClient`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from controller.admin.cluster.failures import ClusterUnreachable, Refused, ToolFailure, check
from controller.admin.cluster.links import Link, parse_bootstrap
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey, api_name
from controller.wire.types import BrokerId
from controller.world.client import BrokerConnection, Disconnected
from controller.world.ports import Network

#: `retry.backoff.ms` of the admin client.
RETRY_BACKOFF_S: Final = 0.1
_FETCH_LOWEST_OF_4X: Final = 4
#: How long to look for a first broker. Kafka looks for a minute; a wrong address is noticed sooner here.
BOOTSTRAP_TIMEOUT_S: Final = 5.0
#: How long to wait for a broker that the cluster does not list (a restart takes seconds).
MISSING_BROKER_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A broker as Metadata lists it."""

    broker_id: BrokerId
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Limits in seconds: one request (`request.timeout.ms`), one call with its retries (`default.api.timeout.ms`)."""

    request_s: float = 30.0
    call_s: float = 60.0
    bootstrap_s: float = BOOTSTRAP_TIMEOUT_S
    missing_broker_s: float = MISSING_BROKER_TIMEOUT_S
    #: How long to wait until a group has a coordinator that has loaded it; None: as long as a call may take.
    coordinator_s: float | None = None

    def within(self, call_s: float) -> Timeouts:
        """The same where one call, and each request of it, has this long."""
        return replace(
            self, call_s=call_s, request_s=min(call_s, self.request_s), bootstrap_s=min(call_s, self.bootstrap_s)
        )


#: The key type of FindCoordinator.
_GROUP: Final = 0
#: Answers of a coordinator that is not there yet, has not loaded the group, or is it no longer.
_SOON: Final = frozenset(
    {
        *(ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR),
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
#: Of a request's time limit, what the controller is given.
_OPERATION_SHARE: Final = 5 / 6


class _NotKafka(Exception):
    """What listens there does not speak the protocol."""


class _AskAgain(Exception):
    """Whoever was asked cannot do it now, somebody may in a moment. `code` is the answer that said so, if one did."""

    def __init__(self, code: ErrorCode | None = None) -> None:
        super().__init__(code)
        self.code = code


class AdminClient:
    """A client of one cluster. Close it, or use it as an async context manager."""

    def __init__(
        self, network: Network, bootstrap: str, *, client_id: str = "adminclient-1", timeouts: Timeouts | None = None
    ) -> None:
        """Connects to nothing yet. Raises InvalidBootstrap for a list that is not `host:port[,host:port...]`."""
        self._network = network
        self._bootstrap = parse_bootstrap(bootstrap)
        self._client_id = client_id
        self._timeouts = timeouts or Timeouts()
        self._links: dict[tuple[str, int], Link] = {}
        self._opening: dict[tuple[str, int], asyncio.Lock] = {}
        self._nodes: dict[BrokerId, Node] = {}
        self._controller: BrokerId | None = None
        #: How long the controller may take to finish a request, in its own words (`timeoutMs`). It must be able to say
        #: so before the client gives the request up, or a creation that took too long is tried again, and refused.
        self.operation_timeout_ms = int(self._timeouts.request_s * _OPERATION_SHARE * 1000)
        #: What is known of brokers and controller is to be asked again.
        self._stale = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections. Idempotent."""
        for link in self._links.values():
            link.connection.close()
        self._links.clear()

    async def nodes(self) -> dict[BrokerId, Node]:
        """The brokers of the cluster by id, asked for now."""
        await self._retrying(self._refresh, "describeCluster")
        return dict(sorted(self._nodes.items()))

    async def brokers(self) -> dict[BrokerId, Node]:
        """The nodes that hold replicas: all but a controller that is a process of its own and serves no fetches."""
        nodes = await self.nodes()
        controller = nodes.get(self._controller) if self._controller is not None else None
        if controller is not None:
            try:
                link = await self._link(controller.host, controller.port)
            except (OSError, TimeoutError, _NotKafka):
                return nodes
            if not link.serves(ApiKey.FETCH):
                del nodes[controller.broker_id]
        return nodes

    async def open_any(self) -> None:
        """Tries all addresses of the bootstrap list at once; back as soon as one answers. Raises ClusterUnreachable.

        Later calls then find a connection, however many of the others are dead.
        """
        tries = {asyncio.ensure_future(self._link(host, port)) for host, port in self._bootstrap}
        pending, first = set(tries), None
        try:
            while pending and first is None:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                first = next((task for task in done if task.exception() is None), None)
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
        if first is None:
            await self._retrying(self._refresh, "describeCluster")

    async def is_of_4x(self) -> bool:
        """Whether its brokers are of Kafka 4: KRaft's, which no longer fetch as those before 0.11 did.

        One attempt: False where nobody answers at once, which is for the first real question to complain about.
        """
        try:
            link = await self._any_link(ApiKey.METADATA)
        except (OSError, TimeoutError, _NotKafka):
            return False
        return link.serves(ApiKey.DESCRIBE_QUORUM) and link.lowest(ApiKey.FETCH) >= _FETCH_LOWEST_OF_4X

    async def is_kraft(self) -> bool:
        """Whether its brokers are those of KRaft, which answer DescribeQuorum. Raises ClusterUnreachable."""
        return await self.serves(ApiKey.DESCRIBE_QUORUM)

    async def serves(self, api_key: ApiKey) -> bool:
        """Whether the broker that is talked to says that it answers this request. Raises ClusterUnreachable."""
        link: Link = await self._retrying(lambda: self._any_link(ApiKey.METADATA), api_name(ApiKey.METADATA))
        return link.serves(api_key)

    async def ask_once(self, broker_id: BrokerId, api_key: ApiKey, body: Mapping[str, Any]) -> Any:
        """One attempt at a broker of `nodes`. Raises OSError, TimeoutError, Refused; nothing is asked again."""
        node = self._nodes[broker_id]
        try:
            return await self._ask(await self._link(node.host, node.port), api_key, body)
        except _NotKafka as error:
            raise OSError(str(error)) from error

    @property
    def controller(self) -> BrokerId | None:
        """Whom the cluster names as its controller, as last seen."""
        return self._controller

    async def call_any(self, api_key: ApiKey, body: Mapping[str, Any]) -> Any:
        """Asks some broker. Raises Refused (version), ClusterUnreachable."""

        async def attempt() -> Any:
            link = await self._any_link(api_key)
            return await self._ask(link, api_key, body)

        return await self._retrying(attempt, api_name(api_key))

    async def call_controller(
        self, api_key: ApiKey, body: Mapping[str, Any], codes: Callable[[Any], Iterable[int]]
    ) -> Any:
        """Asks the controller, and finds it again while `codes` of the answer has NOT_CONTROLLER.

        Raises: Refused (version), ClusterUnreachable (no controller within the time limit).
        """

        async def attempt() -> Any:
            if self._stale:
                await self._refresh()
            node = self._nodes.get(self._controller) if self._controller is not None else None
            if node is None:
                raise _AskAgain
            answer = await self._ask(await self._link(node.host, node.port), api_key, body)
            if ErrorCode.NOT_CONTROLLER in codes(answer):
                raise _AskAgain
            return answer

        return await self._retrying(attempt, api_name(api_key))

    async def call_broker(
        self,
        broker_id: BrokerId,
        api_key: ApiKey,
        body: Mapping[str, Any],
        codes: Callable[[Any], Iterable[int]] | None = None,
    ) -> Any:
        """Asks this broker, and again while `codes` of the answer say that its groups are being loaded.

        Raises: Refused (version; REQUEST_TIMED_OUT when it is not there), ClusterUnreachable.
        """
        loop = asyncio.get_running_loop()
        missing_until = loop.time() + min(self._timeouts.missing_broker_s, self._timeouts.call_s)

        async def attempt() -> Any:
            if self._stale or broker_id not in self._nodes:
                await self._refresh()
            node = self._nodes.get(broker_id)
            if node is None and loop.time() >= missing_until:
                raise _unassigned(api_name(api_key))
            if node is None:
                raise _AskAgain
            answer = await self._ask(await self._link(node.host, node.port), api_key, body)
            if codes is not None:
                _may_be_otherwise(codes(answer))
            return answer

        return await self._retrying(attempt, api_name(api_key))

    async def call_coordinator(
        self, group: str, api_key: ApiKey, body: Mapping[str, Any], codes: Callable[[Any], Iterable[int]]
    ) -> tuple[Node, Any]:
        """Asks the coordinator of a group, which comes with the answer; `codes` are those of an answer.

        It is looked up again while nobody is it, it has moved, or it has not loaded the group.

        Raises: Refused (version; the look-up; REQUEST_TIMED_OUT when it is not there in time), ClusterUnreachable.
        Source: Kafka 3.9 `CoordinatorStrategy`, `DescribeConsumerGroupsHandler` and its siblings.
        """

        async def attempt() -> tuple[Node, Any]:
            found = await self._ask(await self._any_link(ApiKey.FIND_COORDINATOR), ApiKey.FIND_COORDINATOR, key)
            _may_be_otherwise([found.error_code])
            check(found.error_code, getattr(found, "error_message", None))
            node = Node(broker_id=BrokerId(found.node_id), host=found.host, port=found.port)
            answer = await self._ask(await self._link(node.host, node.port), api_key, body)
            _may_be_otherwise(codes(answer))
            return node, answer

        key = {"key": group, "key_type": _GROUP}
        answered: tuple[Node, Any] = await self._retrying(attempt, api_name(api_key))
        return answered

    async def _ask(self, link: Link, api_key: ApiKey, body: Mapping[str, Any]) -> Any:
        try:
            return await link.connection.call(api_key, link.version(api_key), body, timeout_s=self._timeouts.request_s)
        except ValueError as error:  # no request can hold it, such as a name of 40000 characters
            raise ToolFailure(str(error)) from error

    async def _retrying(self, attempt: Callable[[], Awaitable[Any]], what: str) -> Any:
        loop = asyncio.get_running_loop()
        start, ever_met = loop.time(), False
        while True:
            try:
                return await attempt()
            except (OSError, TimeoutError, _NotKafka, _AskAgain) as error:
                self._stale = True
                met = bool(self._links)
                ever_met |= met and isinstance(error, (TimeoutError, _AskAgain))
                limit = self._limit_s(error, met=met)
                if isinstance(error, _NotKafka) and not met:
                    raise ClusterUnreachable(self._no_kafka(error)) from error
                if loop.time() - start >= limit:
                    if isinstance(error, _AskAgain) and error.code is not None:
                        raise _unassigned(what, f" ({Refused(error.code)})") from error
                    raise ClusterUnreachable(self._unreachable(error, what, met=ever_met)) from error
                await asyncio.sleep(RETRY_BACKOFF_S)

    def _limit_s(self, error: Exception, *, met: bool) -> float:
        limits = self._timeouts
        if isinstance(error, _AskAgain) and error.code is not None and limits.coordinator_s is not None:
            return limits.coordinator_s
        return limits.call_s if met or isinstance(error, _AskAgain) else limits.bootstrap_s

    async def _refresh(self) -> None:
        """Brokers and controller, from any broker."""
        link = await self._any_link(ApiKey.METADATA)
        answer = await self._ask(link, ApiKey.METADATA, {"topics": [], "allow_auto_topic_creation": False})
        self._nodes = {
            BrokerId(b.node_id): Node(broker_id=BrokerId(b.node_id), host=b.host, port=b.port, rack=b.rack)
            for b in answer.brokers
        }
        self._controller = BrokerId(answer.controller_id) if answer.controller_id >= 0 else None
        self._stale = False

    async def _any_link(self, api_key: ApiKey) -> Link:
        """An open connection, else the first address that answers: brokers last seen, then the bootstrap list.

        One whose broker does not serve `api_key` is taken only when there is no other.
        """
        self._links = {at: link for at, link in self._links.items() if link.connection.is_open}
        for link in self._links.values():
            if link.serves(api_key):
                return link
        addresses = [*((n.host, n.port) for n in self._nodes.values()), *self._bootstrap]
        failure: Exception = OSError("no address")
        last: Link | None = None
        for host, port in dict.fromkeys(addresses):
            try:
                last = await self._link(host, port)
            except (OSError, TimeoutError, _NotKafka) as error:
                failure = error
            else:
                if last.serves(api_key):
                    return last
        if last is None:
            raise failure
        return last

    async def _link(self, host: str, port: int) -> Link:
        async with self._opening.setdefault((host, port), asyncio.Lock()):
            link = self._links.get((host, port))
            if link is None or not link.connection.is_open:
                link = await self._open(host, port)
                self._links[host, port] = link
            return link

    async def _open(self, host: str, port: int) -> Link:
        request_s = self._timeouts.request_s
        first_answer_s = request_s if self._links else min(request_s, self._timeouts.bootstrap_s)
        connection = await BrokerConnection.open(
            self._network, host, port, client_id=self._client_id, timeout_s=first_answer_s
        )
        try:
            answer = await connection.call(ApiKey.API_VERSIONS, 0, {}, timeout_s=first_answer_s)
        except (OSError, TimeoutError) as error:
            connection.close()
            reason = str(error).removeprefix(f"{host}:{port}: ") or f"no answer in {first_answer_s:g} s"
            raise _NotKafka(f"{host}:{port}: {reason}") from error
        except BaseException:  # cancelled, or bytes that are no answer: nobody else knows of the connection
            connection.close()
            raise
        return Link(connection, {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys})

    def _no_kafka(self, error: Exception) -> str:
        return (
            f"{self._addresses()} does not answer as a Kafka broker ({_reason(error)}). "
            "Point --bootstrap-server at a broker's PLAINTEXT listener."
        )

    def _unreachable(self, error: Exception, what: str, *, met: bool) -> str:
        """`met` is whether some broker answered: then it is not the way there that fails."""
        if isinstance(error, _AskAgain):
            return f"Timed out: no broker of {self._addresses()} took {what}. Is a controller running (kwob status)?"
        if met and isinstance(error, TimeoutError):
            return (
                f"Timed out: {self._addresses()} is reached, but {what} got no answer in {self._timeouts.call_s:g} s. "
                "There is no controller, or ZooKeeper is away (kwob status)."
            )
        if isinstance(error, Disconnected):
            return f"Cannot use {self._addresses()} ({error}): it ended, or wants SASL; a PLAINTEXT listener is needed."
        return (
            f"Cannot reach {self._addresses()} ({_reason(error)}). "
            "Is the cluster running (kwob status)? Else correct --bootstrap-server."
        )

    def _addresses(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._bootstrap)


def _may_be_otherwise(codes: Iterable[int]) -> None:
    for code in codes:
        if code in _SOON:
            raise _AskAgain(ErrorCode.of(code))


def _unassigned(what: str, why: str = "") -> Refused:
    text = f"Timed out waiting for a node assignment. Call: {what[:1].lower()}{what[1:]}{why}"
    return Refused(ErrorCode.REQUEST_TIMED_OUT, text)


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return str(error) or type(error).__name__
