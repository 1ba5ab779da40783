"""What each look puts on the board, of a cluster made by hand: also where brokers are silent, refuse, or say little."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from controller.admin.cluster.client import Node
from controller.admin.cluster.failures import ClusterUnreachable, Refused, ToolFailure
from controller.admin.cluster.log_dirs import LogDir, ReplicaLog
from controller.admin.cluster.queries import PartitionInfo, TopicInfo
from controller.admin.groups.queries import Group
from controller.admin.reassignment.progress import Progress
from controller.ui import cluster_looks
from controller.ui.board import Board
from controller.ui.cluster_looks import ClusterLooks
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, ReplicaAssignment, TopicPartition
from controller.world.simulated.world import run_world

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
#: How a broker may not answer.
REFUSED = Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
SILENCES = [ClusterUnreachable("away"), REFUSED, OSError("reset"), TimeoutError()]


@dataclass
class Cluster:
    """An admin whose every question is answered from here. What is an exception is raised."""

    racks: dict[int, str | None] = field(default_factory=lambda: {1: "r", 2: None})
    topics: list[TopicInfo] = field(default_factory=list)
    controller: int | None = 2
    quorum: Any = None
    logs: dict[int, Any] = field(default_factory=dict)
    running: list[Mapping[TopicPartition, ReplicaAssignment]] = field(default_factory=list)
    progress: Sequence[Progress] = ()
    rates: dict[int, Any] = field(default_factory=dict)
    groups: dict[int, Any] = field(default_factory=dict)
    committed: dict[str, Any] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)

    async def brokers(self) -> dict[BrokerId, Node]:
        return {
            BrokerId(n): Node(broker_id=BrokerId(n), host=f"h{n}", port=n, rack=rack) for n, rack in self.racks.items()
        }

    async def is_kraft(self) -> bool:
        return self.quorum is not None

    async def ask_once(self, broker_id: BrokerId, api_key: ApiKey, body: object) -> Any:
        assert (api_key, body) == (ApiKey.LIST_GROUPS, {})
        return answered(self.groups[broker_id])

    async def all_topics(self, _: object) -> list[TopicInfo]:
        return self.topics

    async def describe_quorum(self, _: object) -> Any:
        return None if self.quorum == "told to none" else self.quorum

    async def describe_log_dirs(self, _: object, brokers: Sequence[BrokerId]) -> dict[BrokerId, Any]:
        return {broker_id: answered(self.logs[broker_id]) for broker_id in brokers}

    async def list_reassignments(self, _: object) -> Mapping[TopicPartition, ReplicaAssignment]:
        return self.running.pop(0)

    async def watch(self, _: object, begun: object, *, every_s: float) -> AsyncIterator[Progress]:
        for progress in self.progress:
            yield progress

    async def describe_configs(self, _: object, kind: object, names: Sequence[str]) -> dict[str, Any]:
        return {
            name: [SimpleNamespace(name=key, value=value) for key, value in answered(self.rates[int(name)]).items()]
            for name in names
        }

    async def describe_group(self, _: object, name: str) -> Any:
        return Group(group_id=name, state="Stable", strategy="", members=(), coordinator=answered(self.committed[name]))

    async def committed_offsets(self, _: object, group: Group) -> Mapping[TopicPartition, int]:
        return self.committed[group.group_id]

    async def offsets_at(self, _: object, partitions: list[TopicPartition], at: int) -> Mapping[TopicPartition, int]:
        assert partitions and at == -1
        return {partition: self.ends[partition] for partition in partitions}


def answered(value: Any) -> Any:
    if isinstance(value, Exception):
        raise value
    return value


def topic(name: str, *leaders: int | None, numbers: Sequence[int] = (0, 1, 2)) -> TopicInfo:
    ids = (BrokerId(1), BrokerId(2))
    partitions = [
        PartitionInfo(partition=n, leader=None if b is None else BrokerId(b), replicas=ids, isr=ids[:1], leader_epoch=4)
        for n, b in zip(numbers, leaders, strict=False)
    ]
    return TopicInfo(name=name, partitions=tuple(partitions))


def log(partition: TopicPartition, size: int, *, is_future: bool = False) -> ReplicaLog:
    return ReplicaLog(partition=partition, size_bytes=size, offset_lag=0, is_future=is_future)


def on_disk(*logs: ReplicaLog, **volume: Any) -> list[LogDir]:
    return [LogDir(path="/d", replicas=logs, **volume)]


class Page:
    """The looks at a cluster, and what they changed on the board."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in (
            "all_topics", "describe_quorum", "describe_log_dirs", "list_reassignments", "watch", "describe_configs",
            "describe_group", "committed_offsets", "offsets_at",
        ):  # fmt: skip
            monkeypatch.setattr(cluster_looks, name, getattr(cluster, name))
        admin: Any = cluster
        self.board = Board()
        self.looks = ClusterLooks(admin, self.board)
        self._seen = 0

    async def look(self, *names: str) -> dict[str, Any]:
        for name in names:
            await getattr(self.looks, name)()
        since, self._seen = self._seen, self.board.version
        changed: dict[str, Any] = json.loads(self.board.since(since))
        return changed


