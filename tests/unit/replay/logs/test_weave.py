"""What is told twice is one: leaderships and elections, by lines that repeat them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker_sim.replay.logs.facts import Fact, What
from broker_sim.replay.logs.texts_of_controllers import CUT
from broker_sim.replay.logs.waiting_rows import EMITTED
from broker_sim.replay.logs.weave import Weave

SECOND = 1_000_000


def woven(*facts: Fact) -> list[dict[str, Any]]:
    """One a second, in this order."""
    weave = Weave()
    for number, fact in enumerate(facts):
        weave.feed(fact._replace(at_us=number * SECOND))
    weave.finish()
    return [dict(zip(EMITTED, row, strict=True)) for row in weave.rows]


def leads(epoch: int, broker: int = 1) -> Fact:
    isr = [1, 2]
    return Fact(broker, 0, What.LEADER, "t", 0, offset=5, epoch=epoch, isr=isr, replicas=isr)


def follows(epoch: int, broker: int = 1) -> Fact:
    return Fact(broker, 0, What.FOLLOWER, "t", 0, offset=5, epoch=epoch)


def stops(epoch: int, broker: int = 1) -> Fact:
    return Fact(broker, 0, What.STOP, "t", 0, epoch=epoch)


#: what, facts of brokers -> (seconds at which a leadership begins, broker, epoch)
LEADERSHIPS = [
    ("told once", [leads(3)], [(0, 1, 3)]),
    ("told twice", [leads(3), leads(3)], [(0, 1, 3)]),
    ("a newer epoch", [leads(3), leads(4), leads(4), leads(3)], [(0, 1, 3), (1, 1, 4), (3, 1, 3)]),
    ("while it leads", [leads(3), Fact(1, 0, What.HW, "t", 0, hw=7), leads(3)], [(0, 1, 3)]),
    ("by two brokers", [leads(3), leads(3, 2), leads(3), leads(3, 2)], [(0, 1, 3), (1, 2, 3)]),
    ("after it followed", [leads(3), follows(3), leads(3)], [(0, 1, 3), (2, 1, 3)]),
    ("after it stopped", [leads(3), stops(3), leads(3), leads(3)], [(0, 1, 3), (2, 1, 3)]),
    ("after another followed", [leads(3), follows(3, 2), leads(3)], [(0, 1, 3)]),
]


@pytest.mark.parametrize(("facts", "expected"), [r[1:] for r in LEADERSHIPS], ids=[r[0] for r in LEADERSHIPS])
def test_a_leadership_that_is_told_twice_is_one(facts: list[Fact], expected: list[tuple[int, int, int]]) -> None:
    found = [row for row in woven(*facts) if row["ev"] == "leader"]
    assert [(row["ts"] // 1000, row["broker"], row["epoch"]) for row in found] == expected


def test_a_broker_that_has_started_anew_leads_anew_in_the_same_epoch() -> None:
    """As the only broker of a cluster does: there is nobody who would have raised the epoch."""
    weave = Weave(starts=frozenset({(1, 1_500_000), (1, 1_600_000), (2, 2_500_000)}))
    for second in range(4):
        weave.feed(leads(3)._replace(at_us=second * SECOND))
    weave.finish()
    found = [dict(zip(EMITTED, row, strict=True)) for row in weave.rows]
    assert [(row["ts"], row["epoch"]) for row in found] == [(0, 3), (2000, 3)]


def elects(epoch: int, version: int | None = None, leader: int = 1, **more: Any) -> Fact:
    return Fact(9, 0, What.ELECT, "t", 0, replica=leader, epoch=epoch, isr=[leader], zk_version=version, **more)


#: what, elections as the controllers tell of them -> (seconds at which one counts, epoch, leader)
ELECTIONS = [
    ("told once", [elects(1)], [(0, 1, 1)]),
    ("told again without a version", [elects(1), elects(1)], [(0, 1, 1)]),
    ("and with another leader", [elects(1), elects(1, leader=2)], [(0, 1, 1)]),
    ("an older one", [elects(2), elects(1, leader=2), elects(2), elects(3)], [(0, 2, 1), (3, 3, 1)]),
    ("the first of all", [elects(0), elects(0)], [(0, 0, 1)]),
    ("one with a version is as it says", [elects(2, 5), elects(2, 6, leader=2)], [(0, 2, 1), (1, 2, 2)]),
    ("after one with a version", [elects(2, 5), elects(2), elects(3)], [(0, 2, 1), (2, 3, 1)]),
    ("an old one with a version is not the last", [elects(5), elects(2, 6), elects(3)], [(0, 5, 1), (1, 2, 1)]),
    (
        "the topic begins anew",
        [elects(2), Fact(9, 0, What.ASSIGN, "t", 0, replicas=[1], key="id-2", value="created"), elects(0)],
        [(0, 2, 1), (2, 0, 1)],
    ),
]


@pytest.mark.parametrize(("facts", "expected"), [r[1:] for r in ELECTIONS], ids=[r[0] for r in ELECTIONS])
def test_an_election_of_an_epoch_that_was_told_changes_nothing(
    facts: list[Fact], expected: list[tuple[int, int, int]]
) -> None:
    found = [row for row in woven(*facts) if row["ev"] == "elect"]
    assert [(row["ts"] // 1000, row["epoch"], row["replica"]) for row in found] == expected


#: what happens to a partition, and is told in lines that name a version of its state, an epoch, or both
CHANGES = ("shrinks", "expands", "expands without an attempt", "is elected", "is elected unseen", "is cut", "is raised")


def life(topic_id: str, changes: list[str], everybody: list[int] | None = None) -> Iterator[Fact]:
    """From its creation to its deletion: versions and epochs count from 0."""
    everybody = everybody or [1, 2, 3]
    isr, version, epoch = everybody, 0, 0
    state = Fact(9, 0, What.ELECT, "t", 0, replica=1)
    leader = Fact(1, 0, What.LEADER, "t", 0, offset=0, isr=isr)
    yield Fact(9, 0, What.ASSIGN, "t", 0, replicas=everybody, key=topic_id, value="created")
    yield state._replace(epoch=0, isr=isr, zk_version=0, key=topic_id)
    yield leader._replace(epoch=0, zk_version=0)
    for change in changes:
        version, old = version + 1, isr
        if change in ("shrinks", "expands", "expands without an attempt"):
            isr = [1, 2] if change == "shrinks" else everybody
            if change != "expands without an attempt":
                what = What.SHRINKING if change == "shrinks" else What.EXPANDING
                yield Fact(1, 0, what, "t", 0, isr_old=old, isr=isr)
            yield Fact(1, 0, What.UPDATED, "t", 0, isr=isr, zk_version=version)
        elif change == "is raised":
            epoch += 1
            yield Fact(9, 0, What.BUMP, "t", 0, epoch=epoch, zk_version=version)
        else:
            isr, epoch = [1, 3], epoch + 1
            told = state._replace(epoch=epoch, isr=isr, zk_version=version)
            yield {"is elected unseen": told._replace(zk_version=None), "is cut": told._replace(key=CUT)}.get(
                change, told
            )
            yield leader._replace(epoch=epoch, isr=isr, zk_version=version)
    yield stops(epoch)


@given(st.lists(st.sampled_from(CHANGES), max_size=8), st.lists(st.sampled_from(CHANGES), max_size=8), st.booleans())
@example(["is raised"], ["shrinks", "shrinks"], True)
@example(["shrinks"], ["shrinks", "expands"], False)
def test_a_topic_created_anew_is_told_of_as_if_it_had_never_been(
    former: list[str], changes: list[str], is_controller_heard: bool
) -> None:
    """Though its versions and epochs are those of the former topic again, and its replicas others."""
    before, after = (
        [fact for fact in facts if is_controller_heard or fact.broker == 1]
        for facts in (life("id-1", former, [1, 2, 3, 4]), life("id-2", changes))
    )
    began_ms = len(before) * 1000
    told = woven(*before, *after)
    assert [row for row in told if row["ts"] < began_ms] == woven(*before), "nor does the former learn of it"
    rows = [row for row in told if row["ts"] >= began_ms]
    silence = [Fact(1, 0, What.HW, "t", 0, hw=0)] * len(before)
    assert rows == [row for row in woven(*silence, *after) if row["ts"] >= began_ms]


def led(replicas: list[int], broker: int = 1) -> Fact:
    """The request of a topic's first leadership."""
    return Fact(broker, 0, What.LED, "t", 0, epoch=0, replica=1, isr=replicas, replicas=replicas, zk_version=0)


