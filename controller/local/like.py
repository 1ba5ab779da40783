"""`kwob up --like`: a live cluster in the shape of a cluster file, with a share of its data. What to make is pure.

Topics get the assignments, overrides and racks of the file; logs are filled with records until they have the wanted
share of their bytes. What is there already is left, so a start on the same folder goes on where a kill cut the last.
"""

from __future__ import annotations

import asyncio
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Final

from controller.admin.cluster.client import AdminClient
from controller.admin.cluster.queries import ConfigResourceType, alter_configs, create_topic, topic_names
from controller.local.cluster_file import ClusterError
from controller.local.extras import lacking, what_to_install
from controller.rules.configs import settings
from controller.rules.configs.topic import TOPIC_CONFIGS, check_storage, check_value
from controller.wire.cluster_file import KAFKAS_OWN_TOPICS, ClusterFileError, ClusterShape, parse
from controller.wire.errors import KafkaError
from controller.wire.types import GROUP_METADATA_TOPIC, BrokerId, TopicPartition
from controller.world.real.net import TcpNetwork

#: As many brokers as `kwob up` runs.
BROKERS_MAX: Final = 200
#: Size of the records that logs are filled with, with all that a batch of many adds to each.
RECORD_BYTES: Final = 1_000
#: A rack for brokers of which the file knows none, while it knows those of others: brokers were down, say.
UNKNOWN_RACK: Final = "unknown"
#: What is left free on the disk.
_SPARE_BYTES: Final = 1 << 30
_CREATED_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicToMake:
    """A topic with replicas and records for each partition, and overrides."""

    name: str
    replicas: tuple[tuple[BrokerId, ...], ...]
    records: tuple[int, ...]
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """What to run and to make. `brokers`: id -> rack, in order. `settings`: `name=value` of all brokers."""

    brokers: Mapping[int, str | None]
    log_dirs: int
    settings: tuple[str, ...] = ()
    broker_configs: Mapping[BrokerId, Mapping[str, str]] = field(default_factory=dict)
    topics: tuple[TopicToMake, ...] = ()
    #: what differs from the file, and why
    remarks: tuple[str, ...] = ()

    @property
    def topic_names(self) -> tuple[str, ...]:
        """Topics to make."""
        return tuple(topic.name for topic in self.topics)

    @property
    def records(self) -> dict[TopicPartition, int]:
        """How many records each partition shall have; those that shall have none are left out."""
        return {
            TopicPartition(topic.name, number): records
            for topic in self.topics
            for number, records in enumerate(topic.records)
            if records
        }

    @property
    def bytes(self) -> int:
        """What all replicas will have on disk, about."""
        return RECORD_BYTES * sum(
            records * len(replicas)
            for topic in self.topics
            for records, replicas in zip(topic.records, topic.replicas, strict=True)
        )


def parse_scale(text: str) -> Fraction:
    """`1/1000`, `0.01`, `1`. Raises: ArgumentTypeError."""
    with suppress(ValueError, ZeroDivisionError):
        if 0 <= (scale := Fraction(text)) <= 1:
            return scale
    raise ArgumentTypeError(f"{text!r}: a share from 0 to 1 is expected, such as 1/1000")


