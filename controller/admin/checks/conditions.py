"""Conditions of a cluster that one can wait for, as its brokers tell them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from controller.admin.cluster.client import BOOTSTRAP_TIMEOUT_S, AdminClient
from controller.admin.cluster.failures import ClusterUnreachable, Refused
from controller.admin.cluster.queries import list_reassignments, topic_names
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId

_LOOK_S: Final = 0.05
_LOOK_MAX_S: Final = 0.5
_NAMED: Final = 3
#: A broker that takes longer is told as one that does not answer.
_ANSWER_S: Final = 1.0
#: What a look gets at least, however little time is left: enough to find out that no broker is there, and to say so.
_LEAST_S: Final = BOOTSTRAP_TIMEOUT_S + _ANSWER_S


class Condition(StrEnum):
    """What can be waited for."""

    #: Every partition has a leader, as every broker tells it.
    LEADER = "leader"
    #: Every partition has a leader, and all its replicas are in its ISR, as every broker tells it.
    FULL_ISR = "full-isr"
    #: No partition is being reassigned. Of a topic that there is not, this cannot be said.
    NO_MOVES = "no-moves"


async def wait_until(
    admin: AdminClient,
    conditions: Sequence[Condition],
    *,
    topics: Collection[str] = (),
    going: Collection[int] = (),
    timeout_s: float,
) -> str | None:
    """None once all hold at the same look; after `timeout_s`, one line that says what does not. No topics: all.

    `going`: brokers that are about to end. What they lead has no leader that will be one.
    """
    loop = asyncio.get_running_loop()
    limit_s, pause_s = loop.time() + timeout_s, _LOOK_S
    missing: str | None = "the cluster does not answer"
    while True:
        try:
            async with asyncio.timeout_at(max(limit_s, loop.time() + _LEAST_S)):
                missing = await unmet(admin, conditions, topics, going)
        except (ClusterUnreachable, Refused) as error:
            missing = str(error)
        except TimeoutError:  # a call may take a minute; what the last look saw is still the best that is there
            pass
        if missing is None or loop.time() >= limit_s:
            return missing
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LOOK_MAX_S)


async def unmet(
    admin: AdminClient, conditions: Sequence[Condition], topics: Collection[str], going: Collection[int] = ()
) -> str | None:
    """What keeps one of them from holding now, in one line. Raises: ClusterUnreachable, Refused."""
    if set(conditions) & {Condition.LEADER, Condition.FULL_ISR}:
        brokers = sorted(await admin.brokers())
        views = dict(zip(brokers, await asyncio.gather(*(_view(admin, b) for b in brokers)), strict=True))
        missing = trouble(views, topics, is_full=Condition.FULL_ISR in conditions, going=going)
        if missing is not None:
            return missing
    if Condition.NO_MOVES in conditions:
        absent = sorted(set(topics) - (await topic_names(admin)).keys()) if topics else []
        if absent:
            return f"there is no topic {absent[0]}"
        moving = [tp for tp in await list_reassignments(admin) if not topics or tp.topic in topics]
        if moving:
            return f"{_some([str(tp) for tp in moving])} being reassigned"
    return None


async def _view(admin: AdminClient, broker_id: BrokerId) -> Any:
    body = {"topics": None, "allow_auto_topic_creation": False}
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await admin.call_broker(broker_id, ApiKey.METADATA, body)
    except (ClusterUnreachable, Refused, TimeoutError):
        return None


def trouble(
    views: Mapping[BrokerId, Any], topics: Collection[str], *, is_full: bool, going: Collection[int] = ()
) -> str | None:
    """What the brokers' answers to Metadata (None: it gave none) lack. No topics: all that there are."""
    if not views:
        return "no broker is registered, says who answers"
    for broker_id, view in views.items():
        if view is None:
            return f"broker {broker_id} does not answer"
        by_name = {topic.name: topic for topic in view.topics}
        absent = sorted(set(topics) - by_name.keys())
        if absent:
            return f"broker {broker_id} knows no topic {absent[0]}"
        partitions = [
            (f"{name}-{partition.partition_index}", partition)
            for name, topic in sorted(by_name.items())
            if not topics or name in topics
            for partition in topic.partitions
        ]
        leaderless = [name for name, partition in partitions if partition.leader_id < 0]
        if leaderless:
            return f"{_some(leaderless)} without a leader, says broker {broker_id}"
        left = [name for name, partition in partitions if partition.leader_id in going]
        if left:
            return f"{_some(left)} led by a broker that is about to end, says broker {broker_id}"
        short = [name for name, p in partitions if is_full and set(p.isr_nodes) != set(p.replica_nodes)]
        if short:
            return f"{_some(short)} without a full ISR, says broker {broker_id}"
    return None


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more + (" is" if len(names) == 1 else " are")
