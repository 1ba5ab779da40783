"""Log files and a metadata log as one history: what is filled, what stays, what contradicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from broker_sim.replay.ingest.one_history import COMPARED, CONTRADICTIONS, Note, OneHistory
from broker_sim.replay.logs.files import log_files
from broker_sim.replay.metadata_log import local
from broker_sim.replay.metadata_log.causes import Cause
from broker_sim.replay.metadata_log.files import metadata_files
from broker_sim.replay.metadata_log.fold import Change, Kind
from broker_sim.replay.metadata_log.trace_rows import EMITTED, Teller
from broker_sim.replay.validation.local import rows_of_logs

RUNS = Path(__file__).parents[2] / "kraft_runs"
Row = dict[str, Any]

CREATED = Change(
    10, 10_000, 1, Kind.CREATED, Cause.CREATION, 1, 0, 0, None, [1, 2, 3], [1, 2, 3], [], [], [], [], False, None, True
)
SHRUNK = CREATED._replace(
    offset=11, ts=20_000, event=Kind.CHANGED, cause=Cause.LEADER, partition_epoch=1, isr_old=[1, 2, 3], isr=[1, 2],
    is_reassigned=False, leader_epoch_old=0,
)  # fmt: skip
FENCED = SHRUNK._replace(offset=12, ts=30_000, cause=Cause.FENCING, partition_epoch=2, isr_old=[1, 2], isr=[1])


def history(*changes: Change, known: tuple[int, int] = (5_000, 60_000), from_beginning: bool = True) -> OneHistory:
    teller = Teller(topic="t", partition=0, controllers={1: 101})
    for change in changes or (CREATED, SHRUNK, FENCED):
        teller.feed(change)
    one = OneHistory([known], from_beginning)
    for row in teller.rows:
        one.of_metadata(dict(zip(EMITTED, row, strict=True)))
    return one


def line(ev: str, ts: int, **said: Any) -> Row:
    common: Row = {"ev": ev, "ts": ts, "topic": "t", "partition": 0, "broker": 1, "src": "log", "role": "broker"}
    return {**dict.fromkeys(EMITTED), **common, **said}


SHRINK = line(
    "isr_shrink", 19_990, replica=3, epoch=0, zk_version=1, isr_old=[1, 2, 3], isr=[1, 2], err=0, cu=15_000, offset=7,
    leo=9, hw=7,
)  # fmt: skip


def notes(one: OneHistory, *rows: Row) -> list[str]:
    for row in rows:
        one.of_log(row)
    one.finish()
    return [told.note for told in one.notes]


def test_the_leaders_line_tells_how_far_the_replica_was_and_the_metadata_log_when_it_left() -> None:
    one = history()
    assert notes(one, SHRINK) == [Note.AGREES]
    (row,) = [r for r in one.rows if r["ev"] == "isr_shrink"]
    assert (row["ts"], row["src"]) == (20_000, "metadata")
    assert (row["cu"], row["offset"], row["leo"], row["hw"]) == (15_000, 7, 9, 7)


def test_of_several_lines_that_tell_the_same_the_first_counts() -> None:
    one = history()
    again = SHRINK | {"ts": 20_010, "cu": 16_000, "offset": 8, "leo": None, "hw": 9}
    assert notes(one, SHRINK | {"hw": None}, again) == [Note.AGREES] * 2
    (row,) = [r for r in one.rows if r["ev"] == "isr_shrink"]
    assert (row["cu"], row["offset"], row["leo"], row["hw"]) == (15_000, 7, 9, 9)


def test_a_leaders_first_line_tells_where_its_log_ends() -> None:
    one = history()
    led = line("leader", 10_050, epoch=0, zk_version=0, isr=[1, 2, 3], offset=4, leo=4, hw=3)
    assert notes(one, led) == [Note.AGREES]
    first = next(r for r in one.rows if r["ev"] == "leader")
    assert (first["offset"], first["hw"], first["ts"]) == (4, 3, 10_000)


class Counted(dict[str, Any]):
    """A row that counts, with all others, how often it is looked at."""

    looks = 0

    def __getitem__(self, name: str) -> Any:
        Counted.looks += 1
        return super().__getitem__(name)


@pytest.mark.parametrize("ev", ["isr_shrink", "broker_down"])
def test_the_work_grows_with_the_rows_and_not_with_their_square(ev: str) -> None:
    def work(rows: int) -> int:
        one, Counted.looks = OneHistory([(0, 60_000)]), 0
        for n in range(rows):
            one.of_metadata(Counted(line(ev, 20_000, epoch=n, replica=n, isr=[1])))
        for n in range(rows):
            one.of_log(line(ev, 20_000, epoch=n, replica=n, isr=[1], err=95))
        assert {told.note for told in one.notes} == {Note.REFUSED if ev == "isr_shrink" else Note.AGREES}
        return Counted.looks

    assert work(400) <= 4.5 * work(100)


def test_a_write_that_was_refused_is_in_log_files_only_and_stays() -> None:
    one = history()
    refused = SHRINK | {"err": 95, "zk_version": None, "isr": None}
    assert notes(one, refused) == [Note.REFUSED]
    assert refused in one.rows


def test_an_attempt_without_an_answer_was_granted_when_there_was_a_controller_again() -> None:
    one = history()
    early = SHRINK | {"ts": 9_500, "err": 95, "zk_version": None, "src": "inferred"}
    assert notes(one, early) == [Note.AGREES]
    assert [row["cu"] for row in one.rows if row["ev"] == "isr_shrink"] == [15_000]
    for other in ({"ts": 40_000}, {"isr": [1]}):
        assert notes(history(), early | other) == [Note.REFUSED]


def test_an_attempt_that_was_refused_first_tells_how_far_the_replica_was_when_it_was_granted() -> None:
    one = history()
    assert notes(one, SHRINK | {"ts": 9_500, "err": 95, "zk_version": None}) == [Note.REFUSED]
    assert sorted(row["cu"] for row in one.rows if row["ev"] == "isr_shrink") == [15_000, 15_000]


#: an attempt that was refused, as the log files let it be inferred -> whether it was granted in the end
GRANTED: list[tuple[Row, bool]] = [
    ({}, True),
    ({"ts": 21_000}, True),
    ({"ts": 21_001}, False),
    ({"broker": 2}, False),
    ({"epoch": 1}, False),
    ({"replica": 2}, False),
    ({"isr": [1, 3]}, False),
    ({"ev": "isr_expand"}, False),
]


@pytest.mark.parametrize(("said", "is_granted"), GRANTED, ids=str)
def test_an_attempt_is_granted_by_the_same_change_of_the_same_leader_later(said: Row, is_granted: bool) -> None:
    attempt = SHRINK | {"err": 95, "zk_version": None, "src": "inferred"} | said
    assert notes(history(), attempt) == [Note.AGREES if is_granted else Note.REFUSED]


def test_of_several_pieces_of_a_metadata_log_each_is_believed_in_its_time() -> None:
    one = OneHistory([(5_000, 15_000), (25_000, 60_000)])
    found = notes(one, *(line("assign", ts, replicas=[9]) for ts in (10_000, 20_000, 30_000)))
    assert found == [Note.CONTRADICTS, Note.OUTSIDE, Note.CONTRADICTS]


#: attempts, second by second, that were refused, as when the replica came back by itself -> of which it takes
TRIED = [([9_500], False, 9_400), ([9_500, 12_000], False, 11_900), ([9_500, 12_000], True, 15_000)]


@pytest.mark.parametrize(("attempts", "is_told", "caught_up"), TRIED)
def test_of_several_attempts_the_last_counts_and_more_than_all_the_line_of_the_write(
    attempts: list[int], is_told: bool, caught_up: int
) -> None:
    one = history()
    tried = [SHRINK | {"ts": ts, "cu": ts - 100, "err": 95, "zk_version": None} for ts in attempts]
    assert notes(one, *tried, *[SHRINK] * is_told) == [Note.REFUSED] * len(tried) + [Note.AGREES] * is_told
    assert [row["cu"] for row in one.rows if row["ev"] == "isr_shrink" and row["err"] == 0] == [caught_up]


@pytest.mark.parametrize(
    ("row", "note"),
    [
        (SHRINK | {"isr": [1, 3], "replica": 2}, Note.CONTRADICTS),
        (SHRINK | {"isr": [1, 3], "replica": 2, "src": "inferred"}, Note.LEFT_OUT),
        (SHRINK | {"epoch": 4}, Note.CONTRADICTS),
        (SHRINK | {"broker": 2}, Note.CONTRADICTS),
        (SHRINK | {"zk_version": 9}, Note.NOT_WRITTEN),
        (SHRINK | {"zk_version": 2, "isr": [1], "isr_old": [1, 2], "replica": 2}, Note.OTHER_CAUSE),
        (SHRINK | {"zk_version": 2, "isr": [1], "isr_old": [1, 2], "replica": 2, "src": "inferred"}, Note.AGREES),
        (line("elect", 21_000, replica=1, epoch=0, zk_version=1, isr=[2, 1]), Note.AGREES),
        (line("elect", 21_000, replica=1, epoch=None, zk_version=1, isr=[2, 1]), Note.CONTRADICTS),
        (line("elect", 21_000, replica=2, epoch=0, zk_version=1, isr=[2, 1]), Note.CONTRADICTS),
        (line("assign", 10_000, replicas=[1, 2, 3]), Note.AGREES),
        (line("assign", 10_000, replicas=[1, 2, 4]), Note.CONTRADICTS),
        (line("delete", 21_000), Note.LEFT_OUT),
    ],
)
def test_a_line_that_tells_otherwise_is_noticed_and_the_metadata_log_is_believed(row: Row, note: str) -> None:
    one = history()
    alone = history()
    alone.finish()
    before = {r["ts"]: r["isr"] for r in alone.rows}
    assert notes(one, row) == [note]
    assert {r["ts"]: r["isr"] for r in one.rows} == before


@pytest.mark.parametrize(("ts", "version"), [(70_000, 3), (60_500, 3)])
def test_what_happens_after_the_last_record_is_told_by_the_log_files(ts: int, version: int) -> None:
    one = history()
    later = SHRINK | {"ts": ts, "zk_version": version}
    assert notes(one, later) == [Note.OUTSIDE]
    assert later in one.rows


def test_before_the_first_state_of_a_partition_nothing_contradicts() -> None:
    early = line("leader", 6_500, epoch=0, zk_version=5, isr=[1])
    assert notes(history(), early) == [Note.NOT_WRITTEN]
    snapshot = CREATED._replace(event=Kind.SNAPSHOT, partition_epoch=7, cause=Cause.UNKNOWN)
    assert notes(history(snapshot, from_beginning=False), early) == [Note.OUTSIDE]


def test_in_a_gap_of_the_metadata_log_the_log_files_speak() -> None:
    lost = CREATED._replace(offset=20, ts=30_000, event=Kind.UNKNOWN, leader=None, leader_epoch=None)
    again = CREATED._replace(offset=40, ts=50_000, event=Kind.SNAPSHOT, partition_epoch=9)
    within = SHRINK | {"ts": 40_000, "zk_version": 4}
    expected = {
        28_999: Note.NOT_WRITTEN, 29_000: Note.OUTSIDE, 40_000: Note.OUTSIDE, 51_000: Note.OUTSIDE,
        51_001: Note.LEFT_OUT,
    }  # fmt: skip
    found = notes(history(CREATED, lost, again), *(within | {"ts": ts} for ts in expected))
    assert dict(zip(expected, found, strict=True)) == expected
    assert notes(history(CREATED, again), within) == [Note.NOT_WRITTEN]


@pytest.mark.parametrize("version", [0, 7], ids=str)
@pytest.mark.parametrize(
    ("ends", "begins"),
    [(Kind.DELETED, Kind.CREATED), (Kind.UNKNOWN, Kind.CREATED), (Kind.UNKNOWN, Kind.SNAPSHOT)],
)
def test_what_is_behind_a_deletion_or_a_gap_is_told_apart_from_what_was_before(
    ends: str, begins: str, version: int
) -> None:
    """The number of a version may be one that there was before: behind a gap it may be a topic of the same name."""
    gone = CREATED._replace(offset=20, ts=30_000, event=ends, leader=None, leader_epoch=None)
    anew = CREATED._replace(
        offset=30, ts=40_000, event=begins, partition_epoch=version, isr=[4, 5], replicas=[4, 5], leader=4
    )
    shrunk = SHRUNK._replace(offset=31, ts=50_000, partition_epoch=version + 1, isr_old=[4, 5], isr=[4], leader=4)
    elected = line("elect", 10_100, replica=1, epoch=0, zk_version=0, isr=[1, 2, 3])
    later = elected | {"ts": 40_100, "replica": 4, "zk_version": version, "isr": [4, 5]}
    mine = SHRINK | {"broker": 4, "ts": 50_010, "zk_version": version + 1, "replica": 5, "isr_old": [4, 5], "isr": [4]}
    assign = line("assign", 40_100, replicas=[4, 5])
    wrong = {0: Note.CONTRADICTS, 7: Note.NOT_WRITTEN}[version]
    expected = [
        *((row, Note.AGREES) for row in (elected, SHRINK, later, mine, assign)),
        (later | {"isr": [4]}, Note.CONTRADICTS),
        (mine | {"epoch": 1}, Note.CONTRADICTS),
        (later | {"ts": 45_000, "zk_version": version + 2}, Note.NOT_WRITTEN),
        (later | {"ts": 10_100}, wrong),
        (mine | {"ts": 19_990}, wrong),
        *(
            (row, wrong if version == 0 else Note.LEFT_OUT)
            for row in (elected | {"ts": 45_000}, SHRINK | {"ts": 50_010})
        ),
    ]
    one = history(CREATED, SHRUNK, gone, anew, shrunk)
    assert notes(one, *(row for row, _ in expected)) == [note for _, note in expected]
    (filled,) = [row for row in one.rows if row["ev"] == "isr_shrink" and row["ts"] == 50_000]
    assert (filled["cu"], filled["leo"]) == (15_000, 9)


_GUESS = SHRINK | {"src": "inferred", "zk_version": 9}
_UNSEEN = SHRINK | {"zk_version": 9}
_ASSIGN = line("assign", 40_000, replicas=[9])
_LOST = CREATED._replace(offset=20, ts=30_000, event=Kind.UNKNOWN, leader=None, leader_epoch=None)
_DELETED = _LOST._replace(event=Kind.DELETED)
_NOTHING: tuple[Change, ...] = ()
#: changes besides the usual ones, of a log from 5 to 60 s; a line, when it was written -> what becomes of it
EDGES: list[tuple[tuple[Change, ...], Row, dict[int, str]]] = [
    (_NOTHING, _UNSEEN, {5_999: Note.OUTSIDE, 6_000: Note.NOT_WRITTEN, 59_000: Note.NOT_WRITTEN, 59_001: Note.OUTSIDE}),
    (_NOTHING, _GUESS, {4_999: Note.OUTSIDE, 5_000: Note.LEFT_OUT, 60_000: Note.LEFT_OUT, 60_001: Note.OUTSIDE}),
    (_NOTHING, SHRINK | {"epoch": None}, {8_999: Note.NOT_WRITTEN, 9_000: Note.AGREES, 40_000: Note.AGREES}),
    (_NOTHING, line("elect", 0, epoch=3, replica=1, isr=[1]), {40_000: Note.LEFT_OUT, 60_001: Note.OUTSIDE}),
    (_NOTHING, line("delete", 0), {40_000: Note.LEFT_OUT, 60_001: Note.OUTSIDE}),
    (_NOTHING, _ASSIGN, {5_000: Note.CONTRADICTS, 60_000: Note.CONTRADICTS, 60_001: Note.OUTSIDE}),
    (_NOTHING, _ASSIGN | {"src": "inferred"}, {40_000: Note.LEFT_OUT, 60_001: Note.OUTSIDE}),
    (_NOTHING, _ASSIGN | {"replicas": None}, {40_000: Note.LEFT_OUT}),
    ((_LOST,), _UNSEEN, {28_999: Note.NOT_WRITTEN, 29_000: Note.OUTSIDE, 40_000: Note.OUTSIDE}),
    ((_LOST,), _ASSIGN, {29_999: Note.CONTRADICTS, 30_000: Note.OUTSIDE}),
    ((_DELETED,), SHRINK, {31_000: Note.AGREES, 31_001: Note.NOT_WRITTEN}),
]


@pytest.mark.parametrize(("besides", "row", "expected"), EDGES)
def test_how_far_the_metadata_log_is_believed(besides: tuple[Change, ...], row: Row, expected: dict[int, str]) -> None:
    one = history(CREATED, SHRUNK, *(besides or (FENCED,)))
    found = notes(one, *(row | {"ts": ts} for ts in expected))
    assert dict(zip(expected, found, strict=True)) == expected


#: what a log file tells of a broker, where the metadata log has the end of broker 2 at 20 s
ALIVENESS = [
    ("broker_down", 2, {19_000: Note.AGREES, 21_000: Note.AGREES, 18_999: Note.LEFT_OUT, 21_001: Note.LEFT_OUT}),
    ("broker_down", 3, {20_000: Note.LEFT_OUT, 60_001: Note.OUTSIDE}),
    ("broker_up", 2, {20_000: Note.LEFT_OUT}),
]


@pytest.mark.parametrize(("ev", "replica", "expected"), ALIVENESS)
def test_ends_of_brokers_are_the_same_within_a_second(ev: str, replica: int, expected: dict[int, str]) -> None:
    one = OneHistory([(0, 60_000)])
    nowhere = {"topic": None, "partition": None}
    one.of_metadata(line("broker_down", 20_000, replica=2, src="metadata", **nowhere))
    found = notes(one, *(line(ev, ts, replica=replica, **nowhere) for ts in expected))
    assert dict(zip(expected, found, strict=True)) == expected


def test_a_broker_died_when_others_lost_their_connections_to_it() -> None:
    one = OneHistory([(0, 60_000)])
    one.of_metadata(line("broker_down", 20_000, topic=None, partition=None, replica=2, src="metadata"))
    fenced = line("broker_down", 20_040, topic=None, partition=None, replica=2, done=11_000)
    assert notes(one, fenced, fenced | {"ts": 40_000}) == [Note.AGREES, Note.LEFT_OUT]
    assert [row["done"] for row in one.rows] == [11_000]


@pytest.mark.parametrize("run", ["elr", "controllers"])
def test_nothing_contradicts_in_a_recorded_run_and_removals_have_their_times(run: str) -> None:
    changes = local.read(metadata_files([RUNS / run / "metadata"])[0])
    logged: dict[tuple[str, int], list[Row]] = {}
    for row in rows_of_logs(log_files([RUNS / run]), ZoneInfo("UTC")):
        if row["ev"] in COMPARED and "partition" in row:
            logged.setdefault((row["topic"], row["partition"]), []).append(dict.fromkeys(EMITTED) | row)
    removed, told = [], []
    for (topic, partition), of in changes.changes.items():
        teller = Teller(topic=topic, partition=partition, controllers=changes.controllers)
        for change in of:
            teller.feed(change)
        one = OneHistory([(span.first_ts, span.last_ts) for span in changes.inventory.spans])
        for values in teller.rows:
            one.of_metadata(dict(zip(EMITTED, values, strict=True)))
        told += notes(one, *logged.pop((topic, partition), []))
        removed += [row for row in one.rows if row["ev"] == "isr_shrink" and row["value"] == Cause.LEADER]
    assert not logged
    assert not set(told) & set(CONTRADICTIONS)
    assert removed
    assert all(row["cu"] is not None and row["cu"] <= row["ts"] for row in removed)
