"""Takes the shape of a live cluster: reads only, from Kafka 2.6 to 4.x in either mode, and from kwob.

What cannot be learnt (an API that is refused, a broker that does not answer) is left out of the file and named in
`Notes`; only the list of topics must be there. Source: the requests of Kafka's own tools; spec admin.md.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from controller.admin.cluster.client import AdminClient, Node
from controller.admin.cluster.failures import ERRORS_PACKAGE, ClusterUnreachable, Refused
from controller.admin.cluster.log_dirs import LogDir, describe_log_dirs
from controller.admin.cluster.offsets import list_offsets
from controller.admin.cluster.queries import (
    ConfigEntry,
    ConfigResourceType,
    ConfigSource,
    PartitionInfo,
    TopicInfo,
    all_topics,
    describe_configs,
    describe_topic_configs,
    list_reassignments,
)
from controller.admin.groups.queries import Group, committed_offsets, describe_group, list_groups
from controller.admin.snapshot.reading import Flow, Reading, flows, lags
from controller.wire import cluster_file as cf
from controller.wire.types import BrokerId, ReplicaAssignment, TopicPartition

#: Topics per request for configs, and groups that are asked about at the same time.
_TOPICS_AT_ONCE: Final = 500
_AT_ONCE: Final = 16
#: How long one broker may take for one answer before it is left out.
_BROKER_S: Final = 30.0
_LATEST, _EARLIEST = -1, -2
#: Letters of a refusal that are told.
_WORDS_MOST: Final = 160
#: What a broker's file says that decides how the cluster behaves: taken along as configs of all brokers.
_TELLING: Final = frozenset(
    {
        "auto.leader.rebalance.enable",
        "broker.session.timeout.ms",
        "leader.imbalance.check.interval.seconds",
        "leader.imbalance.per.broker.percentage",
        "min.insync.replicas",
        "num.replica.fetchers",
        "replica.fetch.max.bytes",
        "replica.fetch.response.max.bytes",
        "replica.lag.time.max.ms",
        "unclean.leader.election.enable",
        "zookeeper.session.timeout.ms",
    }
)
_T = TypeVar("_T")
#: Says how far it is: what is being read, how much of how much.
Step = Callable[[str, int, int], None]


@dataclass(slots=True)
class Notes:
    """What could not be learnt, in words; each once."""

    lines: dict[str, None] = field(default_factory=dict)

    async def read(self, what: str, asking: Awaitable[_T], otherwise: _T) -> _T:
        """The answer; `otherwise`, with a note, where it is refused or does not come."""
        try:
            async with asyncio.timeout(_BROKER_S):
                return await asking
        except Refused as refused:
            self.lines[f"{what}: {_in_words(refused)}"] = None
        except (TimeoutError, ClusterUnreachable, OSError):
            self.lines[f"{what}: no answer"] = None
        return otherwise


async def take(admin: AdminClient, *, now_ms: int, rates_s: float, step: Step, notes: Notes) -> cf.ClusterShape:
    """The shape now; with `rates_s` above 0 with rates over that time. Raises ClusterUnreachable, Refused."""
    nodes = await admin.nodes()
    topics = {t.name: t for t in await all_topics(admin)}
    step("topics", len(topics), len(topics))
    brokers = sorted({*nodes, *(b for t in topics.values() for p in t.partitions for b in p.replicas)})
    notes.lines |= {f"rack and directories of broker {b}: it is down": None for b in brokers if b not in nodes}
    dirs = await _log_dirs(admin, sorted(nodes), step, notes)
    moving = await notes.read("reassignments", list_reassignments(admin), {})
    configs = await _topic_configs(admin, sorted(topics), step, notes)
    of_brokers = await _broker_configs(admin, sorted(nodes), step, notes)
    groups = await _groups(admin, step, notes)
    reading = await _look(admin, topics, dirs, groups, step, notes)
    rates: Mapping[TopicPartition, Flow] = {}
    if rates_s > 0:
        await _wait(rates_s, step)
        again = await _log_dirs(admin, sorted(nodes), step, notes)
        later = await _look(admin, topics, again, groups, step, notes)
        rates, reading, dirs = flows(reading, later), later, again
    shared, behind = _shared(of_brokers), lags(reading)
    return cf.ClusterShape(
        taken_ms=now_ms,
        source=f"{len(nodes)} live brokers",
        mode="kraft" if await admin.is_kraft() else "zookeeper",
        configs=shared,
        brokers=tuple(_broker(b, nodes.get(b), dirs.get(b, ()), of_brokers.get(b, ())) for b in brokers),
        topics={
            name: cf.TopicShape(
                configs=configs.get(name, {}),
                partitions=tuple(_partition(TopicPartition(name, p.partition), p, moving, reading, rates)
                                 for p in topic.partitions),
            )
            for name, topic in topics.items()
            if topic.partitions
        },
        groups={
            name: cf.GroupShape(
                state=group.state, members=len(group.members), lag={str(p): n for p, n in behind[name].items()}
            )
            for name, group in groups.items()
        },
    )  # fmt: skip


async def _each(items: Collection[_T], ask: Callable[[_T], Awaitable[None]], *, what: str, step: Step) -> None:
    """Asks about all of them, some at a time."""
    gate, done = asyncio.Semaphore(_AT_ONCE), 0

    async def one(item: _T) -> None:
        nonlocal done
        async with gate:
            await ask(item)
        done += 1
        step(what, done, len(items))

    await asyncio.gather(*map(one, items))


async def _log_dirs(
    admin: AdminClient, brokers: Sequence[BrokerId], step: Step, notes: Notes
) -> dict[BrokerId, list[LogDir]]:
    dirs: dict[BrokerId, list[LogDir]] = {}

    async def ask(broker: BrokerId) -> None:
        nothing: dict[BrokerId, list[LogDir]] = {}
        dirs.update(
            await notes.read(f"log directories of broker {broker}", describe_log_dirs(admin, [broker]), nothing)
        )

    await _each(brokers, ask, what="log directories", step=step)
    return dirs


async def _topic_configs(
    admin: AdminClient, topics: Sequence[str], step: Step, notes: Notes
) -> dict[str, dict[str, str]]:
    configs: dict[str, dict[str, str]] = {}
    refused: dict[str, list[str]] = defaultdict(list)
    chunks = [topics[at : at + _TOPICS_AT_ONCE] for at in range(0, len(topics), _TOPICS_AT_ONCE)]

    async def ask(names: Sequence[str]) -> None:
        nothing: dict[str, list[ConfigEntry] | Refused] = {}
        answer = await notes.read("configs of topics", describe_topic_configs(admin, names), nothing)
        for name, listed in answer.items():
            if isinstance(listed, Refused):
                refused[_in_words(listed)].append(name)
            else:
                configs[name] = _values(listed, ConfigSource.DYNAMIC_TOPIC_CONFIG)

    await _each(chunks, ask, what="configs of topics", step=step)
    for why, names in refused.items():
        others = f", and of {len(names) - 1} others" if len(names) > 1 else ""
        notes.lines[f"configs of topic {min(names)}{others}: {why}"] = None
    return configs


def _in_words(refused: Refused) -> str:
    """One line; a KRaft controller puts a whole request into the middle of its message."""
    text = refused.prefixed.removeprefix(f"{ERRORS_PACKAGE}.")
    return text if len(text) <= _WORDS_MOST else f"{text[: _WORDS_MOST // 2]} … {text[-_WORDS_MOST // 2 :]}"


async def _broker_configs(
    admin: AdminClient, brokers: Sequence[BrokerId], step: Step, notes: Notes
) -> dict[BrokerId, list[ConfigEntry]]:
    configs: dict[BrokerId, list[ConfigEntry]] = {}

    async def ask(broker: BrokerId) -> None:
        nothing: dict[str, list[ConfigEntry]] = {}
        asking = describe_configs(admin, ConfigResourceType.BROKER, [str(broker)])
        configs[broker] = (await notes.read(f"configs of broker {broker}", asking, nothing)).get(str(broker), [])

    await _each(brokers, ask, what="configs of brokers", step=step)
    return configs


async def _groups(admin: AdminClient, step: Step, notes: Notes) -> dict[str, Group]:
    groups: dict[str, Group] = {}

    async def ask(name: str) -> None:
        group = await notes.read(f"group {name}", _described(admin, name), None)
        if group is not None:
            groups[name] = group

    await _each(list(await notes.read("groups", list_groups(admin), {})), ask, what="groups", step=step)
    return dict(sorted(groups.items()))


async def _described(admin: AdminClient, name: str) -> Group | None:
    return await describe_group(admin, name)


async def _look(
    admin: AdminClient,
    topics: Mapping[str, TopicInfo],
    dirs: Mapping[BrokerId, Iterable[LogDir]],
    groups: Mapping[str, Group],
    step: Step,
    notes: Notes,
) -> Reading:
    """One look at offsets and sizes, of leaders."""
    at_s = asyncio.get_running_loop().time()
    led: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
    for name, topic in topics.items():
        for p in topic.partitions:
            if p.leader is not None:
                led[p.leader].append(TopicPartition(name, p.partition))
    ends: dict[TopicPartition, int] = {}
    first: dict[TopicPartition, int] = {}
    committed: dict[str, dict[TopicPartition, int]] = {}

    async def ask(leader: BrokerId) -> None:
        for offsets, time in ((ends, _LATEST), (first, _EARLIEST)):
            nothing: dict[TopicPartition, int | Refused] = {}
            asking = list_offsets(admin, leader, led[leader], time)
            answer = await notes.read(f"offsets at broker {leader}", asking, nothing)
            offsets.update({p: o for p, o in answer.items() if isinstance(o, int) and o >= 0})

    async def ask_group(name: str) -> None:
        committed[name] = dict(await notes.read(f"offsets of group {name}", committed_offsets(admin, groups[name]), {}))

    await _each(sorted(led), ask, what="offsets", step=step)
    await _each(list(groups), ask_group, what="offsets of groups", step=step)
    return Reading(at_s=at_s, ends=ends, first=first, sizes=_sizes(topics, dirs), committed=committed)


def _sizes(topics: Mapping[str, TopicInfo], dirs: Mapping[BrokerId, Iterable[LogDir]]) -> dict[TopicPartition, int]:
    """The log of each partition's leader; where that is not known, the largest."""
    leaders = {TopicPartition(t.name, p.partition): p.leader for t in topics.values() for p in t.partitions}
    sizes: dict[TopicPartition, int] = {}
    by_leader: dict[TopicPartition, int] = {}
    for broker, listed in dirs.items():
        for log in (log for log_dir in listed for log in log_dir.replicas if not log.is_future):
            sizes[log.partition] = max(sizes.get(log.partition, 0), log.size_bytes)
            if leaders.get(log.partition) == broker:
                by_leader[log.partition] = log.size_bytes
    return sizes | by_leader


