"""Kafka's messages, version by version: what each says. The texts are those that the versions write."""

from __future__ import annotations

from typing import Any

import pytest

from broker_sim.replay.logs.texts import UnknownText, said_by

P7 = {"topic": "orders", "partition": 7}
SHRINK_22 = (
    "[Partition orders-7 broker=1] Shrinking ISR from 1,2,3 to 1,2. Leader: (highWatermark: 1000, endOffset: 2000). "
    "Out of sync replicas: (brokerId: 3, endOffset: 1000)."
)
SHRINK_36 = SHRINK_22.replace("endOffset: 1000).", "endOffset: 1000, lastCaughtUpTimeMs: 1717315210000).")
GONE_36 = SHRINK_22.replace("endOffset: 1000).", "endOffset: unknown, lastCaughtUpTimeMs: unknown).")
SHRINK = {**P7, "what": "shrinking", "isr_old": [1, 2, 3], "isr": [1, 2]}
ENDS = {"hw": 1000, "leo": 2000}
LEADS = {**P7, "what": "leader", "epoch": 6, "offset": 5000, "leo": 5000, "hw": 4980, "isr": [2, 3], "adding": []}
ELECTED = {**P7, "what": "elect", "epoch": 8, "replica": 2, "isr": [2, 3], "zk_version": 52}
CUT = {**P7, "what": "elect", "epoch": 8, "replica": 2, "isr": [2, 3], "key": "cut"}
MOVED = {**P7, "what": "assign", "replicas": [4, 2, 3, 1], "adding": [4], "removing": [1]}

