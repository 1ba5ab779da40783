"""Findings in words: which there are, how they are ranked, and which rows each names."""

from __future__ import annotations

from typing import Any

import pytest

from broker_sim.replay.finding import Finding, Severity, Where, count, seconds, size
from broker_sim.replay.findings import find
from broker_sim.replay.report import figures
from broker_sim.replay.story import story
from tests.unit.replay.report import made_up


def findings(**changed: Any) -> list[Finding]:
    return find(made_up.summary(10), {**made_up.troubles(10), **changed})


def one(found: list[Finding], words: str) -> Finding:
    (finding,) = (f for f in found if words in f.text)
    return finding


def test_the_worst_stand_first_and_ranks_count_on() -> None:
    found = findings()
    assert [f.rank for f in found] == list(range(1, len(found) + 1))
    assert [f.severity for f in found] == sorted(f.severity for f in found)
    assert found[0].severity is Severity.CRITICAL and "Broker 3 was gone" in found[0].text


CASES = [  # words, table, filter
    ("no live leader", "windows", "window = 'offline'"),
    ("Replica 3 left and rejoined the ISR 12 times in 4 partitions", "flaps", "replica = 3 and cause = 'follower'"),
    ("Broker 1 as leader dropped several followers at once", "flaps", "leader = 1 and cause = 'leader'"),
    ("Broker 1 (rack r1) was behind 3% of all missing replicas' time: 1 h 0 min of 30 h 30 min", "absences",
     "replica = 1"),
    ("orders-0 flapped 12 times", "flaps", "topic = 'orders' and partition = 0"),
    ("still outside the ISR", "catch_up", "joined_ts is null"),
    ("it had to fetch 40.0 kB/s", "catch_up", "catch_up_ms > 10000 and joined_ts is not null"),
    ("1 reassignment did not finish: orders-0", "reassignments", "finish_ts is null"),
    ("2 original replicas left the ISR", "reassignments", "original_shrinks > 0"),
    ("became under-replicated 3 times in the 2 minutes in which others moved, 1 time in the ", "windows", ""),
    ("10.0 MB were copied, with 8 writes of partition states, 4 of them by leaders", "reassignments",
     "finish_ts is not null"),
    ("at the worst check 2 (900 ms, orders-3) of the 30.0 s", "measures",
     "measure = 'lag_headroom_ms' and value < 6000"),
    ("at 10000: 14 flaps", "what_if", "key = 'replica.lag.time.max.ms' and scope = 'all'"),
    ("at 1000000: 2 copies never; at 10000000: the slowest copy in 30.0 s. Below 4.0 MB/s some copy never finishes",
     "what_if", "key = 'throttle' and scope = 'all'"),
    ("1 line of the trace could not be used (1 torn)", "quarantine", ""),
]  # fmt: skip


@pytest.mark.parametrize(("words", "table", "where"), [pytest.param(*case, id=case[0][:50]) for case in CASES])
def test_a_finding_names_its_rows(words: str, table: str, where: str) -> None:
    finding = one(findings(), words)
    assert (finding.table, finding.filter) == (table, where)
    assert finding.as_row()["filter"] == where and (finding.rows > 0) is ("not moved" not in finding.text)


def test_nothing_happened() -> None:
    quiet = made_up.quiet_troubles(1)
    told = {**made_up.troubles(1), **quiet, "windows": {}}
    calm = {**made_up.summary(1), "quarantined": {}, "comparison": told["comparison"]}
    assert [f.text for f in find(calm, told)] == [
        "No partition was under-replicated.",
        "All 4 ISR changes that brokers wrote follow from the rules, to within 0 ms, and no other does.",
    ]


def test_without_fetches_it_is_said_how_long_replicas_were_outside_and_not_that_they_were_quick() -> None:
    leader = {"left_by": "leader", "slow": 0, "count": 3, "timed": 1, "max_ms": 800, "out_max_ms": 11_000}
    fenced = {"left_by": "controller", "slow": 0, "count": 4, "timed": 0, "out_max_ms": 26_500}
    found = findings(catch_up=[leader, fenced])
    assert "1 replica caught up, each within 800 ms" in one(found, "caught up, each").text
    assert "6 replicas came back into the ISR, after at most 26.5 s outside it" in one(found, "came back into").text
    assert not [f for f in findings(catch_up=[fenced]) if "caught up, each" in f.text]


