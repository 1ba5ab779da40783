"""Acts 5 and 7: what an operator does on purpose: move a topic, delete one, stop a broker."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

from controller.admin.cluster.client import AdminClient
from controller.admin.cluster.failures import ClusterUnreachable, Refused
from controller.admin.reassignment.progress import Progress, watch
from controller.demo.build import BY_ZNODE, PAYMENTS
from controller.demo.stage import ActFailed, Stage
from controller.wire.types import BrokerId, TopicPartition
from controller.world.real.net import TcpNetwork

STOPPED: Final = BrokerId(1)
#: Low enough to see the bytes go, high enough for the demo's two minutes.
THROTTLE_BYTES_PER_S: Final = 2_000_000
_MOVE_S: Final = 60.0
_PLANS_MAX: Final = 20
_DELETE_S: Final = 30.0
_HEAL_S: Final = 30.0


async def reassign(stage: Stage) -> str:
    """Act 5. `--generate`, `--execute` with a throttle, a bar by bytes, `--verify`."""
    plan, moves, before = await _plan_with_moves(stage)
    began = time.monotonic()
    flags = ("reassign-partitions", "--reassignment-json-file", str(plan))
    await stage.tool(*flags, "--execute", "--throttle", str(THROTTLE_BYTES_PER_S))
    added = {tp: frozenset(map(BrokerId, {*replicas} - {*before[tp]})) for tp, replicas in moves.items()}
    copied = await _show_progress(stage, {tp: brokers for tp, brokers in added.items() if brokers})
    await stage.until("the reassignment is complete", lambda t: _has_moved(t.partitions, moves), timeout_s=_MOVE_S)
    lines = await stage.tool(*flags, "--verify")
    if "still in progress" in lines or "was interrupted" in lines or "Clearing" not in lines:
        raise ActFailed(f"--verify says: {lines.strip().splitlines()[-1]}")
    took_s = time.monotonic() - began
    with_copies = sum(set(replicas) != set(before[tp]) for tp, replicas in moves.items())
    reordered = f" and {len(moves) - with_copies} reordered" if with_copies < len(moves) else ""
    return (
        f"{PAYMENTS}: {with_copies} of 12 partitions moved{reordered} in {took_s:.1f} s, {copied / 1e6:.1f} MB copied "
        f"under a throttle of {THROTTLE_BYTES_PER_S / 1e6:g} MB/s; --verify found it complete and took the "
        "throttle away"
    )


Replicas = dict[TopicPartition, tuple[int, ...]]


async def _plan_with_moves(stage: Stage) -> tuple[Path, Replicas, Replicas]:
    """A plan of the tool, what it moves, and what there was. It may propose what there is (it starts anywhere): then it
    is asked again.

    Raises: ActFailed.
    """
    current = (await stage.look()).of([PAYMENTS])
    for _ in range(_PLANS_MAX):
        plan = await _generate(stage)
        moves = _moves(current, json.loads(plan.read_text()))
        if any(set(replicas) != set(current[tp].assignment.replicas) for tp, replicas in moves.items()):
            return plan, moves, {tp: tuple(current[tp].assignment.replicas) for tp in moves}
    raise ActFailed(f"--generate proposed no move in {_PLANS_MAX} plans")


async def _generate(stage: Stage) -> Path:
    """Asks the tool for a plan. Returns the file with what it proposed."""
    topics = stage.out / "topics-to-move.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": PAYMENTS}]}))
    brokers = ",".join(str(broker.broker_id) for broker in stage.cluster.plan.brokers)
    flags = ("--topics-to-move-json-file", str(topics), "--broker-list", brokers)
    lines = await stage.tool("reassign-partitions", "--generate", *flags)
    _, found, proposed = lines.partition("Proposed partition reassignment configuration")
    if not found:
        raise ActFailed(f"--generate proposed nothing: {lines.strip().splitlines()[-1:]}")
    plan = stage.out / "reassignment.json"
    plan.write_text(proposed.strip() + "\n")
    return plan


def _moves(current: dict[TopicPartition, Any], plan: dict[str, Any]) -> dict[TopicPartition, tuple[int, ...]]:
    """The partitions that get another list of replicas, with the list."""
    targets = {TopicPartition(row["topic"], row["partition"]): tuple(row["replicas"]) for row in plan["partitions"]}
    return {tp: replicas for tp, replicas in targets.items() if current[tp].assignment.replicas != replicas}


def _has_moved(partitions: dict[TopicPartition, Any], moves: dict[TopicPartition, tuple[int, ...]]) -> bool:
    return all(
        partitions[tp].assignment.replicas == replicas
        and not partitions[tp].assignment.is_being_reassigned
        and partitions[tp].is_whole
        for tp, replicas in moves.items()
    )


async def _show_progress(stage: Stage, added: dict[TopicPartition, frozenset[BrokerId]]) -> int:
    """Shows the bytes that the new replicas copy, until all partitions are done. Returns how many that were."""
    last: Progress | None = None
    stage.screen.note("the new replicas copy")
    try:
        async with AdminClient(TcpNetwork(), stage.bootstrap) as admin:
            with stage.screen.bytes_bar(f"copying {PAYMENTS}") as bar:
                async for look in watch(admin, added.keys(), added=added, every_s=0.25):
                    bar.show(look.bytes_done, look.bytes_total)
                    last = look if last is None or look.bytes_total >= last.bytes_total else last
    except (Refused, ClusterUnreachable) as error:
        raise ActFailed(f"the reassignment cannot be watched: {error}") from error
    return last.bytes_done if last is not None else 0


async def delete_and_stop(stage: Stage) -> str:
    """Act 7. A topic is deleted; a broker is stopped by controlled shutdown, and started again."""
    dropped = stage.workload.drop_topic(BY_ZNODE)
    await stage.tool("topics", "--delete", "--topic", BY_ZNODE)
    await stage.until(f"{BY_ZNODE} is gone", lambda truth: BY_ZNODE not in truth.topics, timeout_s=_DELETE_S)
    before = await stage.look()
    led = [tp for tp, partition in before.partitions.items() if partition.leader == STOPPED]
    stage.screen.note(f"stopping broker {STOPPED} by controlled shutdown")
    began = time.monotonic()
    if not await stage.cluster.stop_broker(STOPPED):
        raise ActFailed(f"broker {STOPPED} did not end its controlled shutdown")
    stopped_s = time.monotonic() - began
    after = await stage.look()
    left = [str(tp) for tp in led if after.partitions[tp].leader in (None, STOPPED)]
    if left:
        raise ActFailed(f"broker {STOPPED} ended while it led {', '.join(left)}")
    await stage.cluster.start_broker(STOPPED)
    await stage.until(f"broker {STOPPED} is in every ISR again", lambda truth: not truth.not_whole(), timeout_s=_HEAL_S)
    return (
        f"{BY_ZNODE} deleted with its {dropped} records; broker {STOPPED} handed over {len(led)} leaders by controlled "
        f"shutdown and was gone after {stopped_s:.1f} s; started again, it rejoined"
    )
