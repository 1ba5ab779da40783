"""The figures of a recorded KRaft run: what of the truth is told, and what is told that is not true."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from broker_sim.replay.metadata_log.causes import Cause
from broker_sim.replay.metadata_log.fold import Change, Kind
from broker_sim.replay.validation.kraft import KraftFigures, is_kraft, kraft_figures, kraft_section

CREATED = Change(
    10, 10_000, 1, Kind.CREATED, Cause.CREATION, 1, 0, 0, None, [1, 2, 3], [1, 2, 3], [], [], [], [], False, None, True
)
SHRUNK = CREATED._replace(
    offset=11, ts=20_000, event=Kind.CHANGED, cause=Cause.LEADER, partition_epoch=1, isr_old=[1, 2, 3], isr=[2, 1]
)
ELECTED = SHRUNK._replace(
    offset=12, ts=30_000, cause=Cause.FENCING, partition_epoch=2, leader=2, leader_epoch=1, isr_old=[1, 2], isr=[2]
)
BACK = ELECTED._replace(offset=13, ts=40_000, cause=Cause.LEADER, partition_epoch=3, isr_old=[2], isr=[2, 1])
AGAIN = CREATED._replace(offset=20, ts=60_000)
SHRUNK_AGAIN = SHRUNK._replace(offset=21, ts=70_000)
DELETED = CREATED._replace(offset=19, ts=50_000, event=Kind.DELETED)
ALL = [CREATED, SHRUNK, ELECTED, BACK, DELETED, AGAIN, SHRUNK_AGAIN]


def truth(change: Change, **otherwise: Any) -> str:
    names = ("leader", "leader_epoch", "partition_epoch", "isr", "replicas", "adding", "removing", "offset")
    row = {name: getattr(change, name) for name in names} | {"topic": "t", "partition": 0, "ms": change.ts}
    return json.dumps(row | otherwise)


def line(change: Change, ev: str, **otherwise: Any) -> dict[str, Any]:
    """As a log file tells of it, half a second earlier."""
    who = "replica" if ev == "elect" else "broker"
    row = {"topic": "t", "partition": 0, "ev": ev, "ts": change.ts - 500, who: change.leader, "isr": change.isr}
    return row | {"epoch": change.leader_epoch, "zk_version": change.partition_epoch} | otherwise


VERSIONS = [change for change in ALL if change.event != Kind.DELETED]
TRUTH = [truth(change) for change in VERSIONS]
LINES = [
    line(CREATED, "leader"), line(SHRUNK, "isr_shrink"), line(ELECTED, "elect"), line(BACK, "isr_expand"),
    line(AGAIN, "leader"), line(SHRUNK_AGAIN, "isr_shrink"),
]  # fmt: skip
#: 6 versions, of which 4 have other members than the one before; leaders made 3 of them
WHOLE = {"versions": 6, "exact": 6, "invented": 0, "changes": 4, "exact_changes": 4}
LOGGED = {"by_leaders": 3, "found": 3, "known_changes": 3, "log_invented": 0}
NONE = dict.fromkeys(LOGGED, 0)


def figures(lines: list[str], changes: list[Change], logged: list[dict[str, Any]] | None) -> dict[str, Any]:
    found = asdict(kraft_figures("r", lines, {("t", 0): changes}, logged))
    assert found.pop("run") == "r"
    return found


#: what is wrong in the metadata log as it was read -> how the figures differ
READ: list[tuple[list[Change], dict[str, int]]] = [
    (ALL, {}),
    ([c for c in ALL if c is not BACK], {"exact": 5, "exact_changes": 3}),
    ([*ALL, BACK._replace(offset=99)], {"invented": 1}),
    ([BACK._replace(ts=1) if c is BACK else c for c in ALL], {"exact": 5, "exact_changes": 3}),
    ([AGAIN._replace(replicas=[1]) if c is AGAIN else c for c in ALL], {"exact": 5}),
]


@pytest.mark.parametrize(("changes", "differs"), READ)
def test_what_the_metadata_log_tells(changes: list[Change], differs: dict[str, int]) -> None:
    assert figures(TRUTH, changes, None) == WHOLE | NONE | differs
    assert figures(TRUTH[::-1], changes[::-1], None) == WHOLE | NONE | differs


#: lines of log files besides, or in place of, those that tell all -> how the figures differ
SAID: list[tuple[list[dict[str, Any]], dict[str, int]]] = [
    (LINES, {}),
    (LINES[::-1], {}),
    ([*LINES, *LINES], {}),
    ([], {"found": 0, "known_changes": 0}),
    ([each for each in LINES if each["ev"] != "isr_expand"], {"found": 2, "known_changes": 2}),
    # another line tells the state, and not who made it
    ([*LINES[:3], line(BACK, "leader"), *LINES[4:]], {"known_changes": 2}),
    # the controller's change, told as one of the leader
    ([*LINES, line(ELECTED, "isr_shrink")], {"log_invented": 1}),
    ([*LINES, line(BACK, "isr_expand", isr=[1])], {"log_invented": 1}),
    ([*LINES, line(BACK, "isr_expand", epoch=9)], {"log_invented": 1}),
    ([*LINES, line(BACK, "isr_expand", broker=1)], {"log_invented": 1}),
    ([*LINES, line(BACK, "isr_expand", zk_version=9)], {"log_invented": 1}),
    # of the topic before: versions begin anew with each
    ([*LINES, line(BACK, "isr_expand", ts=70_000)], {"log_invented": 1}),
    # what tells of no version, or of one that was refused
    ([*LINES, *(line(BACK, "isr_expand", **{"isr": [1]} | said) for said in ({"err": 95}, {"zk_version": None}))], {}),
    ([*LINES, line(BACK, "fetch", isr=[1]), {"ev": "leader", "zk_version": 3}], {}),
]  # fmt: skip


@pytest.mark.parametrize(("logged", "differs"), SAID)
def test_what_log_files_tell(logged: list[dict[str, Any]], differs: dict[str, int]) -> None:
    assert figures(TRUTH, ALL, logged) == figures(TRUTH[::-1], ALL[::-1], logged) == WHOLE | LOGGED | differs


@pytest.mark.parametrize(
    ("text", "is_one"), [(TRUTH[0], True), ('{"zk_version": 1}', False), ("{", False), ("3", False)]
)
def test_a_truth_of_a_kraft_cluster_has_epochs_of_partitions(text: str, is_one: bool) -> None:
    assert is_kraft(text) is is_one


def test_the_section_of_a_page_has_each_run_and_their_sum() -> None:
    a = KraftFigures(
        run="a", versions=5, exact=4, invented=1, changes=3, exact_changes=2, by_leaders=9, found=8, known_changes=7,
        log_invented=6,
    )  # fmt: skip
    b = KraftFigures(run="b", versions=10, exact=10, invented=0, changes=20, exact_changes=20)
    rows = [text for text in "\n".join(kraft_section([a, b])).splitlines() if text.startswith("| ")]
    assert rows == [
        "| run | versions | exact | invented | changes | exact |",
        "| a | 5 | 4 | 1 | 3 | 2 |",
        "| b | 10 | 10 | 0 | 20 | 20 |",
        "| **all** | 15 | 14 | 1 | 23 | 22 |",
        "| run | by leaders | found | known | invented |",
        "| a | 9 | 8 | 7 | 6 |",
        "| **all** | 9 | 8 | 7 | 6 |",
    ]
    assert list(kraft_section([])) == []
