"""What the handlers of a broker share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from broker_sim.config import BrokerSettings
from broker_sim.config_store import ConfigStore, DynamicConfigs
from broker_sim.forwarding import ControllerForwarding
from broker_sim.groups.coordinator import GroupCoordinator
from broker_sim.metadata_cache import MetadataCache
from broker_sim.metadata_decoding import MetadataDecoder
from broker_sim.postponed import PostponedPartitions
from broker_sim.registration import ControllerKind, Registration
from broker_sim.replicas.fetch_session import FetchSessionCache
from broker_sim.replicas.manager import ReplicaManager
from broker_sim.replicas.offsets import Offsets
from broker_sim.replicas.produce_and_fetch import Fetching, Producing
from broker_sim.topic_creation import TopicCreator
from controller.wire.types import BrokerId, TopicPartition
from controller.world.ports import Clock
from controller.world.producer_ids import ProducerIds
from controller.world.supervisor import Supervisor


@dataclass(slots=True, kw_only=True)
class BrokerContext:
    """The parts of one broker. `controller_epoch` is the highest seen; control requests are taken one at a time."""

    broker_id: BrokerId
    cluster_id: str
    settings: BrokerSettings
    clock: Clock
    log: Any
    supervisor: Supervisor
    registration: Registration
    controller_kind: ControllerKind
    forwarding: ControllerForwarding
    metadata: MetadataCache
    metadata_decoder: MetadataDecoder
    replicas: ReplicaManager
    producing: Producing
    fetching: Fetching
    offsets: Offsets
    sessions: FetchSessionCache
    config_store: ConfigStore
    configs: DynamicConfigs
    postponed: PostponedPartitions
    topic_creator: TopicCreator
    producer_ids: ProducerIds
    groups: GroupCoordinator
    controller_epoch: int = 0
    control_lock: asyncio.Lock = field(default_factory=asyncio.Lock)


def by_topic(partitions: Iterable[TopicPartition]) -> Iterator[tuple[str, list[TopicPartition]]]:
    """Partitions grouped by topic, in their order; a topic comes again when another was between."""
    for topic, group in groupby(partitions, key=lambda tp: tp.topic):
        yield topic, list(group)