def test_moves_that_finished_are_told_of_however_many_did_not() -> None:
    """The list of moves is short, and those that did not finish stand first in it."""
    told = made_up.troubles(10)
    of_all = {**told["reassigned"][0], "count": 43, "unfinished": 40}
    found = findings(reassigned=[of_all], reassignments=[told["reassignments"][0]] * 24)
    assert one(found, "40 reassignments did not finish: orders-0,").text.endswith(" and 35 more.")
    assert "3 reassignments finished; the longest took 1 min 0 s (orders-1)." in one(found, "finished; the").text
    assert not [f for f in findings(reassigned=[{**of_all, "count": 40}]) if "finished; the longest" in f.text]


def test_only_a_member_that_came_close_to_removal_is_named() -> None:
    found = findings(headroom=[{"replica": 2, "least_ms": 6_000, "worst": "orders-3", "near": 0}])
    assert not [f for f in found if "came close" in f.text]


def test_a_filter_quotes_what_it_must() -> None:
    assert Where("topic", value="it's").sql() == "topic = 'it''s'"


@pytest.mark.parametrize(
    ("n", "words"), [(None, "–"), (0, "0 B"), (999, "999 B"), (1_500_000, "1.5 MB"), (2e12, "2.0 TB")]
)
def test_size(n: float | None, words: str) -> None:
    assert size(n) == words


@pytest.mark.parametrize(("n", "words"), [(1, "1 row"), (0, "0 rows"), (100_000, "100,000 rows")])
def test_count(n: int, words: str) -> None:
    assert count(n, "row") == words


@pytest.mark.parametrize(("ms", "words"), [(None, "–"), (85, "85 ms"), (4_200, "4.2 s"), (185_000, "3 min 5 s"),
                                           (7_800_000, "2 h 10 min"), (5_498 * 3_600_000, "229 d 2 h")])  # fmt: skip
def test_seconds(ms: int | None, words: str) -> None:
    assert seconds(ms) == words


