"""What the line of a leadership lacks, and who tells of it; nothing of that is another topic's."""

from __future__ import annotations

from typing import Any

import pytest

from broker_sim.replay.logs.facts import What
from tests.unit.replay.logs.made_facts import Told, follows, leads, of, row, state, updated, woven

#: what is told besides the bare line of a leadership in epoch 1 at 2 s -> its replicas, ISR, and what else differs
_OWN = of(1, What.LED, epoch=1, replica=1, isr=[1, 4], replicas=[1, 4], adding=[4], removing=[], zk_version=8)
_ASKED: dict[str, Any] = {"replicas": [1, 4], "isr": [1, 4], "adding": [4], "removing": [], "zk_version": 8}
_ELECTED: dict[str, Any] = {"replicas": [1, 4], "isr": [1, 4], "zk_version": 8, "src": "inferred"}
INHERITED: dict[str, tuple[list[Told], dict[str, Any]]] = {
    "nothing": ([], {"replicas": [1]}),
    "its request": ([(1999, _OWN)], _ASKED | {"ts": 1999}),
    "its request, which is written later": ([(2300, _OWN)], _ASKED),
    "a request of another epoch": ([(1999, _OWN._replace(epoch=2))], {"replicas": [1]}),
    "a request to another broker": ([(1999, _OWN._replace(broker=2))], {"replicas": [1]}),
    "a request of no epoch": ([(1999, _OWN._replace(epoch=None))], {"replicas": [1]}),
    "its election": ([(1990, state(8, 1, 1, 4))], _ELECTED),
    "its election, by a clock that is late": ([(2700, state(8, 1, 1, 4))], _ELECTED),
    "its election, not what it wrote itself": (
        [(2300, state(8, 1, 1)), (2500, updated(9, 1, 4))],
        _ELECTED | {"isr": [1]},
    ),
    "another election": ([(1990, state(8, 2, 1, 4))], {"replicas": [1, 4]}),
    "its assignment": ([(1000, of(9, What.ASSIGN, replicas=[1, 5, 4]))], {"replicas": [1, 5, 4]}),
    "the last assignment": (
        [(1000, of(9, What.ASSIGN, replicas=[1, 5])), (2900, of(9, What.SENT, replicas=[1, 6]))], {"replicas": [1, 6]},
    ),
    "an assignment that comes later": ([(3100, of(9, What.ASSIGN, replicas=[1, 5]))], {"replicas": [1, 5]}),
    "an assignment that comes later than another": (
        [(1000, of(9, What.ASSIGN, replicas=[1, 5])), (3100, of(9, What.SENT, replicas=[1, 6]))], {"replicas": [1, 5]},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("besides", "differs"), INHERITED.values(), ids=INHERITED)
def test_what_the_line_of_a_leadership_lacks_is_told_by_others(besides: list[Told], differs: dict[str, Any]) -> None:
    told = sorted([(2000, leads(1)), *besides], key=lambda pair: pair[0])
    (found,) = [r for r in woven(told) if r["ev"] == "leader"]
    assert found == row(2000, "leader", epoch=1, offset=0) | differs


def test_the_replicas_of_a_leadership_are_all_that_ever_were_and_those_that_come() -> None:
    told = [(0, state(1, 0, 2, 3)), (2000, leads(1, isr=[1], adding=[7], removing=[]))]
    assert woven(told)[-1]["replicas"] == [1, 2, 3, 7]


_ANOTHER = of(9, What.ASSIGN, replicas=[1, 6], key="id-2", value="created")
_GOES = of(1, What.STOP, value="delete")
#: what is told besides the bare lines of leaderships in epoch 0 -> (seconds, broker) of each, its replicas and its ISR
ENDS_OF_TOPICS: dict[str, tuple[list[Told], list[tuple[float, int, list[int], list[int] | None]]]] = {
    "a request of before the topic ended": (
        [(0, leads()), (300, _OWN._replace(epoch=0)), (1500, _ANOTHER), (1600, leads())],
        [(0, 1, [1, 4], [1, 4]), (1.6, 1, [1, 6], None)],
    ),
    "an assignment of the next topic": ([(0, leads()), (1500, _ANOTHER)], [(0, 1, [1], None)]),
    "by a clock that is late": ([(600, leads()), (1500, _ANOTHER)], [(0.6, 1, [1, 6], None)]),
    "a leadership that was over": (
        [(600, leads()), (700, follows(0, 0)), (1500, _ANOTHER), (1600, leads())],
        [(0.6, 1, [1, 6], None), (1.6, 1, [1, 6], None)],
    ),
    "a replica of another broker goes": (
        [(0, leads()._replace(broker=2)), (10, _GOES), (20, _OWN._replace(broker=2, epoch=0))],
        [(0, 2, [1, 4], [1, 4])],
    ),
    "it goes itself": (
        [(0, leads()), (10, _GOES), (20, _OWN._replace(epoch=0)), (30, leads())],
        [(0, 1, [1], None), (0.02, 1, [1, 4], [1, 4])],
    ),
}


@pytest.mark.parametrize(("told", "found"), ENDS_OF_TOPICS.values(), ids=ENDS_OF_TOPICS)
def test_a_leadership_takes_nothing_from_another_topic_of_its_name(
    told: list[Told], found: list[tuple[float, int, list[int], list[int] | None]]
) -> None:
    rows = [r for r in woven(told) if r["ev"] == "leader"]
    assert [(r["ts"] / 1000, r["broker"], r["replicas"], r.get("isr")) for r in rows] == found