#: the broker's line of a leadership, which says neither replicas nor, up to Kafka 2.5, the ISR
_BARE: Fact = Fact(1, 0, What.LEADER, "t", 0, offset=0, epoch=0)
_BEGINS: Fact = Fact(9, 0, What.ASSIGN, "t", 0, replicas=[1, 3], key="id-2", value="created")
#: what ends the former topic, as far as there are logs of it
ENDS_OF_TOPICS: dict[str, list[Fact]] = {
    "the broker gave its replica up": [stops(0)],
    "the controller made another": [Fact(1, 0, What.HW, "t", 0, hw=0), _BEGINS],
    "both": [stops(0), _BEGINS],
}


@pytest.mark.parametrize("ends", ENDS_OF_TOPICS.values(), ids=ENDS_OF_TOPICS)
@pytest.mark.parametrize("is_asked_first", [True, False], ids=["its request before", "its request after"])
def test_the_leadership_of_a_topic_created_anew_is_of_its_own_request(ends: list[Fact], is_asked_first: bool) -> None:
    """The line of a request is written once it was answered, and its times are rounded."""
    request = led([1, 3])
    new = [request, _BARE] if is_asked_first else [_BARE, request]
    rows = [row for row in woven(led([1, 2]), _BARE, *ends, *new) if row["ev"] == "leader"]
    second = 2 + len(ends)
    assert [(row["ts"], row["replicas"], row["isr"]) for row in rows] == [
        (0, [1, 2], [1, 2]),
        (second * 1000, [1, 3], [1, 3]),
    ]


