"""What a reassignment copies and where it puts it: holders, sizes, directories, and the steps on the way."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from controller.admin.cluster.failures import Refused
from controller.admin.cluster.log_dirs import LogDir, ReplicaLog
from controller.admin.cluster.queries import PartitionInfo
from controller.admin.reassignment.effect import Effect, Now, effect, smallest_useful_rate, steps
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, PartitionReplica, ReplicaAssignment, TopicPartition

FOO_0, FOO_1, X, Y = (TopicPartition(*name) for name in (("foo", 0), ("foo", 1), ("x", 0), ("y", 0)))


def ids(*brokers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))


def folder(path: str, *logs: tuple[TopicPartition, int], copies: tuple[tuple[TopicPartition, int], ...] = ()) -> LogDir:
    """A directory with these logs, and with copies that are still being made of others of the same broker."""
    rows = [(log, False) for log in logs] + [(log, True) for log in copies]
    replicas = [ReplicaLog(partition=p, size_bytes=n, offset_lag=0, is_future=future) for (p, n), future in rows]
    return LogDir(path=path, replicas=tuple(replicas))


def failed(path: str) -> LogDir:
    return LogDir(path=path, replicas=(), error=Refused(ErrorCode.KAFKA_STORAGE_ERROR))


def cluster(*, leader: int | None = 0, isr: tuple[int, ...] = (0, 1), dirs: Any = None, **changes: Any) -> Now:
    """foo-0 and foo-1 on 0 and 1, and brokers up to 3."""
    state = {"leader": None if leader is None else BrokerId(leader), "replicas": ids(0, 1), "isr": ids(*isr)}
    return Now(
        partitions={tp: PartitionInfo(partition=tp.partition, **state) for tp in (FOO_0, FOO_1)},
        dirs=dirs or {}, live=frozenset(ids(0, 1, 2, 3)), **changes,
    )  # fmt: skip


def moved(now: Now, *target: int, dirs: dict[int, str] | None = None) -> Effect:
    """foo-0 goes to these brokers, on some of them into a directory that is named."""
    places = {PartitionReplica(FOO_0, BrokerId(b)): path for b, path in (dirs or {}).items()}
    return effect({FOO_0: ids(*target)}, places, now)


def rooms(result: Effect) -> dict[tuple[int, str], tuple[int, int, int]]:
    return {(d.broker, d.path): (d.before, d.peak, d.after) for d in result.dirs}


#: the directories of broker 2 -> where the first and the second new log go
PLACES: list[tuple[str, list[LogDir], str, str]] = [
    ("the one with fewest logs, not bytes", [folder("/a", (X, 1), (Y, 1)), folder("/b", (X, 900))], "/b", "/a"),
    ("copies are logs, too", [folder("/a", copies=((X, 1), (Y, 1))), folder("/b", (X, 1))], "/b", "/a"),
    ("none that has failed", [failed("/a"), folder("/b", (X, 1))], "/b", "/b"),
    ("by turns", [folder("/a"), folder("/b")], "/a", "/b"),
    ("the order they are listed in does not count", [folder("/b", (X, 1)), folder("/a")], "/a", "/a"),
    ("all have failed", [failed("/a")], "?", "?"),
    ("nobody tells", [], "?", "?"),
]


@pytest.mark.parametrize(("listed", "first", "second"), [p[1:] for p in PLACES], ids=[p[0] for p in PLACES])
def test_where_a_broker_puts_new_logs(listed: list[LogDir], first: str, second: str) -> None:
    now = cluster(dirs={0: [folder("/d", (FOO_0, 100), (FOO_1, 10))], 2: listed})
    result = effect({FOO_0: ids(0, 2), FOO_1: ids(0, 2)}, {}, now)
    comes = {path: peak - before for (b, path), (before, peak, _) in rooms(result).items() if b == 2}
    assert comes == ({first: 110} if first == second else {first: 100, second: 10})
    assert all(peak == after for _, peak, after in (room for at, room in rooms(result).items() if at[0] == 2))


#: leader, ISR, the target -> from whom to whom how much
COPIES = [
    ("each new replica", 0, (0, 1), (0, 2, 3), {(0, 2): 1000, (0, 3): 1000}),
    ("from the leader, who is not the first", 1, (0, 1), (0, 2), {(1, 2): 900}),
    ("nothing without a leader", None, (), (0, 2), {}),
    ("nothing to who is in sync already", 0, (0, 1, 2), (0, 2, 3), {(0, 3): 1000}),
    ("nothing for a smaller set", 0, (0, 1), (0,), {}),
    ("from who does not tell its size, the largest log", 3, (3,), (3, 2), {(3, 2): 1000}),
]


@pytest.mark.parametrize(("leader", "isr", "target", "links"), [c[1:] for c in COPIES], ids=[c[0] for c in COPIES])
def test_what_is_copied(leader: int | None, isr: tuple[int, ...], target: tuple[int, ...], links: Any) -> None:
    """A copy that goes from one directory to another of a broker is not yet what anybody copies from."""
    dirs = {
        0: [folder("/d", (FOO_0, 1000)), folder("/e", copies=((FOO_0, 5000),))],
        1: [folder("/d", (FOO_0, 900), (FOO_1, 7000))],
    }
    now = cluster(leader=leader, isr=isr, dirs=dirs)
    if leader == 3:
        three = PartitionInfo(partition=0, leader=BrokerId(3), replicas=ids(3, 0, 1), isr=ids(3))
        now = Now(partitions={FOO_0: three}, dirs=dirs, live=now.live)
    result = moved(now, *target)
    assert result.links == links
    ends = {broker for link in links for broker in link}
    assert result.brokers == sorted(ends)
    for broker in map(BrokerId, range(4)):
        assert result.bytes_into(broker) == sum(size for (_, to), size in links.items() if to == broker)
        assert result.bytes_out_of(broker) == sum(size for (source, _), size in links.items() if source == broker)
    assert result.moves[0].bytes_per_copy == (900 if leader == 1 else 1000), "without a leader, the largest"


#: foo-0 in /d of 0, a copy of it begun in /f there, 1 does not tell, 2 has two directories.
DIRS: Any = {
    0: [folder("/d", (FOO_0, 1000), (X, 300)), folder("/e", (Y, 40)), folder("/f", copies=((FOO_0, 50),))],
    2: [folder("/a"), folder("/b", (Y, 70))],
}
_ENDED = {(0, "/f"): (50, 50, 0)}
#: the target, the directories that are named -> what each directory holds before, at the most, after; bytes between
MOVES: list[tuple[str, tuple[int, ...], dict[int, str], dict[Any, Any], dict[int, int]]] = [
    ("to another directory ends the copy to a third", (0, 1), {0: "/e"},
     {(0, "/d"): (1300, 1300, 300), (0, "/e"): (40, 1040, 1040), **_ENDED}, {0: 1000}),
    ("to where a copy goes already, what is left", (0, 1), {0: "/f"},
     {(0, "/d"): (1300, 1300, 300), (0, "/f"): (50, 1000, 1000)}, {0: 950}),
    ("to where it is ends the copy", (0, 1), {0: "/d"}, _ENDED, {}),
    ("of a broker that does not tell", (0, 1), {1: "/e"}, {}, {}),
    ("of a broker that it leaves, with the copy", (1,), {0: "/e"}, {(0, "/d"): (1300, 1300, 300), **_ENDED}, {}),
    ("of a broker that it never was on", (0, 1), {3: "/e"}, {}, {}),
    ("on a new broker", (0, 2), {2: "/b"}, {(2, "/b"): (70, 1070, 1070)}, {}),
    ("on a new broker, into the emptiest", (0, 2), {}, {(2, "/a"): (0, 1000, 1000)}, {}),
    ("both", (0, 2), {0: "/e", 2: "/b"},
     {(0, "/d"): (1300, 1300, 300), (0, "/e"): (40, 1040, 1040), **_ENDED, (2, "/b"): (70, 1070, 1070)}, {0: 1000}),
]  # fmt: skip


@pytest.mark.parametrize(("target", "named", "room", "between"), [m[1:] for m in MOVES], ids=[m[0] for m in MOVES])
def test_the_room_of_each_directory(target: tuple[int, ...], named: Any, room: Any, between: dict[int, int]) -> None:
    """What comes is there before anything goes. A copy under way is no place of its replica."""
    result = moved(cluster(dirs=DIRS), *target, dirs=named)
    assert rooms(result) == room
    assert {replica.replica: size for replica, size in result.dir_moves.items()} == between


#: foo-0 goes from 1 to 2, who has 30 of 100 bytes: the ISR, the target, named directories -> rooms, bytes of links
BEGUN: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[int, str], dict[Any, Any], dict[Any, int]]] = [
    ("the rest comes", (0, 1), (0, 2), {}, {(1, "/d"): (90, 90, 0), (2, "/b"): (37, 107, 107)}, {(0, 2): 70}),
    ("nothing to who is in sync", (0, 1, 2), (0, 2), {}, {(1, "/d"): (90, 90, 0)}, {}),
    ("all of it goes on to another directory", (0, 1), (0, 2), {2: "/a"},
     {(1, "/d"): (90, 90, 0), (2, "/a"): (0, 100, 100), (2, "/b"): (37, 107, 7)}, {(0, 2): 70}),
    ("what was begun goes where the target leaves it out", (0, 1), (1, 0), {}, {(2, "/b"): (37, 37, 7)}, {}),
    ("nothing to who lags and stays", (0,), (1, 0), {}, {(2, "/b"): (37, 37, 7)}, {}),
    ("and where it goes to a third", (0, 1), (0, 3), {3: "/c"},
     {(1, "/d"): (90, 90, 0), (2, "/b"): (37, 37, 7), (3, "/c"): (0, 100, 100)}, {(0, 3): 100}),
]  # fmt: skip


@pytest.mark.parametrize(("isr", "target", "named", "room", "links"), [b[1:] for b in BEGUN], ids=[b[0] for b in BEGUN])
def test_the_room_of_a_move_that_has_begun(
    isr: tuple[int, ...], target: tuple[int, ...], named: Any, room: Any, links: Any
) -> None:
    running = ReplicaAssignment(replicas=ids(0, 2, 1), adding_replicas=ids(2), removing_replicas=ids(1))
    now = Now(
        partitions={FOO_0: PartitionInfo(partition=0, leader=BrokerId(0), replicas=running.replicas, isr=ids(*isr))},
        dirs={
            0: [folder("/d", (FOO_0, 100))],
            1: [folder("/d", (FOO_0, 90))],
            2: [folder("/a"), folder("/b", (FOO_0, 30), (X, 7))],
        },
        live=frozenset(ids(0, 1, 2, 3)),
        moving={FOO_0: running},
    )
    result = moved(now, *target, dirs=named)
    assert (rooms(result), result.links, result.dir_moves) == (room, links, {})


@pytest.mark.parametrize("target", [t for n in (1, 2, 3) for t in itertools.permutations((0, 1, 2), n)], ids=str)
@pytest.mark.parametrize("is_kraft", [False, True])
def test_only_steps_that_are_needed_are_listed(target: tuple[int, ...], is_kraft: bool) -> None:
    """Copies and their end for who is added, a deletion for who is removed, an election where the leader goes."""
    [move] = moved(cluster(is_kraft=is_kraft), *target).moves
    text = "\n".join(steps(move))
    adds, removes = 2 in target, not {0, 1} <= set(target)
    assert ("nothing is copied: done at once" in text) is not (adds or removes)
    assert (" begin" in text, "wait until" in text) == (adds, adds)
    assert (("delete their replicas" if is_kraft else "then deleted") in text) is removes
    assert ("leader 0 stays" in text) is (0 in target and (adds or removes))
    assert move.leader_after == (0 if 0 in target else target[0])


def test_why_it_would_not_get_done() -> None:
    """For who is to be added; what is done at once needs nobody."""
    nobody = cluster(leader=None, isr=())
    assert moved(nobody, 0, 2).moves[0].blocked == "it has no leader to copy from"
    assert moved(nobody, 1, 0).moves[0].blocked is None
    assert moved(cluster(), 0, 2).moves[0].blocked is None
    dead = [move.blocked or "" for move in (moved(cluster(), 0, 7, 2, 8).moves[0], moved(cluster(), 0, 1).moves[0])]
    assert dead[0].startswith("broker 7,8 of the target is not alive") and not dead[1]


def test_what_is_on_its_way_already_counts_as_coming() -> None:
    running = ReplicaAssignment(replicas=ids(0, 2, 1), adding_replicas=ids(2), removing_replicas=ids(1))
    now = cluster(dirs={0: [folder("/d", (FOO_0, 100))]}, moving={FOO_0: running})
    assert moved(now, 0, 2).links == {(0, 2): 100}


def test_of_what_nobody_tells_and_of_nothing() -> None:
    """Sizes that nobody tells count as none; where nobody leads or nothing moves, no rate is too low."""
    unsized = moved(cluster(), 0, 3, 2)
    assert list(unsized.links.items()) == [((0, 2), 0), ((0, 3), 0)], "in order"
    assert unsized.least_seconds(1) == 0 and unsized.least_seconds(0) is None
    assert moved(cluster(), 1, 0).least_seconds(1) is None, "nothing is copied"
    nobody = moved(cluster(leader=None, isr=()), 0, 2)
    assert smallest_useful_rate(nobody, {FOO_0: 10.0}) == 11, "who copies needs it once there is a leader"
    assert smallest_useful_rate(effect({}, {}, cluster()), {}) == 0
    assert "leader none is not in the target or not alive: elect 0" in steps(nobody.moves[0])


def test_all_is_listed_in_order() -> None:
    dirs = {1: [folder("/d", (FOO_1, 2)), folder("/e")], 0: [folder("/d", (FOO_0, 1)), folder("/c", (FOO_1, 2))]}
    named = {PartitionReplica(FOO_1, BrokerId(1)): "/e", PartitionReplica(FOO_0, BrokerId(0)): "/c"}
    result = effect({FOO_1: ids(1, 10), FOO_0: ids(0, 8)}, named, cluster(dirs=dirs))
    assert [move.partition for move in result.moves] == [FOO_0, FOO_1]
    assert [*result.dir_moves] == sorted(named) and result.brokers == [0, 8, 10]
    assert [(use.broker, use.path) for use in result.dirs] == sorted((use.broker, use.path) for use in result.dirs)
