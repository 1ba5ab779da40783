"""Kafka's assignors: the worked examples of clients.md §10.1, and recorded answers of Kafka 3.9.1's own classes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controller.admin.assignors.fresh import range_shares, round_robin_shares
from controller.admin.assignors.members import Assignor, Member, Shares, hash_order
from controller.admin.assignors.sticky import cooperative_shares, sticky_shares
from controller.rules.hashing import java_hash
from controller.wire.types import TopicPartition

ASSIGNORS: dict[str, Assignor] = {
    "range": range_shares,
    "roundrobin": round_robin_shares,
    "sticky": sticky_shares,
    "cooperative-sticky": cooperative_shares,
}
RECORDED = [
    json.loads(line)
    for line in (Path(__file__).parent / "recordings" / "assignors.jsonl").read_text("utf-8").splitlines()
]


def of(text: str) -> tuple[TopicPartition, ...]:
    topic, _, number = text.rpartition(":")
    return (TopicPartition(topic, int(number)),)


def member(name: str, owned: str = "", *, topics: str = "t", generation: int = 1) -> Member:
    """`owned` are partitions of t, such as `0 1 2`."""
    partitions = tuple(TopicPartition("t", int(n)) for n in owned.split())
    return Member(member_id=name, topics=tuple(topics.split()), owned=partitions, generation=generation)


def numbers(shares: Shares, topic: str = "t") -> dict[str, str]:
    return {m: " ".join(str(p.partition) for p in listed if p.topic == topic) for m, listed in shares.items()}


NEW = [member("A"), member("B"), member("C")]
DEALT = [member("A", "0 3 6 9"), member("B", "1 4 7"), member("C", "2 5 8")]
FIVES = [member("A", "0 1 2 3 4"), member("B", "5 6 7 8 9"), member("C")]
TEN = [
    ("range", NEW, {"A": "0 1 2 3", "B": "4 5 6", "C": "7 8 9"}),
    ("roundrobin", NEW, {"A": "0 3 6 9", "B": "1 4 7", "C": "2 5 8"}),
    ("sticky", NEW, {"A": "0 3 6 9", "B": "1 4 7", "C": "2 5 8"}),
    ("sticky", DEALT[:2], {"A": "0 3 6 9 2", "B": "1 4 7 5 8"}),
    ("sticky", [*DEALT, member("D")], {"A": "0 3 6", "B": "1 4 7", "C": "2 5", "D": "8 9"}),
    ("cooperative-sticky", [*DEALT, member("D")], {"A": "0 3 6", "B": "1 4 7", "C": "2 5", "D": ""}),
    ("cooperative-sticky", [member("A", "0 3 6"), member("B", "1 4 7"), member("C", "2 5"), member("D")],
     {"A": "0 3 6", "B": "1 4 7", "C": "2 5", "D": "8 9"}),
    ("sticky", FIVES, {"A": "0 1 2 3", "B": "5 6 7", "C": "4 8 9"}),
    ("cooperative-sticky", FIVES, {"A": "0 1 2 3", "B": "5 6 7", "C": ""}),
    ("sticky", [member("A", "0 1 2 3", generation=5), member("B", "3 4 5", generation=5),
                member("C", "6 7 8", generation=5)], {"A": "0 1 2 9", "B": "4 5 3", "C": "6 7 8"}),
    ("sticky", [member("A", "0 1 2 3", generation=5), member("B", "3 4 5", generation=6),
                member("C", "6 7 8 9", generation=6)], {"A": "0 1 2", "B": "3 4 5", "C": "6 7 8 9"}),
    ("sticky", [member("A", "0 1 2 3"), member("B", "4 5 6")], {"A": "0 1 2 3 7", "B": "4 5 6 8 9"}),
]  # fmt: skip
TEN_IDS = [
    "range", "roundrobin", "sticky first time", "C leaves", "D joins", "D joins, cooperative round 1", "round 2",
    "C joins two fives", "the same, cooperative round 1", "claimed twice in one generation",
    "claimed in two generations", "after range, the third dies",
]  # fmt: skip


@pytest.mark.feature("004-16", "004-17", "004-18")
@pytest.mark.parametrize(("assignor", "members", "expected"), TEN, ids=TEN_IDS)
def test_ten_partitions(assignor: str, members: list[Member], expected: dict[str, str]) -> None:
    found = numbers(ASSIGNORS[assignor](members, {"t": 10}))
    assert {m: sorted(text.split()) for m, text in found.items()} == {
        m: sorted(text.split()) for m, text in expected.items()
    }


def test_two_topics() -> None:
    members = [Member(member_id=m, topics=("t0", "t1")) for m in "ABC"]
    counts = {"t0": 10, "t1": 4}
    shares = range_shares(members, counts)
    assert numbers(shares, "t0") == {"A": "0 1 2 3", "B": "4 5 6", "C": "7 8 9"}
    assert numbers(shares, "t1") == {"A": "0 1", "B": "2", "C": "3"}
    for assignor in (round_robin_shares, sticky_shares):
        shares = assignor(members, counts)
        assert numbers(shares, "t0") == {"A": "0 3 6 9", "B": "1 4 7", "C": "2 5 8"}
        assert numbers(shares, "t1") == {"A": "2", "B": "0 3", "C": "1"}


UNEQUAL = [
    ("range", {"A": "0 1 2", "B": "3 4 5", "C": ""}, {"A": "", "B": "0 1", "C": "2 3"}),
    ("roundrobin", {"A": "0 2 4", "B": "1 3 5", "C": ""}, {"A": "", "B": "1 3", "C": "0 2"}),
    ("sticky", {"A": "0 2 4", "B": "1 3 5", "C": ""}, {"A": "", "B": "3", "C": "0 1 2"}),
]


@pytest.mark.parametrize(("assignor", "first", "second"), UNEQUAL, ids=[row[0] for row in UNEQUAL])
def test_unequal_subscriptions(assignor: str, first: dict[str, str], second: dict[str, str]) -> None:
    members = [
        Member(member_id="A", topics=("t0",)),
        Member(member_id="B", topics=("t0", "t1")),
        Member(member_id="C", topics=("t1",)),
    ]
    shares = ASSIGNORS[assignor](members, {"t0": 6, "t1": 4})
    assert (numbers(shares, "t0"), numbers(shares, "t1")) == (first, second)


def test_static_members_come_first_and_topics_without_partitions_do_not_count() -> None:
    members = [
        Member(member_id="a", topics=("t", "gone")),
        Member(member_id="z", topics=("t", "gone"), instance_id="one"),
    ]
    assert numbers(range_shares(members, {"t": 3})) == {"a": "2", "z": "0 1"}
    assert numbers(round_robin_shares(members, {"t": 3, "gone": 0})) == {"a": "1", "z": "0 2"}


@pytest.mark.feature("004-03")
def test_more_members_than_partitions_leave_some_idle() -> None:
    members = [member(f"m{n:02}") for n in range(11)]
    for assignor in ASSIGNORS.values():
        shares = assignor(members, {"t": 10})
        assert sorted(map(len, shares.values())) == [0] + [1] * 10


@pytest.mark.feature("004-16", "004-17", "004-18")
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_kafkas_own_classes_answer_the_same(assignor: str) -> None:
    for case in RECORDED:
        members = [
            Member(
                member_id=m["id"],
                topics=tuple(m["topics"]),
                owned=tuple(p for text in m["owned"] for p in of(text)),
                generation=m["generation"],
            )
            for m in case["members"]
        ]
        shares = ASSIGNORS[assignor](members, case["topics"])
        told = {m: [f"{p.topic}:{p.partition}" for p in listed] for m, listed in sorted(shares.items())}
        assert told == case[assignor], case


#: topics with their partitions; members with what they want, their generation and what they owned -> what they get from
#: Kafka 3.9.1's own class. Who owned a partition last gets it back, also where it wants it no more.
OLDER = [
    ("t3 u3 v1", ["d0 t,u 3", "y1 t,u,v 5 v0", "b2 v 3 u1,v0"], "t0,t1,u0 v0,t2,u2 u1"),
    ("t3 u1 v2", ["d0 u 4 t2", "d1 t,u,v 4 u0,v0", "c2 t 5 t2"], "t2 u0,v0,v1 t0,t1"),
    ("t1 u3 v2", ["b0 t,u,v 4", "y1 t 4 u0", "z2 t,u,v 5 t0,v1"], "u1,u2 u0 t0,v1,v0"),
    ("t1 u1", ["b0 t 3 t0", "y1 t,u 5 t0", "y2 t 3 t0"], " u0 t0"),
    ("t3 u1", ["y0 u 4 t1", "a1 t,u 4 t1", "c2 t,u 5 u0"], " t0,t1 t2"),
    ("t2 u1", ["x0 u 3 t0", "y1 t,u 4 t0,u0", "a2 t,u 3 t0"], " t0 t1"),
]


def some(text: str) -> tuple[TopicPartition, ...]:
    """Such as `t0,u1`."""
    return tuple(TopicPartition(word[0], int(word[1:])) for word in text.split(",") if word)


@pytest.mark.parametrize(("topics", "group", "answer"), OLDER)
def test_what_members_of_older_generations_owned_goes_where_kafka_has_it_go(
    topics: str, group: list[str], answer: str
) -> None:
    split = [[*text.split(), ""] for text in group]
    members = [
        Member(member_id=name, topics=tuple(wants.split(",")), generation=int(generation), owned=some(owned))
        for name, wants, generation, owned, *_ in split
    ]
    shares = cooperative_shares(members, {word[0]: int(word[1:]) for word in topics.split()})
    assert [tuple(shares[m.member_id]) for m in members] == [some(text) for text in answer.split(" ")]


def test_the_order_of_javas_hash_map() -> None:
    """`new HashSet<>(List.of("b", "a", "kafka", "zookeeper"))` iterates like this."""
    assert hash_order(["kafka", "b", "zookeeper", "a"], java_hash)[:2] == ["a", "b"]
