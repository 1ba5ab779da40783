"""Topics that faults name: a fault on one that there is not yet is in force, and does nothing until it comes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from controller.admin.cluster.client import AdminClient, Timeouts
from controller.admin.cluster.failures import ClusterUnreachable, Refused
from controller.local.cluster_file import ClusterRow
from controller.wire.fault_rows import Fault, PauseReplication
from controller.wire.protocol import ApiKey
from controller.world.real.net import TcpNetwork

_ANSWER_S: Final = 2.0


def tell_absent_topics(rows: Sequence[Fault], cluster: ClusterRow) -> None:
    """A line on standard error for each topic or partition that rows name and the cluster does not have.

    When nobody answers within two seconds nothing is told: the fault is good all the same.
    """
    if not _named(rows):
        return
    try:
        counts = asyncio.run(_partition_counts(cluster.bootstrap))
    except (ClusterUnreachable, Refused, OSError, TimeoutError):
        return
    remark(rows, counts)


def remark(rows: Iterable[Fault], counts: Mapping[str, int]) -> None:
    """Tells of the topics that are not among these, and of partitions beyond their number."""
    for topic, partition in sorted(_named(rows), key=str):
        what = f"topic {topic}" if topic not in counts else f"partition {topic}-{partition}"
        if topic not in counts or (partition is not None and partition >= counts[topic]):
            print(f"kwob fault: note: there is no {what} now; the fault waits for it", file=sys.stderr)


def _named(rows: Iterable[Fault]) -> set[tuple[str, int | None]]:
    return {(row.topic, row.partition) for row in rows if isinstance(row, PauseReplication) and row.topic is not None}


async def _partition_counts(bootstrap: str) -> dict[str, int]:
    limits = Timeouts(request_s=_ANSWER_S, call_s=_ANSWER_S, bootstrap_s=_ANSWER_S, missing_broker_s=_ANSWER_S)
    async with asyncio.timeout(_ANSWER_S), AdminClient(TcpNetwork(), bootstrap, timeouts=limits) as admin:
        answer = await admin.call_any(ApiKey.METADATA, {"topics": None, "allow_auto_topic_creation": False})
        return {topic.name: len(topic.partitions) for topic in answer.topics}
