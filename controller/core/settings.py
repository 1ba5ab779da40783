"""What an operator may set of the controller's decisions, under Kafka's property names with underscores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: How long a controller waits before it tries again what ZooKeeper refused: to take office, to read, to delete.
RETRY_MS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Defaults are Kafka's. `unclean_leader_election_enable` is the cluster's default; topics may say otherwise."""

    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300
    leader_imbalance_per_broker_percentage: int = 10
    delete_topic_enable: bool = True
    unclean_leader_election_enable: bool = False
    #: The listener whose endpoint of a leader LeaderAndIsr carries (`inter.broker.listener.name`).
    inter_broker_listener_name: str = "PLAINTEXT"
    #: How long after an election the first balance check comes (Kafka: 5 s, no property).
    first_balance_check_after_ms: int = 5_000
    #: Whether to yield rows of the ISR trace.
    trace: bool = True