def test_moves_are_blamed_only_where_there_are_other_minutes_and_those_are_better() -> None:
    def told(**sums: int) -> list[Severity]:
        found = findings(disturbed=[{"during": 6, "otherwise": 1, "moving_minutes": 2, **sums}])
        return [f.severity for f in found if "that were not moved" in f.text]

    assert told() == [Severity.WARNING]
    assert told(otherwise=300) == [Severity.INFO], "they do as badly at other times"
    assert told(moving_minutes=made_up.SPAN // 60_000 + 1) == [], "there is nothing to compare with"


# -- incidents ---------------------------------------------------------------------------------------------------------


def short(**columns: Any) -> dict[str, Any]:
    return {**made_up.incident()["short"], **columns}


def offline(**columns: Any) -> dict[str, Any]:
    return {**made_up.incident()["offline"], **columns}


STORIES = [
    (
        "a killed broker: who, when, whom it hit, until when",
        {},
        "Broker 3 was gone from 22:14:20.0 to 22:14:25.0 UTC (5.0 s): 1 partition that it led was without a leader for "
        "up to 4.2 s; 4 partitions lacked its replica until 22:14:30.0.",
        Severity.CRITICAL,
    ),
    (
        "a broker that never came back",
        {"to_ts": None, "short": short(partitions=2, until_ts=None, open=2)},
        "Broker 3 was gone from 22:14:20.0 to the end UTC: 1 partition that it led was without a leader for up to "
        "4.2 s; 2 partitions lacked its replica, 2 still at the end.",
        Severity.CRITICAL,
    ),
    (
        "a stop in order hurts nobody for long: a warning at most",
        {"kind": "stopped", "offline": {"windows": 0, "partitions": 0, "longest_ms": 0, "open": 0}},
        "Broker 3 was stopped in order and away from 22:14:20.0 to 22:14:25.0 UTC (5.0 s): no partition was without a "
        "leader; 4 partitions lacked its replica until 22:14:30.0.",
        Severity.WARNING,
    ),
    (
        "a broker that fell behind",
        {"kind": "behind", "offline": None, "short": short(partitions=10)},
        "Broker 3 fell behind: from 22:14:20.0 UTC on leaders dropped it from the ISR of 10 partitions, and was back "
        "in all of them at 22:14:25.0. It ran, but fetched too little: look at its host and its links.",
        Severity.WARNING,
    ),
    (
        "a broker that fell behind for a moment",
        {"kind": "behind", "offline": None, "to_ts": made_up.START + 60_021, "short": short(partitions=1)},
        "Broker 3 fell behind: from 22:14:20.0 UTC on leaders dropped it from the ISR of 1 partition, and was back "
        "in all of them at 22:14:20.0. It ran, but fetched too little: look at its host and its links.",
        Severity.INFO,
    ),
    (
        "a broker whose replication was paused",
        {"kind": "paused", "offline": None, "short": short(partitions=10)},
        "Broker 3's replication was paused by a fault from 22:14:20.0 to 22:14:25.0 UTC (5.0 s): 10 partitions lacked "
        "its replica until 22:14:30.0.",
        Severity.WARNING,
    ),
    (
        "a pause that no leader noticed, of some partitions, to the end",
        {
            "kind": "paused",
            "topic": "t-0,u",
            "offline": None,
            "to_ts": None,
            "short": short(rows=0, partitions=0, longest_ms=0, until_ts=None),
        },
        "Broker 3's replication of t-0, u was paused by a fault from 22:14:20.0 to the end UTC: no leader dropped it "
        "from an ISR.",
        Severity.INFO,
    ),
    (
        "a long way out",
        {"kind": "shutting-down", "offline": None, "short": None},
        "Broker 3 was shutting down in order from 22:14:20.0 to 22:14:25.0 UTC (5.0 s): it hands over its leaders "
        "before it ends.",
        Severity.INFO,
    ),
    (
        "a restart that nobody felt",
        {"offline": offline(longest_ms=21), "short": short(longest_ms=400)},
        "Broker 3 was gone from 22:14:20.0 to 22:14:25.0 UTC (5.0 s): 1 partition that it led was without a leader for "
        "up to 21 ms; 4 partitions lacked its replica until 22:14:30.0.",
        Severity.INFO,
    ),
    (
        "a controller that follows another",
        {"kind": "no-controller", "who": 902, "before": 901, "epoch": 2},
        "Controller 902 took office at 22:14:25.0 UTC (controller epoch 2). 901 had decided last at 22:14:20.0: no "
        "controller for 5.0 s at most.",
        Severity.WARNING,
    ),
    (
        "a deleted topic is no trouble",
        {"kind": "deleted", "who": -1, "topic": "old", "partitions": 4},
        "Topic old was deleted at 22:14:20.0 UTC (4 partitions).",
        Severity.INFO,
    ),
]


@pytest.mark.parametrize(("columns", "text", "severity"), [pytest.param(*s[1:], id=s[0]) for s in STORIES])
def test_an_incident_is_one_sentence(columns: dict[str, Any], text: str, severity: Severity) -> None:
    (finding,) = story({}, {"incidents": [made_up.incident(**columns)]})
    assert (finding.text, finding.severity) == (text, severity)


def test_a_quick_way_out_is_in_the_lanes_alone() -> None:
    row = made_up.incident(kind="shutting-down", to_ts=made_up.START + 60_900, offline=None, short=None)
    assert list(story({}, {"incidents": [row]})) == []
    (lane,) = figures.lanes(figures.Span(made_up.START, made_up.START + 100_000), [3], [row])
    assert [(p.look, p.x, p.width) for p in lane["pieces"]] == [("shutting-down", 60_000, 900)]


def test_windows_of_an_incident_are_not_told_again() -> None:
    told = {**made_up.troubles(1), "incidents": [made_up.incident()], "windows": {"offline": made_up.window(count=1)}}
    assert not [f for f in find(made_up.summary(1), told) if "no live leader" in f.text]
    more = {**told, "windows": {"offline": made_up.window(count=2)}}
    assert one(find(made_up.summary(1), more), "no live leader").severity is Severity.CRITICAL


def test_what_lasts_for_milliseconds_is_no_warning() -> None:
    windows = {"under_replicated": made_up.window(total_ms=21)}
    found = find(made_up.summary(1), {**made_up.troubles(1), "incidents": [], "windows": windows})
    assert one(found, "fewer in-sync replicas than assigned").severity is Severity.INFO


def test_what_is_offline_at_the_end_is_the_end_of_the_recording_and_no_outage() -> None:
    windows = {"offline": made_up.window(count=9, open=8, closed_ms=500, closed_longest_ms=500, closed_partitions=1)}
    found = find(made_up.summary(1), {**made_up.troubles(1), "incidents": [], "windows": windows})
    assert one(found, "The trace ends with 8 partitions without a live leader").severity is Severity.INFO
    rest = one(found, "had no live leader")
    assert rest.text.startswith("1 partition had no live leader") and "500 ms in sum" in rest.text
    assert "still at the end" not in rest.text


def did(words: str, after_ms: int = -400) -> dict[str, Any]:
    return {"ts": made_up.START + 60_000 + after_ms, "words": words}


CAUSES = [
    ("a kill", {}, [did("kill broker 3")], "22:14:19.6 `kill broker 3`"),
    ("the nearest of two", {}, [did("kill broker 3", -2_900), did("fault f1 kill of broker 2, 3")],
     "22:14:19.6 `fault f1 kill of broker 2, 3`"),
    ("another broker's", {}, [did("kill broker 33"), did("kill broker 2")], None),
    ("too long before", {}, [did("kill broker 3", -3_100)], None),
    ("a start is no cause", {}, [did("start broker 3")], None),
    ("an end is no cause", {}, [did("fault f1 kill of broker 3 ended")], None),
    ("of a pause", {"kind": "paused", "topic": None}, [did("fault f1 pause_replication of all brokers")],
     "22:14:19.6 `fault f1 pause_replication of all brokers`"),
    ("its rack", {}, [did("fault f1 kill of rack r1 for 30s")], "22:14:19.6 `fault f1 kill of rack r1 for 30s`"),
    ("another rack", {}, [did("fault f1 kill of rack r10")], None),
    ("of a controller that was followed", {"kind": "no-controller", "who": 902, "before": 901, "epoch": 2},
     [did("kill controller 902"), did("kill controller 901")], "22:14:19.6 `kill controller 901`"),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "marks", "cause"), [c[1:] for c in CAUSES], ids=[c[0] for c in CAUSES])
