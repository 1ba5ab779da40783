"""ClusterState: what the controller believes. Owned by one task; only recipes of this package change it."""

from __future__ import annotations

from dataclasses import replace

from controller.core.settings import ControllerSettings
from controller.wire.types import Broker, BrokerId


class ClusterState:
    """What is believed. See module docstring. `endpoint` is the controller's own, shown to brokers as a live broker."""

    def __init__(self, controller_id: BrokerId, settings: ControllerSettings, endpoint: Broker | None = None) -> None:
        self.controller_id = controller_id
        self.settings = settings
        self.endpoint = endpoint
        self.active_controller_id: BrokerId | None = None
        self.epoch = 0
        self.epoch_zk_version = 0

    def change_settings(self, **changes: object) -> None:
        """Replaces settings that may change at run time (`unclean_leader_election_enable`, balance settings)."""
        self.settings = replace(self.settings, **changes)  # type: ignore[arg-type]

    def gauges(self) -> dict[str, int]:
        """The gauges of `kafka.controller:type=KafkaController` by Kafka's names; all 0 when not active."""
        return {}
