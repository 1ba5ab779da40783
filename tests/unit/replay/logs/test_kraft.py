"""Log files of KRaft clusters, 3.3 to 4.x: what is said, in which form it comes, and what follows for a partition."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from broker_sim.replay.logs.facts import Fact
from broker_sim.replay.logs.lines import Clock, head_of
from broker_sim.replay.logs.reader import KEPT_PATTERN, LogReader, Place
from broker_sim.replay.logs.texts import said_by
from broker_sim.replay.logs.waiting_rows import EMITTED
from broker_sim.replay.logs.weave import Weave

STATE = (
    "LeaderAndIsrPartitionState(topicName='orders', partitionIndex=7, controllerEpoch=-1, leader={leader}, "
    "leaderEpoch={epoch}, isr=[{isr}], partitionEpoch={version}, replicas=[1, 2, 3], addingReplicas=[], "
    "removingReplicas=[], isNew=false, leaderRecoveryState=0)"
)
REGISTRATION = (
    "PartitionRegistration(replicas=[1, 2, 3], directories=[cEowT9zmvESTUYP-paLzKQ, BXX54ANYLU-pRmMb1sUepA, x], "
    "isr=[1, 2, 3], removingReplicas=[], addingReplicas=[], elr=[], lastKnownElr=[], leader=1, "
    "leaderRecoveryState=RECOVERED, leaderEpoch=0, partitionEpoch=0)"
)


def skipped(version: int, isr: str, *, by: int = 1, leader: int = 1, epoch: int = 0) -> str:
    what = "leader" if by == leader else "follower"
    state = STATE.format(leader=leader, epoch=epoch, isr=isr, version=version)
    return (
        f"[Broker id={by}] Skipped the become-{what} state change for orders-7 with topic id Some(jFweP_mLQEG) and "
        f"partition state {state} since it is already the {what} with leader epoch {epoch}."
    )


def created(by: int, topic_id: str = "jFweP_mLQEG") -> str:
    speaker = f"[QuorumController id={by}] Replayed PartitionRecord"
    return f"{speaker} for new partition orders-7 with topic ID {topic_id} and {REGISTRATION}."


SHRINKING = (
    "[Partition orders-7 broker=1] Shrinking ISR from 1,2,3 to 1,2. Leader: (highWatermark: 5, endOffset: 6). "
    "Out of sync replicas: (brokerId: 3, endOffset: 5, lastCaughtUpTimeMs: 1795343743466)."
)
UPDATED = "[Partition orders-7 broker=1] ISR updated to 1,2  and version updated to 1"
REJECTED = (
    "[QuorumController id=9] Rejecting AlterPartition request from node 1 for orders-7 because the current partition "
    "epoch is 1, not 0."
)
MOVED = (
    "[QuorumController id=9] Replayed partition assignment change PartitionChangeRecord(partitionId=7, topicId=jFweP, "
    "isr=null, leader=-2, replicas=[1, 2, 3, 4], removingReplicas=[3], addingReplicas=[4], leaderRecoveryState=-1, "
    "directories=[a, b, c, d], eligibleLeaderReplicas=null, lastKnownElr=null) for topic orders"
)

SAID: list[tuple[str, int, list[dict[str, Any]]]] = [
    (skipped(4, "1, 3", by=2), 2, [{"what": "elect", "isr": [1, 3], "replica": 1, "epoch": 0, "zk_version": 4}]),
    (created(9), 9, [{"what": "assign", "replicas": [1, 2, 3], "value": "created"},
                     {"what": "elect", "isr": [1, 2, 3], "zk_version": 0}]),
    (MOVED, 9, [{"what": "assign", "replicas": [1, 2, 3, 4], "adding": [4], "removing": [3], "partition": 7}]),
    (REJECTED, 9, [{"what": "refused", "broker": 1, "topic": "orders", "partition": 7}]),
    ("[QuorumController id=9] Fencing broker 3 at epoch 16 because its session has timed out.", 9,
     [{"what": "broker_down", "replica": 3}]),
    ("[QuorumController id=9] The request from broker 3 to unfence has been granted because it has caught up with the "
     "offset of its register broker record 9.", 9, [{"what": "broker_up", "replica": 3}]),
    ("[QuorumController id=9] The request from broker 3 to shut down has been granted since the lowest active offset "
     "77 is now greater than the broker's controlled shutdown offset 70.", 9, [{"what": "broker_down", "replica": 3}]),
    ("[DynamicConfigPublisher broker id=3] Updating topic orders with new configuration : min.insync.replicas -> 2, "
     "retention.ms -> 5", 3, [{"what": "config", "topic": "orders", "key": "*"},
                              {"what": "config", "topic": "orders", "key": "min.insync.replicas", "value": "2"}]),
    ("[BrokerServer id=3] shut down completed", 3, [{"what": "down"}]),
    ("[QuorumController id=9] Replayed TopicRecord for topic orders with topic ID jFweP_mLQEG.", 9, []),
    # as versions before 4.1 say it
    (created(9).replace("Replayed PartitionRecord for new", "Created"), 9, [{"what": "assign", "value": "created"},
                                                                           {"what": "elect", "zk_version": 0}]),
    (created(9).replace("Replayed PartitionRecord for new", "Created").replace("QuorumController id=", "Controller "),
     9, [{"what": "assign", "value": "created"}, {"what": "elect", "zk_version": 0}]),
    (MOVED.replace("QuorumController id=", "Controller "), 9, [{"what": "assign", "replicas": [1, 2, 3, 4]}]),
    ("[Controller 9] Fencing broker 3 because its session has timed out.", 9, [{"what": "broker_down", "replica": 3}]),
    ("[QuorumController id=9] Fencing broker 3 because its session has timed out.", 9,
     [{"what": "broker_down", "replica": 3}]),
    # one that leads nothing need not wait
    ("[QuorumController id=9] Unfenced broker 3 has requested and been granted an immediate shutdown.", 9,
     [{"what": "broker_down", "replica": 3}]),
    ("[QuorumController id=9] Unfenced broker 3 has requested and been granted fencing", 9,
     [{"what": "broker_down", "replica": 3}]),
    ("[QuorumController id=9] Unfenced broker 3 has requested and been granted a controlled shutdown.", 9, []),
    ("[BrokerMetadataPublisher id=3] Updating topic orders with new configuration : min.insync.replicas -> 2", 3,
     [{"what": "config", "key": "*"}, {"what": "config", "key": "min.insync.replicas", "value": "2"}]),
    ("[DynamicConfigPublisher nodeType=broker id=3] Updating topic orders with new configuration : ", 3,
     [{"what": "config", "key": "*"}]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "speaker", "said"), SAID, ids=[text[:60] for text, _, _ in SAID])
def test_what_is_said(text: str, speaker: int, said: list[dict[str, Any]]) -> None:
    who, facts = said_by(text)
    assert who == speaker
    assert re.search(KEPT_PATTERN, f"[2026-11-22 10:35:53,735] INFO {text} (x)") or not said
    assert [{name: fact[name] for name in want} for fact, want in zip(facts, said, strict=True)] == said


FORMS = [
    ("[2026-11-22 10:35:53,735] INFO {} (kafka.cluster.Partition)", 735),
    ("2026-11-22T10:35:53,735 INFO {} (kafka.cluster.Partition) [kafka-1-metadata-loader-event-handler]", 735),
    ("2026-11-22 10:35:53,735 INFO {} (kafka.cluster.Partition) [main]", 735),
    ("2026-11-22 10:35:53 INFO  [isr-expiration-1] Partition:66 - {}", 0),
    ("kafka-1  | [2026-11-22 10:35:53,735] INFO {} (kafka.cluster.Partition)", 735),
    ("2026-11-22T10:35:54.1Z stdout F [2026-11-22 10:35:53,735] INFO {} (kafka.cluster.Partition)", 735),
    ("[pod/my-cluster-kafka-0/kafka] 2026-11-22 10:35:53,735 INFO {} (kafka.cluster.Partition) [main]", 735),
]


@pytest.mark.parametrize(("form", "ms"), FORMS)
@pytest.mark.parametrize("text", [UPDATED, skipped(1, "1, 2")], ids=["updated", "skipped"])
def test_forms_in_which_a_line_comes(form: str, ms: int, text: str) -> None:
    head = head_of(form.format(text), Clock(ZoneInfo("UTC")))
    assert head is not None
    assert (head.ts % 1000, head.ts // 1000, head.level, head.text) == (ms, 1795343753, "INFO", text)
    assert head.logger is not None
    assert re.search(KEPT_PATTERN, form.format(text))


# -- of a partition ---------------------------------------------------------------------------------------------------


def woven(*told: tuple[int, str]) -> list[dict[str, Any]]:
    """Rows from (second, message) of nodes whose clocks agree."""
    facts: list[Fact] = []
    for number, (second, text) in enumerate(told):
        reader = LogReader(ZoneInfo("UTC"), None)
        line = f"[2026-11-22 10:35:{second:02d},{number:03d}] INFO {text} (kafka.cluster.Partition)"
        facts += reader.feed(line, Place(f"file-{text[:20]}", number))
        assert reader.bad == []
    weave = Weave(brokers=frozenset({1, 2, 3}))
    for fact in sorted((f for f in facts if f.partition is not None), key=lambda f: (f.at_us, f.sub)):
        weave.feed(fact)
    weave.finish()
    return [dict(zip(EMITTED, row, strict=True)) for row in weave.rows]


def brief(rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(r["ev"], r["broker"], r["zk_version"], r["isr"], r["err"]) for r in rows]


def test_a_new_partition_that_three_controllers_tell_of_is_created_once() -> None:
    rows = woven((1, created(101)), (1, created(102)), (40, created(103)))
    assert brief(rows) == [("assign", 101, None, None, None), ("elect", 101, 0, [1, 2, 3], None)]
    again = woven((1, created(101)), (2, created(102, "other")))
    assert [row["ev"] for row in again] == ["assign", "elect", "assign", "elect"]


def test_a_move_that_a_controller_reads_again_after_a_restart_did_not_happen_again() -> None:
    assert [row["ev"] for row in woven((1, MOVED), (30, MOVED))] == ["assign"]


def test_a_state_that_every_broker_tells_in_passing_is_one_change_by_the_controller() -> None:
    rows = woven((1, created(9)), (2, skipped(1, "1, 2", by=2)), (2, skipped(1, "1, 2")), (3, skipped(1, "1, 2", by=3)))
    assert brief(rows)[2:] == [("elect", 2, 1, [1, 2], None)]


def test_whoever_is_let_in_within_an_epoch_was_let_in_by_the_leader() -> None:
    rows = woven((1, created(9)), (2, skipped(1, "1, 2", by=2)), (3, skipped(2, "1, 2, 3", by=2)))
    (row,) = [row for row in rows if row["ev"] == "isr_expand"]
    assert (row["broker"], row["replica"], row["isr_old"], row["isr"]) == (1, 3, [1, 2], [1, 2, 3])
    assert (row["zk_version"], row["epoch"], row["err"], row["src"], row["role"]) == (2, 0, 0, "inferred", "broker")


def test_a_shrink_that_shows_in_the_log_before_its_answer_is_the_leaders() -> None:
    rows = woven((1, created(9)), (2, SHRINKING), (2, skipped(1, "1, 2", by=2)), (3, UPDATED), (3, skipped(1, "1, 2")))
    assert brief(rows)[2:] == [("isr_shrink", 1, 1, [1, 2], 0)]
    assert (rows[2]["cu"], rows[2]["hw"]) == (1795343743466, 5)
    unanswered = woven((1, created(9)), (2, SHRINKING), (2, skipped(1, "1, 2", by=2)), (3, skipped(1, "1, 2")))
    assert brief(unanswered)[2:] == [("isr_shrink", 1, 1, [1, 2], 0)]


def test_a_shrink_that_the_controller_rejected_was_its_own_doing() -> None:
    rows = woven((1, created(9)), (2, SHRINKING), (2, REJECTED), (2, skipped(1, "1, 2")))
    assert [(r["ev"], r["zk_version"], r["err"]) for r in rows[2:]] == [("isr_shrink", None, 95), ("elect", 1, None)]