def played(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """On virtual time."""
    run_world(1, lambda world: story())


def test_brokers_partitions_and_the_office(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        cluster = Cluster(topics=[topic("a", 1, None), topic("b", 2, numbers=[1])])
        page = Page(cluster, monkeypatch)
        brokers = {"1": {"host": "h1", "port": 1, "rack": "r"}, "2": {"host": "h2", "port": 2, "rack": None}}
        a, b = [[1, [1, 2], [1], 4], [-1, [1, 2], [1], 4]], [[2, [1, 2], [1], 4, 1]]
        assert await page.look("topics") == {"brokers": brokers, "topic:a": a, "topic:b": b, "read": True}
        cluster.topics[1:] = [topic("b", 1, numbers=[1])]
        assert await page.look("topics") == {"topic:b": [[1, [1, 2], [1], 4, 1]]}
        del cluster.topics[0]
        assert await page.look("topics") == {"topic:a": None}
        assert await page.look("office") == {"controller": 2}
        cluster.quorum = "told to none"
        assert await page.look("office") == {}
        log_of_it = SimpleNamespace(leader_id=901, leader_epoch=7)
        cluster.quorum = SimpleNamespace(topics=[SimpleNamespace(partitions=[log_of_it])])
        assert await page.look("office") == {"office": {"controller": 901, "epoch": 7}}

    played(story)


@pytest.mark.parametrize("silence", SILENCES, ids=lambda each: type(each).__name__)
def test_disks_with_what_flows_and_who_is_silent_has_none_of_it(
    silence: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        topics = [topic("a", 1, 1), topic("late", 1, 2, numbers=[3, 0])]
        late = TopicPartition("late", 0)
        cluster = Cluster(topics=topics, racks={1: None, 2: None})
        page = Page(cluster, monkeypatch)
        await page.look("topics")
        full = {"total_bytes": 1000, "usable_bytes": 400}
        cluster.logs = {1: on_disk(log(A0, 50), log(A1, 7, is_future=True), **full), 2: on_disk(error=REFUSED)}
        row = {"path": "/d", "replicas": 2, "bytes": 57, "total": 1000, "usable": 400, "error": None}
        changed = await page.look("disks")
        error = changed["disks:2"][0].pop("error")
        none = {"path": "/d", "replicas": 0, "bytes": 0, "total": None, "usable": None}
        assert changed == {"disks:1": [row], "disks:2": [none], "flows:1": None, "flows:2": None, "throttles": None}
        assert error == str(REFUSED)

        await asyncio.sleep(2)
        away, unknown = TopicPartition("nosuch", 0), TopicPartition("a", 5)
        cluster.logs[1] = on_disk(
            log(A0, 450), log(late, 80), log(away, 90), log(unknown, 90), log(A1, 700, is_future=True)
        )
        cluster.logs[2] = silence
        changed = await page.look("disks")
        assert changed["flows:1"] == {"from": {"2": 40}, "to": {}, "clients": 200}, "of what nobody leads, no word"
        assert not {"disks:2", "flows:2"} & changed.keys()

        await asyncio.sleep(2)
        cluster.logs[2] = on_disk(log(A0, 450))
        await page.look("disks")
        assert page.board.get("flows:2") is None, "of who was silent nothing is known: this is its first look again"
        del cluster.racks[1]
        assert (await page.look("disks"))["flows:1"] is None, "it has left"

    played(story)


def moving(*adding: int) -> ReplicaAssignment:
    replicas = tuple(map(BrokerId, (1, *adding)))
    return ReplicaAssignment(replicas=replicas, adding_replicas=replicas[1:], removing_replicas=replicas[:1])


def seen(done: int, total: int = 2) -> Progress:
    waits = tuple(f"a-{n} waits" for n in range(60))
    counts = {"partitions_done": done, "partitions_total": total, "bytes_done": 30, "bytes_total": 90}
    return Progress(**counts, bytes_per_s=20.0, waits_for=waits)


def test_moves_until_nothing_moves_or_more_does(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        cluster = Cluster(running=[{}], progress=[seen(0)])
        page = Page(cluster, monkeypatch)
        await page.look("topics")
        assert await page.look("moves") == {"moves": None}

        both = {A0: moving(2), A1: moving(2, 3)}
        cluster.running, cluster.progress = [both, both, {A1: moving(3)}], [seen(0), seen(1)]
        shown: list[Any] = []
        put = page.board.put
        monkeypatch.setattr(page.board, "put", lambda key, value: (shown.append(value), put(key, value)))
        await page.looks.moves()
        waits = [f"a-{n} waits" for n in range(50)]
        row = {"bytes_done": 30, "bytes_total": 90, "bytes_per_s": 20.0, "seconds_left": 3.0, "waits_for": waits}
        rows = {"a-0": [[1, 2], [2], [1]], "a-1": [[1, 2, 3], [2, 3], [1]]}
        assert shown == [
            {"partitions": rows, "left": 2, "done": 0, **row},
            {"partitions": rows, "left": 1, "done": 1, **row},
            None,
        ], "what still runs, as the look before had it"

        cluster.running, cluster.progress = [{A0: moving(2)}, both], [seen(0), seen(1)]
        await page.looks.moves()
        assert len(shown) == 4, "another begins: the next look counts all of them"

    played(story)


@pytest.mark.parametrize("silence", SILENCES, ids=lambda each: type(each).__name__)
def test_throttles_while_something_moves_of_who_has_any(silence: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        names = ("follower.replication.throttled.rate", "leader.replication.throttled.rate")
        cluster = Cluster(topics=[topic("a", 1, 1)], racks=dict.fromkeys((1, 2, 3, 4)))
        page = Page(cluster, monkeypatch)
        await page.look("topics")
        cluster.running, cluster.progress = [{A0: moving(2), A1: moving(3)}] * 2, [seen(0)]
        await page.looks.moves()
        cluster.rates = {1: {}, 2: {names[0]: "500", names[1]: "x"}, 3: silence, 4: {names[1]: None, "other": "5"}}
        for at in (0, 1):
            logs = {1: [log(A0, 100), log(A1, 100)], 2: [log(A0, 80 * at)], 3: [log(A1, 6 * at), log(A0, at)], 4: []}
            cluster.logs = {broker: on_disk(*rows) for broker, rows in logs.items()}
            await page.look("disks")
            await asyncio.sleep(2)
        row = {"in_limit": None, "out_limit": None}
        limited = {**row, "in_limit": 500}
        assert page.board.get("throttles") == {
            "1": {"in": 0, "out": 43, **row}, "2": {"in": 40, "out": 0, **limited}, "3": {"in": 3, "out": 0, **row},
        }, "what else grows on 3 is no move"  # fmt: skip
        cluster.rates[2] = silence
        await page.look("disks")
        assert page.board.get("throttles")["2"]["in_limit"] == 500, "as it said last"

    played(story)


def test_groups_with_the_lag_of_what_is_led(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        cluster = Cluster(topics=[topic("a", 1, None)])
        page = Page(cluster, monkeypatch)
        await page.look("topics")
        cluster.groups = {1: listed("late", "early"), 2: listed("none", "gone")}
        gone, unheard = TopicPartition("deleted", 0), TopicPartition("a", 2)
        cluster.committed = {
            "late": {A0: 12, A1: 3, gone: 1, unheard: 1},
            "early": {A0: 4},
            "none": {A1: 5},
            "gone": {},
        }
        cluster.ends = {A0: 10}
        stable = {"state": "Stable", "members": 0}
        behind, nothing = {"lag": 6, "partitions": {"a-0": 6}}, {"lag": None, "partitions": {}}
        assert await page.look("groups") == {"groups": {"count": 4, "rows": {
            "early": {**stable, **behind}, "late": {**stable, "lag": 0, "partitions": {"a-0": 0}},
            "gone": {**stable, **nothing}, "none": {**stable, **nothing},
        }}}  # fmt: skip
        monkeypatch.setattr(cluster_looks, "GROUPS_MAX", 1)
        assert await page.look("groups") == {"groups": {"count": 4, "rows": {"early": {**stable, **behind}}}}

    played(story)


@pytest.mark.parametrize("silence", SILENCES, ids=lambda each: type(each).__name__)
def test_groups_of_who_answers_are_shown_and_who_is_silent_is_named(
    silence: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        cluster = Cluster(topics=[topic("a", 1)], racks=dict.fromkeys((1, 2, 3)))
        page = Page(cluster, monkeypatch)
        cluster.groups = {1: listed("g"), 2: REFUSED, 3: OSError("reset")}
        cluster.committed = {"g": silence}
        with pytest.raises(ToolFailure, match="broker 2, 3 does not answer: groups that it coordinates are not shown"):
            await page.look("groups")
        row = {"state": "as listed", "members": None, "lag": None, "partitions": {}}
        assert page.board.get("groups") == {"count": 1, "rows": {"g": row}}

    played(story)


def listed(*names: str) -> Any:
    rows = [
        SimpleNamespace(group_id=name, protocol_type="consumer", group_state="as listed", group_type="classic")
        for name in names
    ]
    return SimpleNamespace(error_code=0, groups=rows)


def test_a_look_that_takes_long_is_followed_by_a_longer_pause_and_its_trouble_is_told_until_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cluster in trouble is not asked without a pause by each page that is open."""

    async def story() -> None:
        cluster = Cluster(running=[{}] * 1000)
        page = Page(cluster, monkeypatch)
        begun: list[float] = []
        trouble: list[Exception | None] = [
            SILENCES[0],
            REFUSED,
            OSError("no"),
            TimeoutError(),
            KeyError("odd"),
            None,
            None,
        ]

        async def office(_: object = None) -> bool:
            begun.append(asyncio.get_running_loop().time())
            await asyncio.sleep(3 if len(begun) > 4 else 0)
            if error := trouble.pop(0):
                raise error
            return False

        notes: list[str | None] = []
        monkeypatch.setattr(cluster, "is_kraft", office)
        monkeypatch.setattr(cluster, "logs", {1: [], 2: []})
        monkeypatch.setattr(cluster, "groups", {1: listed(), 2: listed()})
        looking = asyncio.ensure_future(page.looks.run())
        for _ in range(40):
            await asyncio.sleep(0.5)
            notes.append((page.board.get("notes") or {}).get("office"))
        looking.cancel()
        assert [round(at - begun[0]) for at in begun] == [0, 2, 4, 6, 8, 17]
        assert list(dict.fromkeys(notes)) == ["away", str(REFUSED), "no", "TimeoutError", "KeyError('odd')", None]

    played(story)
