"""`kwob explain assignors`: who gets what, who gains and loses, in words and for machines."""

from __future__ import annotations

import json

import pytest

from controller.admin.assignors.rebalance import ASSIGNORS
from tests.unit.admin.explained import said


@pytest.mark.feature("004-14")
def test_a_join_takes_two_rounds_when_nobody_stops() -> None:
    _, out, _ = said(
        "assignors", "--topic", "t=10", "--members", "A,B,C", "--assignor", "cooperative-sticky", "--join", "D",
        "--json",
    )  # fmt: skip
    rounds = json.loads(out)["cooperative-sticky"]["after"]
    assert [r["generation"] for r in rounds] == [2, 3]
    assert rounds[0]["withheld"] == ["t-8", "t-9"]
    assert rounds[0]["members"]["D"]["partitions"] == []
    assert rounds[1]["members"]["D"]["gained"] == ["t-8", "t-9"]
    assert rounds[0]["paused"] == []


REBALANCES = [
    ("--topic t=5 --topic u=2 --members A,B --subscribe B=t --subscribe C=u --join C --leave A --assignor range", """\
range (what Java consumers use unless told otherwise)

generation 1  partitions   number
A             t:0-2 u:0-1       5
B             t:3-4             2

C joined and A left:

generation 2  partitions  number  gained  lost
B             t:0-4            5  t:0-2   -
C             u:0-1            2  u:0-1   -

0 partitions taken from a member that stays, in 1 rebalance; every member stops all its partitions meanwhile (B)
"""),
    ("--topic t=5 --topic u=2 --members A,B --owned A=t:0,t:2-4 --join C --assignor cooperative-sticky", """\
cooperative-sticky

generation 1  partitions  number
A             t:0,2-4          4
B             t:1 u:0-1        3

C joined:

generation 2  partitions  number  gained  lost
A             t:0,2-3          3  -       t:4
B             t:1 u:0          2  -       u:1
C             -                0  -       -

generation 3  partitions  number  gained   lost
A             t:0,2-3          3  -        -
B             t:1 u:0          2  -        -
C             t:4 u:1          2  t:4 u:1  -

2 partitions taken from a member that stays, in 2 rebalances; nobody stops, t:4 u:1 wait for the second
"""),
    ("--topic t=2 --members A,B --leave B --assignor cooperative-sticky", """\
cooperative-sticky

generation 1  partitions  number
A             t:0              1
B             t:1              1

B left:

generation 2  partitions  number  gained  lost
A             t:0-1            2  t:1     -

0 partitions taken from a member that stays, in 1 rebalance; nobody stops
"""),
    ("--topic t=10 --members A,B,C --leave C --assignor range", """\
range (what Java consumers use unless told otherwise)

generation 1  partitions  number
A             t:0-3            4
B             t:4-6            3
C             t:7-9            3

C left:

generation 2  partitions  number  gained  lost
A             t:0-4            5  t:4     -
B             t:5-9            5  t:7-9   t:4

1 partition taken from a member that stays, in 1 rebalance; every member stops all its partitions meanwhile (A, B)
"""),
    ("--topic t=1 --members A,B --assignor roundrobin", """\
roundrobin

generation 1  partitions  number
A             t:0              1
B             -                0
"""),
]  # fmt: skip


@pytest.mark.feature("004-14")
@pytest.mark.parametrize(("words", "text"), REBALANCES, ids=[words.split("assignor ")[1] for words, _ in REBALANCES])
def test_who_joins_and_leaves_in_words(words: str, text: str) -> None:
    assert said("assignors", *words.split()) == (0, text, "")


def test_what_the_members_hold_is_told_for_machines() -> None:
    words = "assignors --topic t=3 --members A --join B --assignor range --json"
    member = {"partitions": ["t-0", "t-1", "t-2"], "gained": ["t-0", "t-1", "t-2"], "lost": []}
    first = {"generation": 1, "members": {"A": member}, "paused": [], "withheld": []}
    after = {
        "A": {"partitions": ["t-0", "t-1"], "gained": [], "lost": ["t-2"]},
        "B": {"partitions": ["t-2"], "gained": ["t-2"], "lost": []},
    }
    second = {"generation": 2, "members": after, "paused": ["A"], "withheld": []}
    assert json.loads(said(*words.split())[1]) == {"range": {"before": [first], "after": [second]}}


def test_all_four_assignors_side_by_side() -> None:
    _, out, _ = said("assignors", "--topic", "t=4", "--members", "A,B", "--subscribe", "B=t", "--owned", "A=t:0-3")
    assert [line for line in out.splitlines() if line.split(" ")[0] in ASSIGNORS] == [
        "range (what Java consumers use unless told otherwise)", "roundrobin", "sticky", "cooperative-sticky"
    ]  # fmt: skip
