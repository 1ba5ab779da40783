"""One simulated broker: puts its parts together, starts them in Kafka's order and stops them in Kafka's order.

Given clock, network, ZooKeeper and chance, it runs in production and in tests on virtual time alike.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker_sim.config import BrokerSettings
from controller.wire.ports import Clock, Network, ZkConnector
from controller.wire.types import BrokerId, Endpoint


class StartRefused(Exception):
    """The broker cannot start as asked. The message is for the operator, one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerIdentity:
    """Who a broker is and where it lives. `port` 0 asks for a free one."""

    broker_id: BrokerId
    host: str
    port: int
    log_dirs: tuple[Path, ...]
    rack: str | None = None
    trace_dir: Path | None = None


class Broker:
    """A broker process without the process. Start it once, stop it once."""

    def __init__(
        self,
        identity: BrokerIdentity,
        settings: BrokerSettings,
        *,
        clock: Clock,
        network: Network,
        zookeeper: ZkConnector,
        chance: random.Random,
        log: Any,
    ) -> None:
        raise NotImplementedError

    async def start(self) -> None:
        """Starts (spec broker.md §3). When it returns the broker is registered and answers requests.

        Raises: StartRefused, with nothing left open.
        """
        raise NotImplementedError

    async def stop(self, *, controlled: bool = True) -> None:
        """Hands over leadership (unless not `controlled`), closes the logs cleanly, then leaves ZooKeeper (§4)."""
        raise NotImplementedError

    async def kill(self) -> None:
        """Stops as `kill -9` does: sockets break, nothing is flushed; ZooKeeper notices when the session times out."""
        raise NotImplementedError

    @property
    def endpoint(self) -> Endpoint:
        """Where clients reach it (the real port). Only after `start`."""
        raise NotImplementedError


def parse_broker_ids(text: str) -> Sequence[BrokerId]:
    """`1,2,5-9` as ids, in order. Raises ValueError."""
    raise NotImplementedError