async def _wait(seconds: float, step: Step) -> None:
    whole = max(1, round(seconds))
    for second in range(whole):
        step("rates", second, whole)
        await asyncio.sleep(seconds / whole)
    step("rates", whole, whole)


# -- from answers to the file ------------------------------------------------------------------------------------------


def _values(entries: Iterable[ConfigEntry], *sources: ConfigSource) -> dict[str, str]:
    return {e.name: e.value for e in entries if e.source in sources and e.value is not None and not e.is_sensitive}


def _shared(of_brokers: Mapping[BrokerId, Sequence[ConfigEntry]]) -> dict[str, str]:
    """The defaults of the cluster, and what all brokers' files say alike of how it behaves."""
    files = [
        {n: v for n, v in _values(entries, ConfigSource.STATIC_BROKER_CONFIG).items() if n in _TELLING}
        for entries in of_brokers.values()
        if entries
    ]
    alike = {
        name: value for name, value in (files[0] if files else {}).items() if all(f.get(name) == value for f in files)
    }
    for entries in of_brokers.values():
        alike |= _values(entries, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    return dict(sorted(alike.items()))


def _broker(
    broker: BrokerId, node: Node | None, dirs: Iterable[LogDir], entries: Iterable[ConfigEntry]
) -> cf.BrokerShape:
    return cf.BrokerShape(
        id=broker,
        rack=node.rack if node is not None else None,
        host=node.host if node is not None else None,
        log_dirs=tuple(
            cf.LogDir(
                path=d.path,
                capacity_bytes=d.total_bytes,
                used_bytes=d.total_bytes - d.usable_bytes
                if d.total_bytes is not None and d.usable_bytes is not None
                else sum(log.size_bytes for log in d.replicas),
            )
            for d in dirs
            if d.error is None
        ),
        configs=_values(entries, ConfigSource.DYNAMIC_BROKER_CONFIG),
    )


def _partition(
    partition: TopicPartition,
    info: PartitionInfo,
    moving: Mapping[TopicPartition, ReplicaAssignment],
    reading: Reading,
    rates: Mapping[TopicPartition, Flow],
) -> cf.PartitionShape:
    reassignment, flow = moving.get(partition), rates.get(partition, Flow())
    if reassignment is not None and {*reassignment.replicas} != {*info.replicas}:
        reassignment = None  # it began after Metadata was read: there its replicas are those from before
    isr = tuple(r for r in info.replicas if r in info.isr)
    usual = next(iter(isr), None)
    return cf.PartitionShape(
        replicas=info.replicas,
        isr=None if isr == info.replicas else isr,
        leader=None if info.leader == usual else -1 if info.leader is None else info.leader,
        leader_epoch=max(0, info.leader_epoch),
        adding_replicas=reassignment.adding_replicas if reassignment is not None else (),
        removing_replicas=reassignment.removing_replicas if reassignment is not None else (),
        bytes=reading.sizes.get(partition, 0),
        in_bytes_per_s=flow.in_bytes_per_s,
        out_bytes_per_s=flow.out_bytes_per_s,
    )
