"""How a broker makes itself known: base paths, cluster id, and the ephemeral registration whose czxid is its epoch.

Source: Kafka 3.9 `KafkaZkClient.registerBroker`, `CheckedEphemeral`, `KafkaServer.startup`; spec broker.md §2, §3.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from broker_sim.zk_client import ZkClient
from controller.wire import log_events as ev
from controller.wire.types import Broker, BrokerId, Endpoint
from controller.wire.zk_operations import (
    Create,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Multi,
    SetData,
    ZkCode,
    ZkRefused,
)
from controller.wire.znodes import BrokerIdsZNode, BrokerIdZNode, ZnodeError
from controller.world.ports import Clock

#: `zookeeper.session.timeout.ms`, Kafka's default.
SESSION_TIMEOUT_MS: Final = 18_000
#: ZooKeeper ends sessions in steps of its tick, so a dead one may live a little longer than its timeout.
_TICK_MS: Final = 3_000
#: Pause between looks at a registration that may be on its way out.
_LOOK_S: Final = 0.5
#: How long an UpdateMetadata waits for ZooKeeper's word on a new controller.
_KIND_S: Final = 1.0
#: How often a registration may vanish under the one who looks at it, before that is called another broker.
_ATTEMPTS: Final = 5


class RegistrationRefused(Exception):
    """The broker cannot register: its id or its address is another's. The message says whose."""


