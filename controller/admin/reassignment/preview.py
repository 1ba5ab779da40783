"""Before a reassignment: its effect as a table (`--dry-run`), and a warning of a throttle with which it never ends.

This asks the cluster and prints; what the effect is, `reassignment.effect` computes. Nothing here changes anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from controller.admin.cluster.client import AdminClient
from controller.admin.cluster.failures import ClusterUnreachable, Refused
from controller.admin.cluster.log_dirs import LogDir, describe_log_dirs
from controller.admin.cluster.queries import PartitionInfo, TopicInfo, describe_topics
from controller.admin.layout.picture import show
from controller.admin.reassignment.effect import Effect, Now, PartitionMove, effect, smallest_useful_rate, steps
from controller.admin.reassignment.plan_file import ReassignmentPlan
from controller.admin.toolkit.tool import Run
from controller.wire.types import BrokerId, ReplicaAssignment, TopicPartition

#: Over how long the produce rate is measured before a throttled reassignment starts.
MEASURE_S: Final = 1.0
#: How long one broker may take to tell its log sizes.
_SIZES_TIMEOUT_S: Final = 10.0
#: Steps are told of so many partitions; the others take the same ones.
_STEPS_MAX: Final = 20


async def look(admin: AdminClient, plan: ReassignmentPlan, running: Mapping[TopicPartition, ReplicaAssignment]) -> Now:
    """What the cluster is like now, as far as the plan touches it. Raises Refused, ClusterUnreachable."""
    topics = await describe_topics(admin, {p.topic for p in plan.targets})
    partitions: dict[TopicPartition, PartitionInfo] = {
        TopicPartition(topic.name, p.partition): p
        for topic in topics.values()
        if isinstance(topic, TopicInfo)
        for p in topic.partitions
    }
    live = await admin.brokers()
    concerned = {b for p, target in plan.targets.items() for b in (*target, *partitions[p].replicas)} & set(live)
    answers = await asyncio.gather(*(_dirs_of(admin, broker) for broker in sorted(concerned)))
    return Now(
        partitions={p: partitions[p] for p in plan.targets},
        dirs=dict(zip(sorted(concerned), answers, strict=True)),
        live=frozenset(live),
        moving=running,
        is_kraft=await admin.is_kraft(),
    )


async def _dirs_of(admin: AdminClient, broker: BrokerId) -> list[LogDir]:
    """All directories of a broker; none when it does not answer in time."""
    try:
        async with asyncio.timeout(_SIZES_TIMEOUT_S):
            return (await describe_log_dirs(admin, [broker]))[broker]
    except (TimeoutError, Refused, ClusterUnreachable):
        return []


async def preview(
    run: Run, plan: ReassignmentPlan, running: Mapping[TopicPartition, ReplicaAssignment], throttle: int
) -> None:
    """`--dry-run`: prints the effect of executing the plan. Raises Refused, ClusterUnreachable."""
    now = await look(run.admin, plan, running)
    result = effect(plan.targets, plan.log_dirs, now)
    too_slow = await too_slow_for(run.admin, result, throttle) if throttle >= 0 else None
    if not run.console.as_json:
        show(run.machine.out, _parts(result, throttle))
    if too_slow is not None:
        run.console.complain(too_slow[0])
    run.console.result({"dry_run": as_json(result, throttle, too_slow[1] if too_slow else None)})


async def warn_if_too_slow(
    run: Run, plan: ReassignmentPlan, running: Mapping[TopicPartition, ReplicaAssignment], throttle: int
) -> None:
    """On standard error, when the throttle is below what is being produced. Says nothing when that cannot be told."""
    try:
        result = effect(plan.targets, plan.log_dirs, await look(run.admin, plan, running))
        too_slow = await too_slow_for(run.admin, result, throttle)
    except (Refused, ClusterUnreachable):
        return
    if too_slow is not None:
        run.console.complain(too_slow[0])


async def too_slow_for(admin: AdminClient, result: Effect, throttle: int) -> tuple[str, int] | None:
    """A warning and the smallest useful rate, when the copies would not catch up at this throttle."""
    leaders = {m.partition: m.leader for m in result.moves if m.leader is not None and m.meanwhile.adding_replicas}
    if not leaders:
        return None
    useful = smallest_useful_rate(result, await produce_rates(admin, leaders))
    if throttle == 0:
        useful = max(1, useful)
    if throttle >= useful:
        return None
    return (
        f"WARNING: a throttle of {throttle} B/s is below the rate at which these partitions are being written, so the "
        f"new replicas would never catch up. The smallest useful rate now is {useful} B/s; only what is above it is "
        "left for what is there already.",
        useful,
    )


async def produce_rates(
    admin: AdminClient, leaders: Mapping[TopicPartition, BrokerId], *, over_s: float = MEASURE_S
) -> dict[TopicPartition, float]:
    """Bytes per second by which the leaders' logs grow, measured now; 0 for a log that shrank (retention)."""
    loop = asyncio.get_running_loop()
    before, began = await _leader_sizes(admin, leaders), loop.time()
    await asyncio.sleep(over_s)
    after, ended = await _leader_sizes(admin, leaders), loop.time()
    return {p: max(0, after[p] - before[p]) / (ended - began) for p in after if p in before}


