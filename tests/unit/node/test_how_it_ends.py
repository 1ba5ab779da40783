"""However a controller's process ends, it gives its session up before it exits: another can take the office at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from controller.node.process import Controller
from controller.node.process import World as Given
from controller.node.run import until_it_ends
from controller.wire.protocol import ApiKey
from controller.wire.types import Broker, BrokerId, Endpoint
from controller.wire.zk_operations import Create, Exists, ZkCode
from controller.wire.znodes import BrokerIdZNode
from controller.world.simulated.loop import VirtualTimeLoop

Play = Callable[..., list[Any]]
HOST, PORT, METRICS = "second", 9090, ("second", 9_999)


@dataclass
class Process:
    """What a process of its own on the machine `second` is given, and what is done to it."""

    cluster: Any
    signals: dict[int, Callable[[], None]] = field(default_factory=dict)
    controller: Controller | None = None

    def make(self) -> Controller:
        self.controller = self.cluster.make(101, HOST)
        return self.controller

    async def run(self) -> int:
        machine = self.cluster.world.machine(HOST)
        given = Given(
            clock=machine.clock, network=machine.network, connector=machine.connector(), chance=machine.chance
        )
        return await machine.run(until_it_ends(self.make, given, METRICS))

    async def serves(self) -> None:
        """Waits until it holds the office."""
        await self.cluster.machine.run(self.cluster.controller.stop())
        await self.cluster.world.until(
            lambda: self.controller is not None and self.controller.state.serving, within_s=10, what="the office"
        )


async def takes_the_port(process: Process, port: int) -> None:
    async def refuse(_: object) -> None: ...

    await process.cluster.world.machine(HOST).network.listen(HOST, port, refuse)


async def metrics_cannot_be_served(process: Process) -> None:
    await takes_the_port(process, METRICS[1])
    await process.cluster.machine.run(process.cluster.controller.stop())  # so that it may win the office before


async def listener_cannot_be_bound(process: Process) -> None:
    await takes_the_port(process, PORT)


async def id_is_a_brokers(process: Process) -> None:
    data = BrokerIdZNode.encode(Broker(broker_id=BrokerId(101), endpoints=(Endpoint(host="b", port=1),)), 0)
    await process.cluster.zk(Create(BrokerIdZNode.path(101), data))


async def interrupted_at_its_start(process: Process) -> None:
    """It has a session, and has not looked at anything with it."""

    def interrupt(session: Any, *_: object) -> None:
        if session.machine == HOST:
            process.cluster.world.zookeeper.on_operation.remove(interrupt)
            process.signals[signal.SIGINT]()

    process.cluster.world.zookeeper.on_operation.append(interrupt)


async def nothing(_: Process) -> None:
    """Nothing special."""


async def signalled_in_office(process: Process) -> None:
    await process.serves()
    process.signals[signal.SIGTERM]()


async def fail() -> None:
    raise RuntimeError("it fails")


async def halted_in_office(process: Process) -> None:
    await process.serves()
    assert process.controller is not None
    process.controller.supervisor.vital("the heart", fail)


#: what is so before, what happens then -> the exit code and what is said
ENDS: list[tuple[Callable[[Process], Awaitable[None]], Callable[[Process], Awaitable[None]], int, str]] = [
    (metrics_cannot_be_served, nothing, 1, "controller: cannot serve metrics on second:9999: "),
    (listener_cannot_be_bound, nothing, 1, "controller: cannot listen on second:9090: "),
    (id_is_a_brokers, nothing, 1, "controller: a broker with id 101 is registered"),
    (nothing, signalled_in_office, 0, ""),
    (interrupted_at_its_start, nothing, 0, ""),
    (nothing, halted_in_office, 1, "controller: the heart failed: "),
]


@pytest.mark.parametrize(
    ("before", "then", "code", "said"), ENDS, ids=[f"{row[0].__name__}-{row[1].__name__}" for row in ENDS]
)
def test_no_session_outlives_the_process(
    play: Play,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    before: Callable[[Process], Awaitable[None]],
    then: Callable[[Process], Awaitable[None]],
    code: int,
    said: str,
) -> None:
    async def scenario(cluster: Any) -> None:
        process = Process(cluster)
        with monkeypatch.context() as patched:
            patched.setattr(
                VirtualTimeLoop, "add_signal_handler", lambda _, number, call: process.signals.update({number: call})
            )
            await before(process)
            running = asyncio.ensure_future(process.run())
            await then(process)
            assert await running == code
        assert HOST not in cluster.world.zookeeper.sessions.values()
        (held,) = await cluster.zk(Exists("/controller"))
        first_goes_on = cluster.machine.name in cluster.world.zookeeper.sessions.values()
        assert held.code is (ZkCode.OK if first_goes_on else ZkCode.NO_NODE)
        with pytest.raises((OSError, TimeoutError)):
            await cluster.ask(ApiKey.METADATA, 1, {"topics": []}, host=HOST, timeout_s=5)

    play(scenario, brokers=0)
    error = capsys.readouterr().err
    assert error.startswith(said) and error.count("\n") == (1 if said else 0)