class Registration:
    """Keeps the broker registered; `broker_epoch` is that of the current registration, -1 before the first."""

    def __init__(
        self, zk: ZkClient, broker: Broker, *, clock: Clock, log: Any, session_timeout_ms: int = SESSION_TIMEOUT_MS
    ) -> None:
        self._zk, self._broker, self._clock, self._log = zk, broker, clock, log
        self._outlive_s = (session_timeout_ms + _TICK_MS) / 1000
        self._epoch = -1

    @property
    def broker_epoch(self) -> int:
        """The czxid of `/brokers/ids/N`."""
        return self._epoch

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """What is registered as this broker's addresses, one per listener."""
        return self._broker.endpoints

    async def check_endpoints(self) -> None:
        """Raises RegistrationRefused when another registered broker has one of this broker's addresses.

        The other may be dead and its session not yet over: a session timeout is waited for. Then all is looked at anew.
        """
        while await self._has_waited_for_an_address():
            pass  # it may be back, with addresses that are not known yet

    async def _has_waited_for_an_address(self) -> bool:
        listed = await self._zk.perform_one(GetChildren(BrokerIdsZNode.path))
        others = [other for other in BrokerIdsZNode.ids(listed.children) if other != self._broker.broker_id]
        results = await self._zk.perform([GetData(BrokerIdZNode.path(other)) for other in others])
        mine = {_address(endpoint) for endpoint in self._broker.endpoints}
        for other, result in zip(others, results, strict=True):
            for endpoint in _endpoints(other, result.data if result.ok else None):
                if _address(endpoint) not in mine or result.stat is None:
                    continue
                if await self._outlives(BrokerIdZNode.path(other), result.stat.ephemeral_owner):
                    raise RegistrationRefused(
                        f"broker {self._broker.broker_id} cannot register: {endpoint.host}:{endpoint.port} is "
                        f"registered by broker {other}; choose another --listener"
                    )
                return True
        return False

    async def register(self) -> int:
        """Registers in the current session and returns the broker epoch.

        A registration of the expired session of this broker is replaced; one of the current session is kept. One of any
        other session may be of a process of this broker that is dead (a kill, a power cut), or of a session of its own
        that it never learnt of, because the answer to its handshake was lost. So it is another broker's only if it
        outlives a session timeout (known failures X4, where Kafka gives up at once). A node of no session is final.
        Raises: RegistrationRefused; ZkRefused.
        """
        path = BrokerIdZNode.path(self._broker.broker_id)
        for _ in range(_ATTEMPTS):  # a registration may vanish between two looks at it (X5)
            content = BrokerIdZNode.encode(self._broker, self._clock.now_ms())
            created = await self._zk.perform_one(Multi((Create(path, None, ephemeral=True), SetData(path, content, 0))))
            if created.ok:
                stat = created.results[1].stat
                return self._registered(stat.czxid if stat is not None and stat.czxid else await self._czxid(path))
            if created.code is not ZkCode.NODE_EXISTS:
                raise ZkRefused(path, created.code)
            found = await self._zk.perform_one(GetData(path))
            if found.stat is None:
                continue
            owner = found.stat.ephemeral_owner
            if owner == self._zk.session_id:
                return self._registered(found.stat.czxid)
            if owner and owner == self._zk.previous_session_id:
                await self._zk.perform_one(Delete(path))
            elif await self._outlives(path, owner):
                raise RegistrationRefused(
                    f"broker id {self._broker.broker_id} is taken: {path} exists, owner {owner:#x} does not match "
                    f"session {self._zk.session_id:#x}, and that session lives; stop the other broker, or take another "
                    "--broker-id"
                )
        raise RegistrationRefused(
            f"{path} exists, vanishes and comes back; another broker {self._broker.broker_id} lives"
        )

    async def _outlives(self, path: str, owner: int) -> bool:
        """Whether that session (0: none, which never ends) still owns the registration after a session timeout."""
        if not owner:
            return True
        reason = f"session {owner:#x} owns it; waiting at most {self._outlive_s:g} s for that session to end"
        self._log.warning(ev.BROKER_REGISTRATION_WAITED, path=path, reason=reason)
        loop = asyncio.get_running_loop()
        until = loop.time() + self._outlive_s
        while loop.time() < until:
            await asyncio.sleep(_LOOK_S)
            found = await self._zk.perform_one(GetData(path))
            if found.stat is None or found.stat.ephemeral_owner != owner:
                return False
        return True

    async def _czxid(self, path: str) -> int:
        found = await self._zk.perform_one(GetData(path))
        if found.stat is None:
            raise ZkRefused(path, found.code)
        return found.stat.czxid

    def _registered(self, broker_epoch: int) -> int:
        self._epoch = broker_epoch
        addresses = [f"{e.listener}://{e.host}:{e.port}" for e in self._broker.endpoints]
        path = BrokerIdZNode.path(self._broker.broker_id)
        self._log.info(ev.BROKER_REGISTERED, path=path, endpoints=addresses, broker_epoch=broker_epoch)
        return broker_epoch

    async def register_again(self) -> None:
        """After a new session: registers with a new epoch. A refusal is logged; the broker serves on, as in Kafka."""
        try:
            await self.register()
        except (RegistrationRefused, ZkRefused) as error:
            self._log.error(ev.BROKER_REGISTRATION_FAILED, reason=str(error))


class ControllerKind:
    """Whether the controller is a broker too, as Kafka's are: asked of ZooKeeper once per controller epoch."""

    def __init__(self, zk: ZkClient) -> None:
        self._zk = zk
        self._last_asked: tuple[BrokerId, int] | None = None
        self._is_broker = False

    async def is_broker(self, controller_id: BrokerId, controller_epoch: int) -> bool:
        """Whether it is registered under `/brokers/ids`; while ZooKeeper does not say so in time: as it was last."""
        if self._last_asked != (controller_id, controller_epoch):
            try:
                async with asyncio.timeout(_KIND_S):
                    found = await self._zk.perform_one(Exists(BrokerIdZNode.path(controller_id)))
            except TimeoutError:
                return self._is_broker
            if found.code not in (ZkCode.OK, ZkCode.NO_NODE):
                return self._is_broker
            self._last_asked, self._is_broker = (controller_id, controller_epoch), found.ok
        return self._is_broker


def _address(endpoint: Endpoint) -> tuple[str, int]:
    return endpoint.host, endpoint.port


def _endpoints(broker_id: BrokerId, data: bytes | None) -> tuple[Endpoint, ...]:
    try:
        return BrokerIdZNode.decode(broker_id, data).endpoints if data is not None else ()
    except ZnodeError:
        return ()  # one that nobody can read blocks nobody
