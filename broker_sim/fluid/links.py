"""Which links of a rehearsal are cut now; one object for all of its brokers. Pure."""

from __future__ import annotations

from controller.wire.fault_rows import CutLink
from controller.wire.types import BrokerId


class Links:
    """`rows` are those in force; each names its brokers (`CutLink.broker`)."""

    def __init__(self) -> None:
        self.rows: tuple[CutLink, ...] = ()

    def is_cut(self, follower: BrokerId, leader: BrokerId) -> bool:
        """Whether no fetch gets through between these two."""
        return any(
            row.is_between(follower, None, leader) or row.is_between(leader, None, follower) for row in self.rows
        )

    def is_cut_off(self, broker: BrokerId) -> bool:
        """Whether the broker's whole network is cut: clients and the controller do not reach it either."""
        return any(row.peer is None and row.concerns(broker) for row in self.rows)