def test_a_replica_that_is_given_up_at_once_is_told_with_its_own_request() -> None:
    rows = [row for row in woven(_BARE, led([1, 2]), stops(0)) if row["ev"] == "leader"]
    assert [(row["replicas"], row["isr"]) for row in rows] == [([1, 2], [1, 2])]


def test_a_leadership_that_another_clock_puts_before_the_topic_began_stays_one() -> None:
    weave = Weave()
    for at_ms, fact in [(0, leads(0)), (900, _BEGINS), (2_000, leads(0))]:
        weave.feed(fact._replace(at_us=at_ms * 1000))
    weave.finish()
    assert [row[EMITTED.index("ev")] for row in weave.rows].count("leader") == 1


def test_an_attempt_without_an_answer_holds_up_the_rest_for_half_a_minute_and_no_longer() -> None:
    """What is told, and as what, is the same whether the rows are drained on the way or at the end."""
    tries = Fact(1, 0, What.SHRINKING, "t", 0, isr_old=[1, 2], isr=[1])
    weave = Weave()
    heard: list[int] = []
    for second in range(60):
        fact = [leads(3), tries][second] if second < 2 else Fact(1, 0, What.HW, "t", 0, hw=second)
        weave.feed(fact._replace(at_us=second * SECOND))
        heard.append(len(weave.rows))
    assert set(heard[5:30]) == {1}, "the leadership; the attempt may have an answer yet"
    assert heard[34] > 30 and heard[59] > 55
    rows = [dict(zip(EMITTED, row, strict=True)) for row in weave.rows]
    assert [(row["ev"], row["err"]) for row in rows[:2]] == [("leader", None), ("isr_shrink", 95)]


