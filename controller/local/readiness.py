"""Whether a local cluster is whole: every broker knows every other, and every partition has a leader."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, Final

from controller.admin.cluster.client import AdminClient
from controller.admin.cluster.failures import ClusterUnreachable, Refused
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId
from controller.world.real.net import TcpNetwork

LIMIT_S: Final = 15.0
#: What each broker adds to that.
EACH_S: Final = 0.5
_LOOK_S: Final = 0.2
_ASK_ALL_MAX: Final = 10


async def wait_until_whole(bootstrap: str, brokers: Collection[BrokerId], *, limit_s: float = LIMIT_S) -> str | None:
    """None once the cluster is whole; after `limit_s` seconds, one line that says what is still missing.

    Of many brokers only the first, a middle and the last one are asked: each answer lists every partition.
    """
    limit = asyncio.get_running_loop().time() + limit_s + EACH_S * len(brokers)
    async with AdminClient(TcpNetwork(), bootstrap) as admin:
        while True:
            missing = await _missing(admin, brokers)
            if missing is None or asyncio.get_running_loop().time() > limit:
                return missing
            await asyncio.sleep(_LOOK_S)


async def _missing(admin: AdminClient, brokers: Collection[BrokerId]) -> str | None:
    for broker_id in _asked(sorted(brokers)):
        try:
            body = {"topics": None, "allow_auto_topic_creation": False}
            found = what_is_missing(await admin.call_broker(broker_id, ApiKey.METADATA, body), brokers)
        except (Refused, ClusterUnreachable) as error:
            return f"broker {broker_id} does not answer: {error}"
        if found is not None:
            return f"{found}, says broker {broker_id}"
    return None


def _asked(brokers: Sequence[BrokerId]) -> Sequence[BrokerId]:
    if len(brokers) <= _ASK_ALL_MAX:
        return brokers
    return brokers[0], brokers[len(brokers) // 2], brokers[-1]


def what_is_missing(metadata: Any, brokers: Collection[BrokerId]) -> str | None:
    """What a Metadata answer lacks of a whole cluster, None if nothing."""
    unknown = sorted(set(brokers) - {node.node_id for node in metadata.brokers})
    if unknown:
        return f"brokers {unknown} are not known yet"
    leaderless = [
        f"{topic.name}-{partition.partition_index}"
        for topic in metadata.topics
        for partition in topic.partitions
        if partition.leader_id < 0
    ]
    if leaderless:
        return f"{len(leaderless)} partitions have no leader ({leaderless[0]}, for one)"
    return None
