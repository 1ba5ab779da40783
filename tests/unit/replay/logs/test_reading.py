"""From lines to rows: time zones, records of many lines, pairs of lines, copies of files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker_sim.replay.errors import ReplayRefused
from broker_sim.replay.ingest import job as ingest_job
from broker_sim.replay.ingest.job import Source
from broker_sim.replay.logs.facts import Fact, What
from broker_sim.replay.logs.files import FileKind, log_files
from broker_sim.replay.logs.lines import BadTime, Clock, head_of
from broker_sim.replay.logs.reader import LogReader, Place
from broker_sim.replay.logs.ticks import Ticks
from broker_sim.replay.logs.waiting_rows import EMITTED
from broker_sim.replay.logs.weave import Weave

UTC = ZoneInfo("UTC")
NOON = 1_598_961_600_000  # 2020-09-01 12:00:00 UTC


def at(seconds: float, text: str, *, logger: str = "kafka.cluster.Partition", level: str = "INFO") -> str:
    clock = f"2020-09-01 12:{int(seconds) // 60:02d}:{int(seconds) % 60:02d},{round(seconds * 1000) % 1000:03d}"
    return f"[{clock}] {level} {text}" + (f" ({logger})" if logger else "")


def read(lines: Sequence[str], *, broker: int | None = 1, file: str = "server.log") -> tuple[list[Fact], LogReader]:
    reader = LogReader(UTC, broker)
    facts = [fact for n, line in enumerate(lines) for fact in reader.feed(line, Place(file, n))]
    return [*facts, *reader.finish(Place(file, len(lines)))], reader


def woven(facts: Sequence[Fact], **known: Any) -> list[dict[str, Any]]:
    weave = Weave(**known)
    for fact in sorted(facts, key=lambda f: (f.at_us, f.file or "", f.line or 0, f.sub)):
        weave.feed(fact)
    weave.finish()
    return [dict(zip(EMITTED, row, strict=True)) for row in weave.rows]


def of(row: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


# -- lines ------------------------------------------------------------------------------------------------------------


#: Where an hour, or half of one, is passed twice, and when that begins for the second time.
TWICE = {"America/New_York": 1_793_512_800, "Europe/Berlin": 1_792_890_000, "Australia/Lord_Howe": 1_775_314_800}


@settings(max_examples=20)
@given(
    st.sampled_from(sorted(TWICE)), st.integers(-3_700, -1), st.lists(st.sampled_from([0, 1, 600, 1_700]), max_size=12)
)
@example("America/New_York", -3_000, [600, 0, 1_700, 700, 600, 0, 1_700])
@example("Australia/Lord_Howe", -1_200, [600, 600, 600, 600, 600])
def test_lines_have_their_times_also_in_the_hour_that_is_passed_twice(zone: str, begin: int, gaps: list[int]) -> None:
    """Unless nothing was written for nearly as long. Of lines that go back by a few seconds, too: threads overtake."""
    clock = Clock(ZoneInfo(zone))
    for offset in accumulate(gaps, initial=begin):
        for at_s in (TWICE[zone] + offset, TWICE[zone] + offset - 7):
            local = datetime.fromtimestamp(at_s, ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S")
            head = head_of(f"[{local},110] INFO hello (a.B)", clock)
            assert head is not None and head.ts == at_s * 1000 + 110, local


@pytest.mark.parametrize(
    "line",
    [
        "[2020-09-01 12:00:00,110] INFO hello (a.B)",
        "2020-09-01T12:00:00.110 INFO hello (a.B)",
        "kafka-1  | [2020-09-01 12:00:00,110] INFO hello (a.B)",
    ],
)
def test_heads(line: str) -> None:
    head = head_of(line, Clock(UTC))
    assert head is not None and (head.ts, head.level, head.text, head.logger) == (NOON + 110, "INFO", "hello", "a.B")


def test_what_is_no_head() -> None:
    assert head_of("\tat java.lang.Thread.run(Thread.java:840)", Clock(UTC)) is None
    with pytest.raises(BadTime):
        head_of("[2020-13-41 12:00:00,110] INFO hello (a.B)", Clock(UTC))


@pytest.mark.parametrize(
    "line",
    [
        "[2020-09-01 12:00:00,110] INFO hello (a.B)",
        "[2020-09-01 12:00:00,110] WARN   hello (of all) (a.B)  ",
        "[2020-09-01 12:00:00,110] INFO  (a.B)",
        "[2020-09-01 12:00:00,110] INFO (a.B)",
        "[2020-09-01 12:00:00,110] INFO hello (no logger)",
        "[2020-09-01 12:00:00,110] INFO torn (a.",
        "[2020-09-01 12:00:00,110] INFO",
        "[2020-09-01 12:00:00,110] INFO ",
        "[2020-09-01 12:00:00,110] OFTEN hello (a.B)",
        "[2020-09-01 12:00:00,110] info hello (a.B)",
        "[2020-09-01 12:00:00,1x0] INFO hello (a.B)",
        "[2020-09-01 12:00:00,\u00b2\u00b2\u00b2] INFO hello (a.B)",
    ],
)
def test_a_second_that_is_known_is_read_the_same(line: str) -> None:
    clock = Clock(UTC)
    head_of("[2020-09-01 12:00:00,001] INFO one before (a.B)", clock)
    assert head_of(line, clock) == head_of(line, Clock(UTC))


def test_a_dump_of_settings_takes_the_time_of_its_record() -> None:
    dump = ["\treplica.lag.time.max.ms = 5000", "\tport = 9092", " (kafka.server.KafkaConfig)"]
    facts, _ = read([at(1, "KafkaConfig values: ", logger=""), *dump])
    assert [(f.at_us, f.key, f.value) for f in facts] == [((NOON + 1000) * 1000, "replica.lag.time.max.ms", "5000")]
    fetches = ["\treplica.fetch.max.bytes = 65536", "\treplica.fetch.response.max.bytes = 131072"]
    facts, _ = read([at(1, "KafkaConfig values: ", logger=""), *fetches])
    assert [f.value for f in facts] == ["65536", "131072"]
    # A part that begins within the dump: the settings take the time of the record that comes next.
    facts, _ = read([*dump, at(2, "[LogDirFailureHandler]: Starting")])
    assert [(f.what, f.at_us) for f in facts] == [("config", (NOON + 2000) * 1000), ("start", (NOON + 2000) * 1000)]


def test_bad_lines_are_told_of() -> None:
    torn = at(1, "[Partition orders-7 broker=1] ISR updated to 1,2  and version updated to 4", logger="")
    strange = at(1, "[Partition orders-7 broker=1] ISR updated to all")
    no_time = "[2020-09-41 12:00:00,110] INFO [Partition orders-7 broker=1] Expanding ISR from 1 to 1,2 (x)"
    _, reader = read([torn, strange, no_time])
    assert [(bad.reason, bad.line) for bad in reader.bad] == [
        ("torn", torn),
        ("unknown_text", strange),
        ("bad_time", no_time),
    ]
    _, reader = read([at(1, "[LogDirFailureHandler]: Starting")], broker=None)
    assert [bad.reason for bad in reader.bad] == ["unknown_broker"]


# -- pairs of lines ---------------------------------------------------------------------------------------------------

LEADS = (
    "[Broker id=1] Leader orders-7 with topic id None starts at leader epoch 6 from offset 5000 with partition epoch "
    "40, high watermark 4980, ISR [1,2,3], adding replicas [] and removing replicas [] . Previous leader Some(1) and "
    "previous leader epoch was 5."
)
SHRINKS = (
    "[Partition orders-7 broker=1] Shrinking ISR from 1,2,3 to 1. Leader: (highWatermark: 1000, endOffset: 2000). Out "
    "of sync replicas: (brokerId: 2, endOffset: 999, lastCaughtUpTimeMs: 5) (brokerId: 3, endOffset: 1000, "
    "lastCaughtUpTimeMs: 6)."
)


def updated(isr: str, version: int) -> str:
    return f"[Partition orders-7 broker=1] ISR updated to {isr}  and version updated to {version}"


def test_a_shrink_and_two_expansions_of_39() -> None:
    facts, _ = read([at(0, LEADS), at(1, SHRINKS), at(1.02, updated("1", 41)), at(2, updated("1,3", 42))])
    _, two, three, back = woven(facts)
    names = ("ev", "replica", "isr_old", "isr", "zk_version", "epoch", "cu", "err", "src")
    assert of(two, *names) == ("isr_shrink", 2, [1, 2, 3], [1], 41, 6, 5, 0, "log")
    assert of(three, "replica", "cu", "ts", "done") == (3, 6, NOON + 1000, NOON + 1020)
    assert of(back, *names) == ("isr_expand", 3, [1], [1, 3], 42, 6, None, 0, "log")
    assert [row["seq"] for row in (two, three, back)] == sorted({row["seq"] for row in (two, three, back)})


def test_an_attempt_that_nothing_follows_was_refused() -> None:
    follows = (
        "[Broker id=1] Follower orders-7 starts at leader epoch 7 from offset 5000 with partition epoch 41 and high "
        "watermark 4980. Current leader is 2. Previous leader Some(2) and previous leader epoch was 7."
    )
    facts, _ = read([at(0, LEADS), at(1, SHRINKS), at(1.5, follows)])
    assert [of(row, "ev", "err", "src") for row in woven(facts)[1:3]] == [("isr_shrink", 95, "inferred")] * 2


def test_before_24_an_attempt_counts_unless_it_is_refused() -> None:
    lines = [
        at(1, "[Partition orders-7 broker=1] Shrinking ISR from 1,2,3 to 1,2"),
        at(2, "[Partition orders-7 broker=1] Expanding ISR from 1,2 to 1,2,3"),
        at(
            2.01,
            "[Partition orders-7 broker=1] Cached zkVersion [40] not equal to that in zookeeper, skip updating ISR",
        ),
    ]
    facts, _ = read(lines)
    told = [of(row, "ev", "replica", "err") for row in woven(facts, writes_unsaid=frozenset({1}))]
    assert told == [("isr_shrink", 3, 0), ("isr_expand", 3, 95)]


def test_a_raised_epoch_carries_the_isr_on() -> None:
    bump = at(2, "[Controller id=1] Updated leader epoch for partition orders-7 to 7, zkVersion=42")
    facts, _ = read([at(0, LEADS), at(1, SHRINKS), at(1.02, updated("1", 41)), bump])
    row = woven(facts)[-1]
    assert of(row, "ev", "epoch", "zk_version", "isr", "replica", "src") == ("elect", 7, 42, [1], 1, "inferred")


def test_a_leader_gets_the_replicas_of_the_assignment_even_when_clocks_differ() -> None:
    assigned = (
        "[Controller id=2] Successfully updated assignment of partition orders-7 to "
        "ReplicaAssignment(replicas=1,2,3,4, addingReplicas=, removingReplicas=)"
    )
    facts, _ = read([at(0, LEADS), at(0.9, assigned)])
    assert woven(facts)[0]["replicas"] == [1, 2, 3, 4]


def test_copies_of_a_file_change_nothing() -> None:
    lines = [
        at(0, LEADS),
        at(1, SHRINKS),
        at(1, updated("1", 41)),
        at(1, updated("1,3", 42)),
        at(2, updated("1,2,3", 43)),
    ]
    whole, _ = read(lines, file="server.log")
    part, _ = read(lines[1:4], file="copy/server.log")
    end, _ = read(lines[2:], file="server.log.old")
    once, twice = woven(whole), woven([*part, *whole, *end])
    assert [{**row, "file": None} for row in once] == [{**row, "file": None} for row in twice]


# -- ticks ------------------------------------------------------------------------------------------------------------


def test_requests_without_a_start_tell_of_no_ticks() -> None:
    """Logs may begin in the middle of a process: the files before are rotated away."""
    ticks = Ticks()
    ticks.feed(Fact(1, NOON * 1000, What.ANSWERED, ts=NOON + 60_000))
    assert list(ticks.times()) == []


def test_ticks_come_from_the_start_the_shrinks_and_the_silences() -> None:
    ticks = Ticks()

    def feed(ms: int, what: str, **columns: Any) -> None:
        ticks.feed(Fact(1, (NOON + ms) * 1000, what, **columns))

    feed(0, What.CONFIG, key="replica.lag.time.max.ms", value="4000")
    feed(0, What.CONFIG, key="replica.lag.time.max.ms", value="²")
    feed(40, What.START)
    feed(100, What.ANSWERED, ts=NOON + 5000)
    feed(4010, What.SHRINKING)
    feed(4012, What.SHRINKING)
    feed(9500, What.ANSWERED, ts=NOON + 11_000)
    # The shrinks tell that a check was at 10, not at 40. From 5000 on the process stood: what it missed runs at 9500.
    assert [ms - NOON for ms in ticks.times()] == [10, 2010, 4010, 9500, 9515, 10_010]


# -- files ------------------------------------------------------------------------------------------------------------


def test_whose_a_file_is(tmp_path: Path) -> None:
    def put(name: str, *lines: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")

    plain = at(1, "Kafka version: 3.9.1", logger="a.B")
    put("host-a/server.log", at(1, "[KafkaServer id=3] started"))
    put("host-a/kafka-request.log.1", plain)
    put("broker-7/server.log", plain)
    put("all/broker2-server.log", plain)
    put("lost/server.log", plain)
    put("raft/server.log", at(1, "[RaftManager nodeId=5] Completed transition to Unattached"))
    put("quorum/controller.log", at(1, "[Controller 6] Becoming the active controller at epoch 1"))
    put("2024-06-02/server.log", plain)
    put("all/kafka-2024-06-02-08.log", plain)
    put("all/kafka-3-20240602.log", plain)
    put("given/server.log", plain)
    put("notes/readme.txt", "no log at all")
    (tmp_path / "notes/empty.log").touch()
    files = log_files([tmp_path], brokers=[("*/given/*", 9)])
    told = {str(f.path.relative_to(tmp_path)): (f.kind, f.broker, f.broker_from) for f in files}
    assert told == {
        "host-a/server.log": (FileKind.LOG, 3, "content"),
        "host-a/kafka-request.log.1": (FileKind.LOG, 3, "folder"),
        "broker-7/server.log": (FileKind.LOG, 7, "folder"),
        "all/broker2-server.log": (FileKind.LOG, 2, "name"),
        "lost/server.log": (FileKind.LOG, None, None),
        "raft/server.log": (FileKind.LOG, 5, "content"),
        "quorum/controller.log": (FileKind.LOG, 6, "content"),
        "2024-06-02/server.log": (FileKind.LOG, None, None),
        "all/kafka-2024-06-02-08.log": (FileKind.LOG, None, None),
        "all/kafka-3-20240602.log": (FileKind.LOG, 3, "name"),
        "given/server.log": (FileKind.LOG, 9, "given"),
        "notes/readme.txt": (FileKind.OTHER, None, None),
        "notes/empty.log": (FileKind.EMPTY, None, None),
    }
    with pytest.raises(ReplayRefused, match="no Kafka log in"):
        log_files([tmp_path / "notes"])


def test_files_are_looked_for_by_the_name_that_spark_tells(tmp_path: Path) -> None:
    """Spark takes `..` out of a path; a file that kept it would be of no known broker, and of no known zone."""
    (tmp_path / "b1").mkdir()
    (tmp_path / "b1/server.log").write_text(at(1, "[KafkaServer id=1] started") + "\n")
    (tmp_path / "b1/broker-1-5.jsonl").write_text("{}\n")
    there = tmp_path / "b1" / ".." / "b1"
    logs = ingest_job.look(Source(kafka_logs=(there,), only=("*.log",))).logs
    assert [log.path for log in logs] == [tmp_path / "b1/server.log"]
    assert ingest_job.look(Source(traces=(there,))).traces == (tmp_path / "b1/broker-1-5.jsonl",)


# -- deaths, deletions, and starts -----------------------------------------------------------------------------------

FETCHER = "[ReplicaFetcher replicaId=1, leaderId=2, fetcherId=0]"
CLIENT = "org.apache.kafka.clients.NetworkClient"


def lost(seconds: float) -> str:
    return at(seconds, f"{FETCHER} Node 2 disconnected.", logger=CLIENT)


def expired(seconds: float, broker: int = 2) -> str:
    text = f"[Controller id=1] Newly added brokers: , deleted brokers: {broker}, all live brokers: 1,3"
    return at(seconds, text, logger="kafka.controller.KafkaController")


@pytest.mark.parametrize(
    ("why", "lines", "died"),
    [
        ("others lost their connections to it, again and again", [lost(2), lost(3), lost(6), expired(8)], 2),
        ("nobody had one", [expired(8)], None),
        ("a connection that was lost long before is another matter", [lost(2), lost(20), expired(24)], 20),
        ("too long ago for any session", [lost(2), expired(70)], None),
        ("of another broker", [lost(2), expired(8, broker=3)], None),
    ],
)
def test_a_broker_died_when_others_lost_it_not_when_its_session_ended(
    why: str, lines: list[str], died: float | None
) -> None:
    (row,) = [row for row in woven(read(lines)[0]) if row["ev"] == "broker_down"]
    assert row["done"] == (None if died is None else NOON + died * 1000), why


def test_the_deletion_of_topics_is_told_topic_by_topic() -> None:
    text = "[Topic Deletion Manager 1] Handling deletion for topics a,b-1"
    facts, reader = read([at(5, text, logger="kafka.controller.TopicDeletionManager")])
    assert [(f.what, f.topic, f.partition) for f in facts] == [("delete", "a", None), ("delete", "b-1", None)]
    assert not reader.bad
    (row,) = woven(facts[:1])
    assert of(row, "ev", "topic", "partition", "role") == ("delete", "a", None, "controller")


def test_a_start_stands_before_its_first_tick_though_its_line_comes_after() -> None:
    lines = [
        at(1, "Evaluating ISR list of partitions to see which replicas can be removed from the ISR", level="TRACE",
           logger="kafka.server.ReplicaManager").replace("TRACE ", "TRACE [ReplicaManager broker=1] "),
        at(1.017, "[LogDirFailureHandler]: Starting", logger="kafka.server.ReplicaManager$LogDirFailureHandler"),
    ]  # fmt: skip
    assert [row["ev"] for row in sorted(woven(read(lines)[0]), key=lambda row: row["seq"])] == ["start", "tick"]
