"""What brokers of Kafka 3.9 advertise, ours do, or docs/deviations.md says why not, request by request."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker_sim.apis import api_versions
from broker_sim.apis.table import ROWS
from controller.wire.protocol import ApiKey

DEVIATIONS = Path(__file__).parents[3] / "docs" / "deviations.md"

#: key -> request, its first and last version; of the schemas of Kafka 3.9 that name `zkBroker`.
KAFKA: dict[int, tuple[str, int, int]] = {
    0: ("Produce", 0, 11),
    1: ("Fetch", 0, 17),
    2: ("ListOffsets", 0, 9),
    3: ("Metadata", 0, 12),
    4: ("LeaderAndIsr", 0, 7),
    5: ("StopReplica", 0, 4),
    6: ("UpdateMetadata", 0, 8),
    7: ("ControlledShutdown", 0, 3),
    8: ("OffsetCommit", 0, 9),
    9: ("OffsetFetch", 0, 9),
    10: ("FindCoordinator", 0, 6),
    11: ("JoinGroup", 0, 9),
    12: ("Heartbeat", 0, 4),
    13: ("LeaveGroup", 0, 5),
    14: ("SyncGroup", 0, 5),
    15: ("DescribeGroups", 0, 5),
    16: ("ListGroups", 0, 5),
    17: ("SaslHandshake", 0, 1),
    18: ("ApiVersions", 0, 4),
    19: ("CreateTopics", 0, 7),
    20: ("DeleteTopics", 0, 6),
    21: ("DeleteRecords", 0, 2),
    22: ("InitProducerId", 0, 5),
    23: ("OffsetForLeaderEpoch", 0, 4),
    24: ("AddPartitionsToTxn", 0, 5),
    25: ("AddOffsetsToTxn", 0, 4),
    26: ("EndTxn", 0, 4),
    27: ("WriteTxnMarkers", 0, 1),
    28: ("TxnOffsetCommit", 0, 4),
    29: ("DescribeAcls", 0, 3),
    30: ("CreateAcls", 0, 3),
    31: ("DeleteAcls", 0, 3),
    32: ("DescribeConfigs", 0, 4),
    33: ("AlterConfigs", 0, 2),
    34: ("AlterReplicaLogDirs", 0, 2),
    35: ("DescribeLogDirs", 0, 4),
    36: ("SaslAuthenticate", 0, 2),
    37: ("CreatePartitions", 0, 3),
    38: ("CreateDelegationToken", 0, 3),
    39: ("RenewDelegationToken", 0, 2),
    40: ("ExpireDelegationToken", 0, 2),
    41: ("DescribeDelegationToken", 0, 3),
    42: ("DeleteGroups", 0, 2),
    43: ("ElectLeaders", 0, 2),
    44: ("IncrementalAlterConfigs", 0, 1),
    45: ("AlterPartitionReassignments", 0, 0),
    46: ("ListPartitionReassignments", 0, 0),
    47: ("OffsetDelete", 0, 0),
    48: ("DescribeClientQuotas", 0, 1),
    49: ("AlterClientQuotas", 0, 1),
    50: ("DescribeUserScramCredentials", 0, 0),
    51: ("AlterUserScramCredentials", 0, 0),
    56: ("AlterPartition", 0, 3),
    57: ("UpdateFeatures", 0, 1),
    58: ("Envelope", 0, 0),
    60: ("DescribeCluster", 0, 1),
    61: ("DescribeProducers", 0, 0),
    65: ("DescribeTransactions", 0, 0),
    66: ("ListTransactions", 0, 1),
    67: ("AllocateProducerIds", 0, 0),
    68: ("ConsumerGroupHeartbeat", 0, 0),
    69: ("ConsumerGroupDescribe", 0, 0),
}
OURS = {**{int(key): row.versions for key, row in ROWS.items()}, int(ApiKey.API_VERSIONS): api_versions.VERSIONS}


def argued() -> dict[str, tuple[str, str]]:
    """What the table says: request -> Kafka's versions and those here."""
    section = DEVIATIONS.read_text(encoding="utf-8").partition("## Versions of requests")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([A-Z][\w, ]+) \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", section, re.MULTILINE)
    return {name: (kafka, here) for names, kafka, here in rows for name in names.split(", ")}


def expected(key: int) -> tuple[str, str] | None:
    """What must stand in the table: nothing, where all of Kafka's versions are served."""
    _, first, last = KAFKA[key]
    if key not in OURS:
        return "all", "none"
    ours = OURS[key]
    return None if ours == (first, last) else (f"{first}–{last}", f"{ours[0]}–{ours[1]}")


@pytest.mark.parametrize("key", KAFKA, ids=[name for name, _, _ in KAFKA.values()])
def test_a_version_of_kafkas_is_served_or_it_is_said_why_not(key: int) -> None:
    assert argued().get(KAFKA[key][0]) == expected(key)


def test_nothing_else_is_argued_or_served() -> None:
    assert set(argued()) <= {name for name, _, _ in KAFKA.values()}
    assert {key for key, (first, last) in OURS.items() if first < KAFKA[key][1] or last > KAFKA[key][2]} == set()
