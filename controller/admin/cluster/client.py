"""Talking to a cluster as an admin client does: bootstrap, versions, the controller, any broker, a given broker.

A call is repeated, with a pause, while brokers disconnect or the controller moves, until a time limit; what the answer
says is for the caller. Version of a request: the highest that both sides know. Source: Kafka 3.9 `KafkaAdminClient`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from controller.admin.cluster.failures import ClusterUnreachable, Refused
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey, api_name
from controller.wire.types import BrokerId
from controller.world.client import BrokerConnection
from controller.world.ports import Network

#: Versions of each request whose answers this client reads: lowest and highest.
KNOWN_VERSIONS: Final[Mapping[ApiKey, tuple[int, int]]] = {
    ApiKey.LIST_OFFSETS: (1, 9),
    ApiKey.METADATA: (1, 12),
    ApiKey.OFFSET_FETCH: (2, 7),
    ApiKey.FIND_COORDINATOR: (0, 3),
    ApiKey.DESCRIBE_GROUPS: (0, 5),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.OFFSET_COMMIT: (2, 8),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.API_VERSIONS: (0, 0),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (0, 5),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (0, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (0, 4),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
}
#: `retry.backoff.ms` of the admin client.
RETRY_BACKOFF_S: Final = 0.1
_FETCH_LOWEST_OF_4X: Final = 4
#: How long to look for a first broker. Kafka looks for a minute; a wrong address is noticed sooner here.
BOOTSTRAP_TIMEOUT_S: Final = 5.0
#: How long to wait for a broker that the cluster does not list (a restart takes seconds).
MISSING_BROKER_TIMEOUT_S: Final = 10.0


class InvalidBootstrap(ClusterUnreachable):
    """The bootstrap list cannot be read."""


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


#: Of a request's time limit, what the controller is given.
_OPERATION_SHARE: Final = 5 / 6


class _NotKafka(Exception):
    """What listens there does not speak the protocol."""


class _Moved(Exception):
    """The broker asked is not, or no longer, the controller."""


class _Link:
    """An open connection and the versions that its broker knows."""

    def __init__(self, connection: BrokerConnection, versions: Mapping[int, tuple[int, int]]) -> None:
        self.connection = connection
        self._versions = versions

    def serves(self, api_key: int) -> bool:
        """Whether the broker says that it answers this request at all."""
        return api_key in self._versions

    def lowest(self, api_key: ApiKey) -> int:
        """The lowest version that the broker knows; -1 for what it does not serve."""
        return self._versions.get(api_key, (-1, -1))[0]

    def version(self, api_key: ApiKey) -> int:
        """The highest version that both sides know. Raises Refused (UNSUPPORTED_VERSION)."""
        low, high = KNOWN_VERSIONS[api_key]
        theirs = self._versions.get(api_key)
        if theirs is None:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"The broker does not support {api_name(api_key)}")
        if theirs[0] > high or theirs[1] < low:
            raise Refused(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The broker supports versions {theirs[0]} to {theirs[1]} of {api_name(api_key)}, "
                f"this tool {low} to {high}",
            )
        return min(high, theirs[1])


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
        self._links: dict[tuple[str, int], _Link] = {}
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
        link: _Link = await self._retrying(lambda: self._any_link(ApiKey.METADATA), api_name(ApiKey.METADATA))
        return link.serves(ApiKey.DESCRIBE_QUORUM)

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
                raise _Moved
            answer = await self._ask(await self._link(node.host, node.port), api_key, body)
            if ErrorCode.NOT_CONTROLLER in codes(answer):
                raise _Moved
            return answer

        return await self._retrying(attempt, api_name(api_key))

    async def call_broker(self, broker_id: BrokerId, api_key: ApiKey, body: Mapping[str, Any]) -> Any:
        """Asks this broker. Raises Refused (version; REQUEST_TIMED_OUT when it is not there), ClusterUnreachable."""
        loop = asyncio.get_running_loop()
        missing_until = loop.time() + min(self._timeouts.missing_broker_s, self._timeouts.call_s)

        async def attempt() -> Any:
            if self._stale or broker_id not in self._nodes:
                await self._refresh()
            node = self._nodes.get(broker_id)
            if node is None and loop.time() >= missing_until:
                raise Refused(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"Timed out waiting for a node assignment. Call: {_camel(api_key)}",
                )
            if node is None:
                raise _Moved
            return await self._ask(await self._link(node.host, node.port), api_key, body)

        return await self._retrying(attempt, api_name(api_key))

    async def _ask(self, link: _Link, api_key: ApiKey, body: Mapping[str, Any]) -> Any:
        version = link.version(api_key)
        return await link.connection.call(api_key, version, body, timeout_s=self._timeouts.request_s)

    async def _retrying(self, attempt: Callable[[], Awaitable[Any]], what: str) -> Any:
        loop = asyncio.get_running_loop()
        start, ever_met = loop.time(), False
        while True:
            try:
                return await attempt()
            except (OSError, TimeoutError, _NotKafka, _Moved) as error:
                self._stale = True
                met = bool(self._links)
                ever_met |= met and isinstance(error, (TimeoutError, _Moved))
                limit = self._timeouts.call_s if met or isinstance(error, _Moved) else self._timeouts.bootstrap_s
                if isinstance(error, _NotKafka) and not met:
                    raise ClusterUnreachable(self._no_kafka(error)) from error
                if loop.time() - start >= limit:
                    raise ClusterUnreachable(self._unreachable(error, what, met=ever_met)) from error
                await asyncio.sleep(RETRY_BACKOFF_S)

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

    async def _any_link(self, api_key: ApiKey) -> _Link:
        """An open connection, else the first address that answers: brokers last seen, then the bootstrap list.

        One whose broker does not serve `api_key` is taken only when there is no other.
        """
        self._links = {at: link for at, link in self._links.items() if link.connection.is_open}
        for link in self._links.values():
            if link.serves(api_key):
                return link
        addresses = [*((n.host, n.port) for n in self._nodes.values()), *self._bootstrap]
        failure: Exception = OSError("no address")
        last: _Link | None = None
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

    async def _link(self, host: str, port: int) -> _Link:
        async with self._opening.setdefault((host, port), asyncio.Lock()):
            link = self._links.get((host, port))
            if link is None or not link.connection.is_open:
                link = await self._open(host, port)
                self._links[host, port] = link
            return link

    async def _open(self, host: str, port: int) -> _Link:
        request_s = self._timeouts.request_s
        first_answer_s = request_s if self._links else min(request_s, self._timeouts.bootstrap_s)
        connection = await BrokerConnection.open(
            self._network, host, port, client_id=self._client_id, timeout_s=first_answer_s
        )
        try:
            answer = await connection.call(ApiKey.API_VERSIONS, 0, {}, timeout_s=first_answer_s)
        except (OSError, TimeoutError) as error:
            connection.close()
            raise _NotKafka(f"{host}:{port}: {error or 'no answer'}") from error
        return _Link(connection, {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys})

    def _no_kafka(self, error: Exception) -> str:
        return (
            f"{self._addresses()} does not answer as a Kafka broker ({_reason(error)}). "
            "Point --bootstrap-server at a broker's listener."
        )

    def _unreachable(self, error: Exception, what: str, *, met: bool) -> str:
        """`met` is whether some broker answered: then it is not the way there that fails."""
        if isinstance(error, _Moved):
            return f"Timed out: no broker of {self._addresses()} took {what}. Is a controller running (kwob status)?"
        if met and isinstance(error, TimeoutError):
            return (
                f"Timed out: {self._addresses()} is reached, but {what} got no answer in {self._timeouts.call_s:g} s. "
                "There is no controller, or ZooKeeper is away (kwob status)."
            )
        return (
            f"Cannot reach {self._addresses()} ({_reason(error)}). "
            "Is the cluster running (kwob status)? Else correct --bootstrap-server."
        )

    def _addresses(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._bootstrap)


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """The addresses of `host:port[,host:port...]`; IPv6 hosts in brackets. Raises InvalidBootstrap."""
    addresses: list[tuple[str, int]] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        host, colon, port = part.removeprefix("PLAINTEXT://").rpartition(":")
        if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise InvalidBootstrap(f"Invalid url in bootstrap.servers: {part}")
        addresses.append((host.removeprefix("[").removesuffix("]"), int(port)))
    if not addresses:
        raise InvalidBootstrap("No resolvable bootstrap urls given in bootstrap.servers")
    return addresses


def _camel(api_key: ApiKey) -> str:
    name = api_name(api_key)
    return name[:1].lower() + name[1:]


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return str(error) or type(error).__name__
