"""Who a broker is and where it lives: what its command line says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from controller.rules.configs.listeners import PLAINTEXT, NodeListener
from controller.wire.types import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerIdentity:
    """Who a broker is and where it lives. Brokers reach each other on `inter_broker_listener`, one of `listeners`."""

    broker_id: BrokerId
    listeners: tuple[NodeListener, ...]
    log_dirs: tuple[Path, ...]
    inter_broker_listener: str = PLAINTEXT
    rack: str | None = None
    trace_dir: Path | None = None
    #: where its metrics page listens
    metrics: tuple[str, int] | None = None

    def bound_to(self, ports: Mapping[str, int]) -> BrokerIdentity:
        """With these ports, by name of the listener: what starts again shall have the address it had."""
        return replace(self, listeners=tuple(replace(each, port=ports[each.name]) for each in self.listeners))