async def _leader_sizes(admin: AdminClient, leaders: Mapping[TopicPartition, BrokerId]) -> dict[TopicPartition, int]:
    brokers = sorted(set(leaders.values()))
    answers = await asyncio.gather(*(_dirs_of(admin, broker) for broker in brokers))
    return {
        log.partition: log.size_bytes
        for broker, dirs in zip(brokers, answers, strict=True)
        for log_dir in dirs
        for log in log_dir.replicas
        if leaders.get(log.partition) == broker and not log.is_future
    }


# -- how it prints -----------------------------------------------------------------------------------------------------


def _parts(result: Effect, throttle: int) -> list[Any]:
    copies = sum(len(m.meanwhile.adding_replicas) for m in result.moves)
    head = f"Dry run: nothing is changed. {_count(len(result.moves), 'partition')}, "
    head += f"{_count(copies, 'replica')} to copy, "
    head += f"{decimal(result.bytes_total)} between brokers."
    if result.dir_moves:
        size = decimal(sum(result.dir_moves.values()))
        head += f" {_count(len(result.dir_moves), 'replica')} to move between log dirs of their brokers, {size}."
    seconds = result.least_seconds(throttle)
    if seconds is not None:
        head += f" At {throttle} B/s that takes at least {_duration(seconds)}."
    parts: list[Any] = [Text(head)]
    if result.links:
        parts += [_broker_table(result), _link_table(result)]
    parts += [_leader_table(result.moves), *([_dir_table(result)] if result.dirs else [])]
    parts += _step_list(result.moves)
    return parts


def _table(*titles: str, right: Collection[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False, header_style="")
    for title in titles:
        table.add_column(title, justify="right" if title in right else "left")
    return table


def _broker_table(result: Effect) -> Table:
    table = _table("broker", "bytes in", "bytes out", right=("bytes in", "bytes out"))
    for broker in result.brokers:
        table.add_row(str(broker), decimal(result.bytes_into(broker)), decimal(result.bytes_out_of(broker)))
    return table


def _link_table(result: Effect) -> Table:
    table = _table("link", "bytes", right=("bytes",))
    for (source, to), size in result.links.items():
        table.add_row(f"{source} -> {to}", decimal(size))
    return table


def _leader_table(moves: Sequence[PartitionMove]) -> Any:
    changed = [m for m in moves if m.leader_moves or m.preferred_changes or m.blocked]
    if not changed:
        return Text("leaders moved: none")
    table = _table("partition", "leader now", "leader after", "note")
    for move in changed:
        notes = [f"would not get done: {move.blocked}"] if move.blocked else []
        if move.preferred_changes:
            notes.append(f"a later preferred election moves it to {move.target[0]}")
        now, after = ("none" if b is None else str(b) for b in (move.leader, move.leader_after))
        table.add_row(str(move.partition), now, after, "; ".join(notes))
    return table


def _dir_table(result: Effect) -> Table:
    table = _table("broker", "log dir", "now", "peak", "after", right=("now", "peak", "after"))
    for use in result.dirs:
        table.add_row(str(use.broker), use.path, decimal(use.before), decimal(use.peak), decimal(use.after))
    return table


def _step_list(moves: Sequence[PartitionMove]) -> list[Text]:
    lines = ["steps of the controller, in order:"]
    for move in moves[:_STEPS_MAX]:
        lines += [f"{move.partition}  {number}. {text}" for number, text in enumerate(steps(move), 1)]
    if len(moves) > _STEPS_MAX:
        lines.append(f"... and the same for {len(moves) - _STEPS_MAX} more partitions")
    return [Text("\n".join(lines))]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _duration(seconds: float) -> str:
    whole = int(seconds) + (seconds > int(seconds))
    hours, rest = divmod(whole, 3600)
    return f"{hours} h {rest // 60:02} min" if hours else f"{rest // 60}:{rest % 60:02} min"


def as_json(result: Effect, throttle: int, useful: int | None) -> dict[str, Any]:
    """The effect for machines. `smallest_useful_rate` is None when the throttle is enough."""
    return {
        "bytes_total": result.bytes_total,
        "bytes_between_log_dirs": sum(result.dir_moves.values()),
        "brokers": [
            {"broker": b, "bytes_in": result.bytes_into(b), "bytes_out": result.bytes_out_of(b)} for b in result.brokers
        ],
        "links": [{"from": source, "to": to, "bytes": size} for (source, to), size in result.links.items()],
        "log_dirs": [
            {"broker": u.broker, "log_dir": u.path, "before": u.before, "peak": u.peak, "after": u.after}
            for u in result.dirs
        ],
        "partitions": [
            {
                "partition": str(m.partition),
                "replicas_meanwhile": list(m.meanwhile.replicas),
                "adding_replicas": list(m.meanwhile.adding_replicas),
                "removing_replicas": list(m.meanwhile.removing_replicas),
                "target": list(m.target),
                "leader": m.leader,
                "leader_after": m.leader_after,
                "blocked": m.blocked,
                "steps": steps(m),
            }
            for m in result.moves
        ],
        "least_seconds": result.least_seconds(throttle),
        "smallest_useful_rate": useful,
    }