@pytest.mark.parametrize("after", [1, 10, 29, 31, 50])
def test_an_answer_counts_within_half_a_minute(after: int) -> None:
    """A leader that lost ZooKeeper tries again once it has reconnected."""
    weave = Weave()
    told = [
        (0, leads(3)),
        (1, Fact(1, 0, What.SHRINKING, "t", 0, isr_old=[1, 2], isr=[1])),
        *((1 + second, Fact(1, 0, What.HW, "t", 0, hw=second)) for second in range(1, after)),
        (1 + after, Fact(1, 0, What.UPDATED, "t", 0, isr=[1], zk_version=7)),
    ]
    for second, fact in told:
        weave.feed(fact._replace(at_us=second * SECOND))
    weave.finish()
    rows = [dict(zip(EMITTED, row, strict=True)) for row in weave.rows]
    found = [(row["err"], row["zk_version"]) for row in rows if row["ev"] == "isr_shrink"]
    assert found == ([(0, 7)] if after <= 29 + 2 else [(95, None), (0, 7)]), "it was written, however late"


#: what ends an attempt that has no answer
ENDS: dict[str, Fact] = {
    "it follows": follows(4),
    "it leads anew": leads(4),
    "it tries something else": Fact(1, 0, What.EXPANDING, "t", 0, isr_old=[1, 2], isr=[1, 2, 3]),
    "it is refused": Fact(1, 0, What.REFUSED, "t", 0),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_an_attempt_that_is_over_holds_nothing_up_and_waits_for_no_answer(end: Fact) -> None:
    """An answer that comes to the broker later is to something else."""
    weave = Weave()
    tries = Fact(1, 0, What.SHRINKING, "t", 0, isr_old=[1, 2], isr=[1])
    late = Fact(1, 0, What.UPDATED, "t", 0, isr=[1], zk_version=7)
    told = [leads(3), tries, end, *(Fact(1, 0, What.HW, "t", 0, hw=second) for second in range(3, 8)), late]
    for second, fact in enumerate(told):
        weave.feed(fact._replace(at_us=second * SECOND))
        if second == 7:
            heard = [row[EMITTED.index("ev")] for row in weave.rows]
            assert "isr_shrink" in heard, "others are told behind it, too, unless they wait themselves"
    weave.finish()
    rows = [dict(zip(EMITTED, row, strict=True)) for row in weave.rows]
    assert [row["err"] for row in rows if row["ev"] == "isr_shrink" and row["ts"] == 1000] == [95]


#: what is heard of broker 2, second by second -> when it died, of each end of its session
DEATHS: list[tuple[str, dict[int, str], list[int | None]]] = [
    ("once", {1: "lost", 8: "down"}, [1000]),
    ("again and again", {1: "lost", 4: "lost", 8: "down"}, [1000]),
    ("of the first death alone", {1: "lost", 8: "down", 20: "up", 40: "down"}, [1000, None]),
    ("of both", {1: "lost", 8: "down", 20: "up", 35: "lost", 40: "down"}, [1000, 35_000]),
    ("and it was back before its session ended", {1: "lost", 5: "up", 40: "down"}, [None]),
    ("never", {8: "down", 20: "up", 40: "down"}, [None, None]),
]


@pytest.mark.parametrize(("_", "heard", "died"), DEATHS, ids=[row[0] for row in DEATHS])
def test_connections_that_were_lost_tell_of_one_death(_: str, heard: dict[int, str], died: list[int | None]) -> None:
    kinds = {
        "lost": Fact(-1, 0, What.LOST, replica=2),
        "down": Fact(-1, 0, What.BROKER_DOWN, replica=2),
        "up": Fact(-1, 0, What.BROKER_UP, replica=2),
    }
    weave = Weave()
    for second, what in heard.items():
        weave.feed(kinds[what]._replace(at_us=second * SECOND))
    weave.finish()
    rows = [dict(zip(EMITTED, row, strict=True)) for row in weave.rows]
    assert [row["done"] for row in rows if row["ev"] == "broker_down"] == died
