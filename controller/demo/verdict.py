"""Act 8: everything that the demo claims, looked at from outside, each statement true or the command fails."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from confluent_kafka import KafkaException

from controller.admin.checks import statements as checks
from controller.admin.checks.statements import Check
from controller.admin.checks.truth import Truth
from controller.admin.cluster.client import AdminClient
from controller.admin.cluster.failures import ClusterUnreachable, Refused
from controller.demo.stage import ActFailed, Stage
from controller.demo.workload import consume_all
from controller.local.check import leftovers
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId
from controller.world.real.net import TcpNetwork

#: Brokers learn of a change some milliseconds after ZooKeeper: so long may they differ before it counts.
_SETTLE_S: Final = 10.0
_LOOK_S: Final = 0.2


async def check_all(stage: Stage) -> list[Check]:
    """Ends the load and checks. Raises: ActFailed, when something cannot even be looked at."""
    stage.screen.note("waiting until every record is acknowledged")
    await asyncio.to_thread(stage.workload.join)
    stage.check_alive()
    acknowledged = stage.workload.acknowledged
    stage.screen.note("reading every record back")
    try:
        consumed = await asyncio.to_thread(consume_all, stage.bootstrap, list(acknowledged))
    except (KafkaException, TimeoutError) as error:
        raise ActFailed(f"the records cannot be read back: {error}") from error
    truth, views = await _settled(stage)
    return [
        *checks.check_records(acknowledged, consumed),
        checks.check_partitions(truth),
        checks.check_epochs(stage.history, truth, controller_epoch_at_start=stage.controller_epoch_at_start),
        checks.check_admin(await _leftovers(stage)),
        views,
    ]


async def _settled(stage: Stage) -> tuple[Truth, Check]:
    """ZooKeeper's word and the check of all views against it; taken again for a while as long as they differ."""
    stage.screen.note("asking every broker for its metadata")
    limit = asyncio.get_running_loop().time() + _SETTLE_S
    async with AdminClient(TcpNetwork(), stage.bootstrap) as admin:
        while True:
            truth = await stage.look()
            check = checks.check_views(truth, await _answers(admin, truth))
            if (check.holds and not truth.not_whole()) or asyncio.get_running_loop().time() > limit:
                return truth, check
            await asyncio.sleep(_LOOK_S)


async def _answers(admin: AdminClient, truth: Truth) -> dict[BrokerId, Any]:
    """Each broker's answer to Metadata for all topics; without those that do not answer."""
    body = {"topics": None, "allow_auto_topic_creation": False}
    answers: dict[BrokerId, Any] = {}
    for broker_id in truth.brokers:
        try:
            answers[broker_id] = await admin.call_broker(broker_id, ApiKey.METADATA, body)
        except (Refused, ClusterUnreachable):
            continue
    return answers


async def _leftovers(stage: Stage) -> list[str]:
    """Znodes below /admin that ask for something still to be done; waited for a little, like the views."""
    limit = asyncio.get_running_loop().time() + _SETTLE_S
    while True:
        left = await leftovers(stage.zk)
        if not left or asyncio.get_running_loop().time() > limit:
            return left
        await asyncio.sleep(_LOOK_S)
