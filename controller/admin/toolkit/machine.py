"""What the tools are given: network, clock, chance and output streams. The one place that knows the real ones."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from controller.wire.zk_operations import ZkUnreachable
from controller.world.exit_codes import INTERRUPTED
from controller.world.ports import Clock, Network, ZkConnector
from controller.world.real.clock import SystemClock
from controller.world.real.net import TcpNetwork


def no_zookeeper(hosts: str) -> ZkConnector:
    """For machines without one."""
    raise ZkUnreachable(f"nothing here connects to {hosts}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The world of one run of a tool. Tests pass in another one."""

    network: Network
    clock: Clock
    chance: random.Random
    out: TextIO
    err: TextIO
    #: What opens ZooKeeper at `host:port[,host:port...][/chroot]`, for the tools of Kafka 2.x.
    zookeeper: Callable[[str], ZkConnector] = no_zookeeper


def this_machine() -> Machine:
    """TCP, the machine's clock, unseeded chance, standard output and error."""
    return Machine(
        network=TcpNetwork(),
        clock=SystemClock(),
        chance=random.Random(),
        out=sys.stdout,
        err=sys.stderr,
        zookeeper=_kazoo,
    )


def run_main(
    main: Callable[[Sequence[str], Machine], Coroutine[Any, Any, int]], argv: Sequence[str], machine: Machine | None
) -> int:
    """Runs a tool on a loop of its own, on this machine unless another is given. Returns its exit code, or that of
    Ctrl-C."""
    try:
        return asyncio.run(main(argv, machine or this_machine()))
    except KeyboardInterrupt:
        return INTERRUPTED


def _kazoo(hosts: str) -> ZkConnector:
    import structlog  # with kazoo, loaded only by who needs it: they are half of what a tool takes to start

    from controller.world.real import logs
    from controller.world.real.zookeeper import KazooConnector

    if not structlog.is_configured():
        # Standard output is the tool's; what the connection has to say goes to standard error, from warnings on.
        logs.configure("kwob", level="warning")
    return KazooConnector(hosts)
