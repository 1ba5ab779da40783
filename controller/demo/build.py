"""Acts 1 and 2: the cluster gets topics, and load that goes on until the end."""

from __future__ import annotations

from typing import Final

from controller.admin.checks.truth import PartitionTruth, Truth
from controller.demo.stage import ActFailed, Stage
from controller.demo.workload import Load
from controller.wire.types import BrokerId, ReplicaAssignment
from controller.wire.zk_operations import Create
from controller.wire.znodes import TopicAssignment, TopicZNode

ORDERS: Final = "orders"
PAYMENTS: Final = "payments"
#: Made by writing its znode: four partitions, one of them with a single replica.
BY_ZNODE: Final = "topic-test7"
TOPICS: Final = (ORDERS, PAYMENTS, BY_ZNODE)
_BY_ZNODE_REPLICAS: Final = {0: (1, 2), 1: (2,), 2: (1, 2), 3: (2, 1)}

LOADS: Final = (
    Load(topic=ORDERS, partitions=6, value_bytes=200),
    Load(topic=PAYMENTS, partitions=12, value_bytes=10_000),
    Load(topic=BY_ZNODE, partitions=4, value_bytes=100),
)
_CREATE_S: Final = 20.0
_FIRST_RECORDS_S: Final = 20.0


async def create_topics(stage: Stage) -> str:
    """Act 1. Two topics with the tool, rack-aware, and one by its znode."""
    await stage.tool("topics", "--create", "--topic", ORDERS, "--partitions", "6", "--replication-factor", "3")
    await stage.tool("topics", "--create", "--topic", PAYMENTS, "--partitions", "12", "--replication-factor", "2")
    assignment = {
        partition: ReplicaAssignment(replicas=tuple(BrokerId(replica) for replica in replicas))
        for partition, replicas in _BY_ZNODE_REPLICAS.items()
    }
    data = TopicZNode.encode(TopicAssignment(partitions=assignment))
    created = (await stage.zk.perform([Create(TopicZNode.path(BY_ZNODE), data)]))[0]
    if not created.ok:
        raise ActFailed(f"{TopicZNode.path(BY_ZNODE)} could not be written: {created.code.name}")
    truth = await stage.until("all partitions have leaders and full ISRs", _has_all_topics, timeout_s=_CREATE_S)
    _require_rack_aware(truth)
    return (
        f"{ORDERS} 6 × RF 3 and {PAYMENTS} 12 × RF 2 by CreateTopics, each partition's replicas in different racks; "
        f"{BY_ZNODE} by its znode, with 1 to 2 replicas"
    )


def _has_all_topics(truth: Truth) -> bool:
    return truth.topics >= set(TOPICS) and not truth.not_whole()


def _require_rack_aware(truth: Truth) -> None:
    """Raises: ActFailed, when two replicas of a partition made by the tool share a rack."""
    for tp, partition in truth.of((ORDERS, PAYMENTS)).items():
        if len(_racks(truth, partition)) != len(partition.assignment.replicas):
            raise ActFailed(f"{tp} has replicas {partition.assignment.replicas} in the same rack")


def _racks(truth: Truth, partition: PartitionTruth) -> set[str | None]:
    return {truth.brokers[replica].rack for replica in partition.assignment.replicas}


async def start_load(stage: Stage) -> str:
    """Act 2. Load on every partition; goes on until act 8."""
    stage.workload.start()
    counts = stage.workload.counts
    await stage.until(
        "records are acknowledged and consumed",
        lambda _: counts.acknowledged >= 500 and counts.consumed >= 500,
        timeout_s=_FIRST_RECORDS_S,
    )
    return (
        f"an unmodified client produces with acks=all to {sum(load.partitions for load in LOADS)} partitions and reads "
        f"them in a group, from now to the end; {counts.acknowledged} acknowledged, {counts.consumed} consumed so far"
    )
