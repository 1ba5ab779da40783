"""Facts as columns and back, columns as lists, and what is known of all facts before some of them are woven."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest

from broker_sim.replay.grouped import column_lists
from broker_sim.replay.logs.fact_columns import FactColumns
from broker_sim.replay.logs.facts import Fact, What
from broker_sim.replay.logs.kinds_of_brokers import Brokers, Marks, brokers_of
from broker_sim.replay.logs.waiting_rows import EMITTED
from broker_sim.replay.logs.woven import Clocks

FACTS = [
    Fact(1, 5, What.FETCH, "orders", 0, ts=7, replica=2, offset=9, req_epoch=3, err=0, session=77, correlation=1),
    Fact(1, 6, What.UPDATED, "orders", 0, isr=[1, 2], zk_version=4, file="b/server.log", line=12, sub=1),
    Fact(None, 0, "bad", key="torn", value='a "line"\n\u00df', file="a/server.log"),
    Fact(2, 1 << 52, What.ASSIGN, "orders", 1, replicas=[1, 2, 3], adding=[], removing=[], file="a/server.log", line=0),
]


def test_a_fact_comes_back_from_its_columns() -> None:
    columns = FactColumns(["a/server.log", "b/server.log"])
    lists = list(zip(*map(columns.row, FACTS), strict=True))
    batch = pa.RecordBatch.from_arrays([pa.array(values) for values in lists], names=list(map(str, range(len(lists)))))
    assert list(columns.facts(batch)) == FACTS


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, -3, 2**62], pa.int64()),
        ([1, 2, 3], pa.int16()),
        ([None, None], pa.int32()),
        (["a", None, "b", "a", ""], pa.string()),
        ([None], pa.string()),
        ([], pa.string()),
        ([], pa.int32()),
        ([[1, 2], None, []], pa.list_(pa.int32())),
        ([True, None, False], pa.bool_()),
    ],
)
def test_columns_are_the_lists_that_they_were_made_of(values: list[Any], kind: pa.DataType) -> None:
    column = pa.array([None, *values, None], kind).slice(1, len(values))
    assert column_lists(pa.RecordBatch.from_arrays([column, column], names=["a", "b"]), 1) == [values]


@pytest.mark.parametrize(
    ("facts", "brokers"),
    [
        ([Fact(1, 0, What.TICK), Fact(None, 0, "bad")], Brokers(frozenset({1}), frozenset(), frozenset())),
        (
            [Fact(1, 50, What.START), Fact(1, 7, What.START), Fact(1, 7, What.START)],
            Brokers(frozenset({1}), frozenset(), frozenset(), frozenset({(1, 7), (1, 50)})),
        ),
        ([Fact(1, 0, What.EXPANDING)], Brokers(frozenset({1}), frozenset({1}), frozenset())),
        ([Fact(1, 0, What.SHRINKING, value="3:10:")], Brokers(frozenset({1}), frozenset({1}), frozenset())),
        ([Fact(1, 0, What.SHRINKING, value="3:10:99")], Brokers(frozenset({1}), frozenset(), frozenset())),
        (
            [Fact(1, 0, What.EXPANDING), Fact(2, 0, What.EXPANDING), Fact(1, 1, What.UPDATED, isr=[1])],
            Brokers(frozenset({1, 2}), frozenset({2}), frozenset()),
        ),
        (
            [Fact(1, 0, What.EXPANDING), Fact(1, 1, What.LEADER, isr=[1]), Fact(2, 0, What.LEADER)],
            Brokers(frozenset({1, 2}), frozenset(), frozenset()),
        ),
        (
            [Fact(1, 0, What.FETCH), Fact(2, 0, What.FETCH, session=0), Fact(1, 1, What.TICK)],
            Brokers(*map(frozenset, ({1, 2}, (), {1}))),
        ),
    ],
)
def test_kinds_of_brokers(facts: list[Fact], brokers: Brokers) -> None:
    """The same in whatever order, whether one saw all of the facts, or two saw some of them, or each saw one."""
    for order in permutations(facts):
        for parts in ([order], [order[:1], order[1:]], [[fact] for fact in order]):
            assert brokers_of([fact for part in parts for fact in seen(part)]) == brokers


def seen(facts: Iterable[Fact]) -> Iterator[Fact]:
    marks = Marks()
    for fact in facts:
        marks.take(fact)
    return marks.seen()


def test_a_clock_goes_back_between_two_rows_of_one_writer() -> None:
    def row(broker: int, role: str, ts: int) -> tuple[Any, ...]:
        return tuple({"broker": broker, "role": role, "ts": ts}.get(name) for name in EMITTED)

    rows = [
        row(1, "broker", 5000), row(2, "broker", 3000), row(1, "controller", 3000), row(1, "broker", 4000),
        row(1, "broker", 2999), row(1, "broker", 2998), row(2, "broker", 1000),
    ]  # fmt: skip
    clocks = Clocks()
    first = list(clocks.judged(rows[:5]))
    assert [row[-1] for row in (*first, *clocks.judged(rows[5:]))] == [False, False, False, False, True, False, True]