SAYS: list[tuple[str, str, int | None, list[dict[str, Any]]]] = [
    (
        "2.1 shrinks without ends",
        "[Partition orders-7 broker=1] Shrinking ISR from 1,2,3 to 1,2",
        1,
        [{**SHRINK, "hw": None, "leo": None, "value": None}],
    ),
    ("2.2 shrinks with ends", SHRINK_22, 1, [{**SHRINK, **ENDS, "value": "3:1000:"}]),
    ("3.6 tells when it was caught up", SHRINK_36, 1, [{**SHRINK, **ENDS, "value": "3:1000:1717315210000"}]),
    ("3.6 drops one that is not assigned", GONE_36, 1, [{**SHRINK, **ENDS, "value": "3::"}]),
    (
        "2.7 expands",
        "[Partition orders-7 broker=1] Expanding ISR from 1,2 to 1,2,3",
        1,
        [{**P7, "what": "expanding", "isr_old": [1, 2], "isr": [1, 2, 3]}],
    ),
    *[
        (f"{version} has written", f"[Partition orders-7 broker=1] ISR updated to {text}", 1,
         [{**P7, "what": "updated", "isr": [1, 2], "zk_version": 41}])
        for version, text in (
            ("2.4", "[1,2] and zkVersion updated to [41]"),
            ("2.8", "1,2 and version updated to [41]"),
            ("3.1", "1,2 and version updated to 41"),
            ("3.5", "1,2  and version updated to 41"),
            ("3.5 under min ISR", "1,2 (under-min-isr) and version updated to 41"),
        )
    ],
    *[
        (f"{version} lost a race", f"[Partition orders-7 broker=1] {text}", 1,
         [{**P7, "what": "refused", "zk_version": version_told}])
        for version, text, version_told in (
            ("2.3", "Cached zkVersion [40] not equal to that in zookeeper, skip updating ISR", 40),
            ("2.4", "Cached zkVersion 40 not equal to that in zookeeper, skip updating ISR", 40),
            ("3.9", "Failed to alter partition to PendingShrinkIsr(outOfSyncReplicaIds=Set(3))", None),
            ("3.9 after a LeaderAndIsr", "Ignoring failed ISR update to PendingExpandIsr(newIn", None),
        )
    ],
    (
        "2.4 leads",
        "[Partition orders-7 broker=2] orders-7 starts at Leader Epoch 6 from offset 5000. "
        "Previous Leader Epoch was: 5",
        2,
        [{**P7, "what": "leader", "epoch": 6, "offset": 5000, "leo": 5000, "hw": None}],
    ),
    (
        "2.5 leads",
        "[Partition orders-7 broker=2] orders-7 starts at leader epoch 6 from offset 5000 with high watermark 4980. "
        "Previous leader epoch was 5.",
        2,
        [{**P7, "what": "leader", "epoch": 6, "offset": 5000, "leo": 5000, "hw": 4980}],
    ),
    (
        "2.6 leads",
        "[Broker id=2] Leader orders-7 starts at leader epoch 6 from offset 5000 with high watermark 4980 ISR [2,3] "
        "addingReplicas [] removingReplicas []. Previous leader epoch was 5.",
        2,
        [{**LEADS, "removing": [], "zk_version": None}],
    ),
    (
        "3.9 leads",
        "[Broker id=2] Leader orders-7 with topic id None starts at leader epoch 6 from offset 5000 with partition "
        "epoch 44, high watermark 4980, ISR [2,3], adding replicas [] and removing replicas [1] . Previous leader "
        "Some(1) and previous leader epoch was 5.",
        2,
        [{**LEADS, "removing": [1], "zk_version": 44}],
    ),
    (
        "2.6 follows",
        "[Broker id=3] Follower orders-7 starts at leader epoch 6 from offset 4990 with high watermark 4980. Previous "
        "leader epoch was 5.",
        3,
        [{**P7, "what": "follower", "epoch": 6, "replica": None, "offset": 4990, "hw": 4980, "zk_version": None}],
    ),
    (
        "3.9 follows",
        "[Broker id=3] Follower orders-7 starts at leader epoch 6 from offset 4990 with partition epoch 44 and high "
        "watermark 4980. Current leader is 2. Previous leader Some(2) and previous leader epoch was 6.",
        3,
        [{**P7, "what": "follower", "epoch": 6, "replica": 2, "offset": 4990, "hw": 4980, "zk_version": 44}],
    ),
    *[
        (f"{version} elects", f"[Controller id=1 epoch=9] Changed partition orders-7 from OnlinePartition to "
         f"OnlinePartition with state LeaderAndIsr(leader=2, leaderEpoch=8, {rest})", 1, [ELECTED])
        for version, rest in (
            ("2.6", "isr=List(2, 3), zkVersion=52"),
            ("3.2", "isr=List(2, 3), leaderRecoveryState=RECOVERED, zkVersion=52"),
            ("3.3", "isr=List(2, 3), leaderRecoveryState=RECOVERED, partitionEpoch=52"),
            ("3.5", "isrWithBrokerEpoch=List(BrokerState(brokerId=2, brokerEpoch=-1), BrokerState(brokerId=3, "
                    "brokerEpoch=-1)), leaderRecoveryState=RECOVERED, partitionEpoch=52"),
        )
    ],
    (
        "2.6 cuts",
        "[Controller id=1 epoch=9] Partition orders-7 state changed to (Leader:2,ISR:2,3,LeaderEpoch:8,"
        "ControllerEpoch:9) after removing replica 1 from the ISR as part of transition to OfflineReplica",
        1,
        [{**CUT, "zk_version": None}],
    ),
    (
        "3.9 cuts",
        "[Controller id=1 epoch=9] Partition orders-7 state changed to (Leader:2,ISR:2,3,LeaderRecoveryState:RECOVERED,"
        "LeaderEpoch:8,ZkVersion:53,ControllerEpoch:9) after removing replica 1 from the ISR as part of transition to "
        "OfflineReplica",
        1,
        [{**CUT, "zk_version": 53}],
    ),
    (
        "a reassignment begins",
        "[Controller id=1] Successfully updated assignment of partition orders-7 to ReplicaAssignment("
        "replicas=4,2,3,1, addingReplicas=4, removingReplicas=1)",
        1,
        [MOVED],
    ),
    (
        "an epoch is raised",
        "[Controller id=1] Updated leader epoch for partition orders-7 to 4, zkVersion=12",
        1,
        [{**P7, "what": "bump", "epoch": 4, "zk_version": 12}],
    ),
    (
        "brokers come, go and bounce",
        "[Controller id=1] Newly added brokers: 4, deleted brokers: 2,3, bounced brokers: 5, all live brokers: 1,4,5",
        1,
        [{"what": "broker_down", "replica": b} for b in (2, 3, 5)]
        + [{"what": "broker_up", "replica": b} for b in (4, 5)],
    ),
    (
        "a new controller looks around",
        "[Controller id=1] Currently active brokers in the cluster: Set(1, 2)",
        1,
        [{"what": "live", "replicas": [1, 2]}],
    ),
    (
        "3.x creates a log",
        "Created log for partition orders-7 in /data/orders-7 with properties {min.insync.replicas=2}",
        None,
        [{"what": "config", "topic": "orders", "key": "min.insync.replicas", "value": "2"}],
    ),
    (
        "1.0 creates a log",
        "Created log for partition [a-b,7] in /data with properties {min.insync.replicas -> 2}.",
        None,
        [{"what": "config", "topic": "a-b", "key": "min.insync.replicas", "value": "2"}],
    ),
    (
        "1.1 raises an epoch",
        "[Controller id=1] Updated leader epoch for partition orders-7 to 4",
        1,
        [{**P7, "what": "bump", "epoch": 4, "zk_version": None}],
    ),
    (
        "2.x creates a log",
        "Created log for partition orders-7 in /data/orders-7 with properties {compression.type -> producer, "
        "min.insync.replicas -> 2}.",
        None,
        [{"what": "config", "topic": "orders", "key": "min.insync.replicas", "value": "2"}],
    ),
    (
        "an override names all that are left",
        "Processing override for entityPath: topics/orders with config: HashMap(min.insync.replicas -> 2)",
        None,
        [
            {"what": "config", "topic": "orders", "key": "*", "sub": -1},
            {"what": "config", "topic": "orders", "key": "min.insync.replicas", "value": "2"},
        ],
    ),
    (
        "a topic with hyphens",
        "Log for partition a-b-3 is renamed to /data/a-b-3.0f-delete and is scheduled for deletion",
        None,
        [{"topic": "a-b", "partition": 3, "what": "stop", "key": "/data", "value": "delete"}],
    ),
    (
        "a copy in another dir is begun",
        "Created log for partition orders-7 in /more/orders-7.0f-future with properties {min.insync.replicas=2}",
        None,
        [
            {**P7, "what": "copy", "key": "/more"},
            {"what": "config", "topic": "orders", "key": "min.insync.replicas", "value": "2"},
        ],
    ),
    (
        "a copy takes the place of its log",
        "The current replica is successfully replaced with the future replica for orders-7",
        None,
        [{**P7, "what": "copied"}],
    ),
]  # fmt: skip
SAYS_NOTHING = [
    "[Partition orders-7 broker=1] Log loaded for partition orders-7 with initial high watermark 0",
    "[Controller id=1 epoch=9] Changed partition orders-7 state from OnlinePartition to OfflinePartition",
    "[Controller id=1, targetBrokerId=2] Node 2 disconnected.",
    "[Broker id=2] Handling LeaderAndIsr request correlationId 3 from controller 1 for 4 partitions",
    "[KafkaServer id=1] started",
    "something else",
]


@pytest.mark.parametrize(("text", "speaker", "says"), [row[1:] for row in SAYS], ids=[row[0] for row in SAYS])
def test_a_message_says(text: str, speaker: int | None, says: list[dict[str, Any]]) -> None:
    assert said_by(text) == (speaker, says)


@pytest.mark.parametrize("text", SAYS_NOTHING)
def test_most_messages_say_nothing(text: str) -> None:
    assert said_by(text)[1] == []


@pytest.mark.parametrize(
    "text",
    [
        "[Partition orders-7 broker=1] Shrinking ISR from 1,2,3 down to 1",
        "[Partition orders-7 broker=1] ISR updated to 1,2 and version upd",
        "[Broker id=2] Leader orders-7 starts at leader epoch 6 from offset 50",
        "[Controller id=1] Updated leader epoch for partition orders-7 to four",
    ],
)
def test_a_message_that_goes_on_otherwise_is_told_of(text: str) -> None:
    with pytest.raises(UnknownText):
        said_by(text)