def test_an_incident_names_what_somebody_did(columns: dict[str, Any], marks: list[Any], cause: str | None) -> None:
    racks = [{"replica": 3, "rack": "r1"}]
    (finding,) = story({}, {"incidents": [made_up.incident(**columns)], "marks": marks, "racks": racks})
    assert finding.text.endswith(f" Somebody did this: {cause}.") == (cause is not None)
    assert ("Somebody" in finding.text) == (cause is not None)


def test_what_somebody_did_is_a_finding() -> None:
    marks = [did(f"kill broker {n}", 1_000 * n) for n in range(10)]
    (finding,) = (f for f in findings(marks=marks) if "somebody did something" in f.text)
    assert finding.text.startswith("10 times somebody did something to the cluster: 22:14:20.0 `kill broker 0`; ")
    assert finding.text.endswith("`kill broker 7`; and 2 more.")
    assert (finding.from_ts, finding.to_ts) == (marks[0]["ts"], marks[9]["ts"])
    assert not [f for f in findings() if "somebody did something" in f.text]


def test_of_a_rack_that_nothing_tells_any_is_taken() -> None:
    (finding,) = story({}, {"incidents": [made_up.incident()], "marks": [did("fault f1 kill of rack b for 30s")]})
    assert finding.text.endswith("Somebody did this: 22:14:19.6 `fault f1 kill of rack b for 30s`.")