def read_like(path: Path, scale: Fraction, *, free_bytes: int) -> Likeness:
    """What to make of a cluster file, on a disk with so much free. Raises: ClusterError."""
    try:
        shape = parse(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ClusterError(f"{path} cannot be read: {error.strerror}") from error
    except (ClusterFileError, UnicodeDecodeError) as error:
        raise ClusterError(str(error)) from error
    like = likeness(shape, scale)
    if like.records and (absent := lacking(["load"])):
        raise ClusterError(what_to_install("--like with data", absent))
    if len(like.brokers) > BROKERS_MAX:
        raise ClusterError(f"{path} has {len(like.brokers)} brokers, and {BROKERS_MAX} is the most that runs here")
    if like.bytes > max(0, free_bytes - _SPARE_BYTES):
        fits = scale * max(0, free_bytes - _SPARE_BYTES) / like.bytes
        advice = f"--scale 1/{-(-fits.denominator // fits.numerator)} would fit" if fits else "no share of it fits"
        raise ClusterError(
            f"{path} at a scale of {scale} needs {like.bytes:,} bytes for all replicas, and {free_bytes:,} are free "
            f"(1 GB of them is kept); {advice}"
        )
    return like


def likeness(shape: ClusterShape, scale: Fraction) -> Likeness:
    """What to make of a shape."""
    remarks: list[str] = []
    if shape.mode == "kraft":
        remarks.append("the file is of a KRaft cluster; this one has a ZooKeeper-mode controller")
    has_racks = any(broker.rack is not None for broker in shape.brokers)
    racks = {b.id: b.rack if b.rack is not None or not has_racks else UNKNOWN_RACK for b in shape.brokers}
    if has_racks and (unknown := [str(b.id) for b in shape.brokers if b.rack is None]):
        remarks.append(f"no rack is known of broker {', '.join(unknown)}: it is in rack {UNKNOWN_RACK}")
    topics, moving = [], 0
    for name, topic in shape.topics.items():
        if name in KAFKAS_OWN_TOPICS:
            remarks.append(f"{name} is not made: brokers make it when it is needed")
            continue
        moving += sum(bool(p.adding_replicas or p.removing_replicas) for p in topic.partitions)
        replicas = tuple(tuple(BrokerId(r) for r in p.replicas if r not in p.adding_replicas) for p in topic.partitions)
        topics.append(
            TopicToMake(
                name=name,
                replicas=replicas,
                records=tuple(round(p.bytes * scale / RECORD_BYTES) for p in topic.partitions),
                configs=_known_configs(f"topic {name}", topic.configs, remarks),
            )
        )
    if moving:
        remarks.append(f"{moving} partitions are being moved in the file; here they are where they were before")
    return Likeness(
        brokers=racks,
        log_dirs=max(1, *(len(broker.log_dirs) for broker in shape.brokers)),
        settings=_known_settings({**_of_groups_topic(shape), **shape.configs}, remarks),
        broker_configs={BrokerId(b.id): b.configs for b in shape.brokers if b.configs},
        topics=tuple(topics),
        remarks=tuple(remarks),
    )


def _of_groups_topic(shape: ClusterShape) -> dict[str, str]:
    """What gives `__consumer_offsets` its shape: by it a group has the same partition, so the same coordinator."""
    topic = shape.topics.get(GROUP_METADATA_TOPIC)
    if topic is None:
        return {}
    factor = min(len(p.replicas) for p in topic.partitions)
    counts = {"offsets.topic.num.partitions": len(topic.partitions), "offsets.topic.replication.factor": factor}
    return {name: str(count) for name, count in counts.items()}


def _known_configs(whose: str, configs: Mapping[str, str], remarks: list[str]) -> dict[str, str]:
    taken = {}
    for name, value in configs.items():
        try:
            check_value(TOPIC_CONFIGS[name], value)
            check_storage({name: value})
            taken[name] = value
        except KeyError:
            remarks.append(f"{whose}: {name} is not known here, left out")
        except KafkaError as error:
            remarks.append(f"{whose}: {name} left out: {error}")
    return taken


def _known_settings(configs: Mapping[str, str], remarks: list[str]) -> tuple[str, ...]:
    taken = []
    for name, value in configs.items():
        try:
            settings.load(None, [f"{name}={value}"])
            taken.append(f"{name}={value}")
        except settings.SettingError as error:
            remarks.append(f"setting of all brokers left out: {error}")
    return tuple(taken)


async def make_topics(bootstrap: str, like: Likeness, *, made: Callable[[int, int], None]) -> list[str]:
    """Creates the topics that are not there, and sets what is set of single brokers; returns what was refused.

    `made` hears how many of how many topics are there. Raises: ClusterUnreachable.
    """
    refused: list[str] = []
    gate = asyncio.Semaphore(_CREATED_AT_ONCE)
    done = 0

    async with AdminClient(TcpNetwork(), bootstrap) as admin:
        there = await topic_names(admin)

        async def make(topic: TopicToMake) -> None:
            nonlocal done
            async with gate:
                if topic.name not in there:
                    await _create(admin, topic, refused)
            done += 1
            made(done, len(like.topics))

        await asyncio.gather(*map(make, like.topics))
        for broker, configs in like.broker_configs.items():
            await _configure(admin, broker, configs, refused)
    return refused


async def _create(admin: AdminClient, topic: TopicToMake, refused: list[str]) -> None:
    try:
        await create_topic(
            admin,
            topic.name,
            partitions=-1,
            replication_factor=-1,
            assignment=dict(enumerate(topic.replicas)),
            configs=topic.configs,
        )
    except KafkaError as error:
        refused.append(f"topic {topic.name}: {error}")


async def _configure(admin: AdminClient, broker: BrokerId, configs: Mapping[str, str], refused: list[str]) -> None:
    """One setting at a time: one that is refused costs no other."""
    for name, value in configs.items():
        try:
            await alter_configs(admin, ConfigResourceType.BROKER, {str(broker): {name: value}})
        except KafkaError as error:
            refused.append(f"broker {broker}: {name} was refused: {error}")


def differs(like: Likeness, ids: Sequence[int]) -> str | None:
    """Why a folder with brokers of these ids cannot be gone on with; None: it can."""
    if sorted(ids) == sorted(like.brokers):
        return None
    return f"brokers {', '.join(map(str, sorted(ids)))} are there, and the file has {', '.join(map(str, like.brokers))}"
