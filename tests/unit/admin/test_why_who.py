"""`kwob why`: whom a reason names, and which of several causes; tables over who lives, who is in sync, what is told."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from controller.admin.why.diagnosis import diagnose, why_missing
from controller.admin.why.facts import BrokerFacts, Deletion, PartitionFacts, TopicFacts
from controller.admin.why.finding import Finding, Trouble
from controller.wire.types import BrokerId, TopicPartition
from tests.unit.admin.test_why import DEAD_2, HERE, LAGS, broker, log, partition, topic

SETS = [who for n in range(4) for who in itertools.combinations((1, 2, 3), n)]


def one(facts: TopicFacts, trouble: Trouble) -> Finding:
    (found,) = [f for f in diagnose(facts, HERE) if f.trouble is trouble]
    return found


def named(lines: tuple[str, ...], words: str) -> list[int]:
    """The brokers of the lines with these words."""
    return [int(b) for line in lines if words in line for b in line.split()[1].split(",")]


def started(found: Finding) -> list[int]:
    """The brokers that are to be started again."""
    return [int(start[1]) for line in found.next if (start := re.search(r"\bstart (?:broker )?(\d+)", line))]


@pytest.mark.parametrize("dead", SETS, ids=str)
@pytest.mark.parametrize("isr", SETS, ids=str)
@pytest.mark.parametrize("controller", [9, None], ids=str)
def test_of_who_has_no_leader_the_dead_of_the_isr_are_named_and_to_be_started(
    isr: tuple[int, ...], dead: tuple[int, ...], controller: int | None
) -> None:
    """Others that are dead could not lead it without loss; who lives is no cause, and a controller may elect it."""
    away = [broker(b, is_alive=False, local=False) for b in dead]
    found = one(topic(partition(leader=None, isr=isr), *away, controller=controller), Trouble.OFFLINE)
    lost = [b for b in isr if b in dead]
    assert named(found.because, "is not alive") == lost and started(found) == lost
    elected = [b for b in isr if b not in dead and controller is not None]
    assert named(found.because, "of the ISR is alive") == elected
    others = [b for b in (1, 2, 3) if b not in isr and b not in dead]
    assert named(found.because, "was not in sync") == ([] if elected else others)


@pytest.mark.parametrize("dead", SETS, ids=str)
def test_of_who_never_had_a_leader_only_the_dead_are_named(dead: tuple[int, ...]) -> None:
    away = [broker(b, is_alive=False, local=False) for b in dead]
    facts = topic(partition(leader=None, isr=(), state_known=False), *away)
    found = one(facts, Trouble.OFFLINE)
    assert named(found.because, "is not alive") == list(dead) == started(found)
    assert any("one live replica" in line for line in found.because) is (len(dead) == 3)
    assert [f.trouble for f in diagnose(facts, HERE)] == [Trouble.OFFLINE], "who never was in sync is not missing"


def test_all_that_holds_up_a_deletion_is_named_and_nothing_else() -> None:
    """Per broker: it lives, is dead, nobody knows it, or has a failed disk; brokers without a replica do not count."""
    kinds: dict[str, BrokerFacts | None] = {
        "well": broker(2), "dead": DEAD_2, "unknown": None, "failed": broker(2, failed_dirs=("/a", "/b")),
    }  # fmt: skip
    lines = {
        "well": "nothing holds it up",
        "dead": "broker 2 holds replicas and is not alive; deletion waits for it",
        "unknown": "broker 2 holds replicas and is not alive; deletion waits for it",
        "failed": "broker 2 has failed log dirs: /a, /b",
    }
    elsewhere = (broker(7, is_alive=False), broker(8, failed_dirs=("/c",)))
    for kind, facts in kinds.items():
        about = {b.broker_id: b for b in (broker(1), broker(3), *elsewhere, *([facts] if facts else []))}
        found = one(topic(partition(), brokers=about, deletion=Deletion.MARKED), Trouble.DELETION)
        assert len(found.because) == 2 and found.because[1].startswith(lines[kind]), kind
        assert [line for line in found.next if "repair or replace the disk" in line] == (
            ["repair or replace the disk, then start broker 2 again"] if kind == "failed" else []
        )
    both = topic(partition(), DEAD_2, broker(3, failed_dirs=("/a",)), deletion=Deletion.MARKED, delete_enabled=True)
    assert len(one(both, Trouble.DELETION).because) == 3


SILENT: list[tuple[str, dict[str, Any], bool, bool]] = [
    ("its process ended", {"local": False}, True, False),
    ("its process runs", {"local": True}, False, False),
    ("a cluster of somebody else", {}, False, False),
    ("faults", {"local": True, "faults": ("kill",)}, False, True),
]


@pytest.mark.parametrize(("facts", "ended", "faulty"), [s[1:] for s in SILENT], ids=[s[0] for s in SILENT])
def test_what_is_said_of_who_does_not_answer(facts: dict[str, Any], ended: bool, faulty: bool) -> None:
    """What it leads and follows; only what was told of its process and faults."""
    partitions = tuple(partition(partition=TopicPartition("t", n), leader=b) for n, b in enumerate((2, 1, 2)))
    at = topic(partitions[0], broker(2, answers=False, **facts), partitions=partitions)
    text = "\n".join(one(at, Trouble.SILENT).because)
    assert ("its process does not run" in text, "faults in force: kill" in text) == (ended, faulty)
    assert "it leads 0, 2: records" in text.replace("t-", "") and "it counts as in sync in t-1" in text
    well = topic(partitions[0], broker(2, **facts), partitions=partitions)
    assert Trouble.SILENT not in {f.trouble for f in diagnose(well, HERE)}
    for number, line in enumerate(("it leads t-0: records", "it counts as in sync in t-1", "it leads t-2: records")):
        (alone,) = [f for f in diagnose(at, HERE, only=number) if f.trouble is Trouble.SILENT]
        lines = [text for text in alone.because if text.startswith("it ")]
        assert len(lines) == 1 and lines[0].startswith(line), "of the partition that is asked about"


@pytest.mark.parametrize("leader", [1, 2, 3, None], ids=str)
@pytest.mark.parametrize("isr", SETS, ids=str)
@pytest.mark.parametrize("dead", [(), (1,)], ids=str)
def test_a_preferred_leader_that_could_lead_is_named(
    leader: int | None, isr: tuple[int, ...], dead: tuple[int, ...]
) -> None:
    """It must be in sync and alive; a move that runs elects by itself."""
    away = [broker(b, is_alive=False) for b in dead]
    for change in ({}, {"adding_replicas": (3,)}):
        found = diagnose(topic(partition(leader=leader, isr=isr, **change), *away), HERE)
        could = leader in (2, 3) and 1 in isr and not dead and not change
        assert (Trouble.NOT_PREFERRED in {f.trouble for f in found}) is could


#: what is so -> what it is told as; causes in the order in which they count
CAUSES: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    # words, of the partition, of broker 2, of the leader
    ("is not alive", {}, {"is_alive": False}, {}),
    ("a log dir failed", {}, {"failed_dirs": ("/a",)}, {}),
    ("has no process any more", {}, {"local": False}, {}),
    ("with faults in force", {}, {"faults": ("slow",)}, {}),
    ("no leader to copy from", {"leader": None}, {}, {}),
    ("does not answer", {}, {"answers": False}, {}),
    ("may copy at 7 B/s only", {"follower_throttled": frozenset({2})}, {"follower_rate": 7}, {}),
    ("may send 5 B/s only", {"leader_throttled": frozenset({1})}, {}, {"leader_rate": 5}),
    ("has no log of it", {}, {}, {}),
]


@pytest.mark.parametrize("nearer", range(len(CAUSES)))
def test_the_nearest_cause_is_the_one_that_is_named(nearer: int) -> None:
    for further in range(nearer, len(CAUSES)):
        rows = [CAUSES[further], CAUSES[nearer]]
        of_partition, of_two, of_leader = ({k: v for row in rows for k, v in row[n].items()} for n in (1, 2, 3))
        p = partition(**LAGS | of_partition)
        facts = topic(p, broker(2, **of_two), broker(1, **of_leader))
        assert CAUSES[nearer][0] in why_missing(facts, p, BrokerId(2)), CAUSES[further][0]


THROTTLES: list[tuple[PartitionFacts, dict[str, Any], dict[str, Any], str]] = [
    (partition(**LAGS, follower_throttled=frozenset({2})), {"follower_rate": 0}, {}, "2 may copy at 0 B/s only"),
    (partition(**LAGS, follower_throttled=frozenset({2})), {}, {}, ""),
    (partition(**LAGS, follower_throttled=frozenset({3})), {"follower_rate": 7}, {}, ""),
    (partition(**LAGS), {"follower_rate": 7, "leader_rate": 7}, {"leader_rate": 5, "follower_rate": 5}, ""),
    (partition(**LAGS, leader_throttled=frozenset({1})), {}, {"leader_rate": 0}, "its leader 1 may send 0 B/s only"),
    (partition(**LAGS, leader_throttled=frozenset({1})), {"leader_rate": 7}, {}, ""),
    (partition(**LAGS, leader_throttled=frozenset({2})), {"leader_rate": 7}, {"leader_rate": 5}, ""),
]


@pytest.mark.parametrize(("p", "of_two", "of_leader", "line"), THROTTLES)
def test_a_throttle_is_a_cause_only_with_its_rate_and_for_who_is_listed(
    p: PartitionFacts, of_two: dict[str, Any], of_leader: dict[str, Any], line: str
) -> None:
    """The list is the topic's, the rate the broker's; both are needed, and a rate of nothing is one."""
    p = partition(**LAGS, logs={1: log(9), 2: log(5)}, follower_throttled=p.follower_throttled,
                  leader_throttled=p.leader_throttled)  # fmt: skip
    facts = topic(p, broker(2, **of_two), broker(1, **of_leader))
    why = why_missing(facts, p, BrokerId(2))
    assert line in why and ("(throttled)" in why) is bool(line)
    advice = one(facts, Trouble.UNDER_REPLICATED).next
    assert any("removes the throttle" in command for command in advice) is bool(line)
