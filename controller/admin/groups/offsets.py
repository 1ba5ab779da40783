"""kafka-consumer-groups --reset-offsets and --delete-offsets. Source: Kafka 3.9 `ConsumerGroupCommand`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final

from controller.admin.cluster.failures import Refused, ToolFailure, class_and_message, exception_class
from controller.admin.cluster.offsets import offsets_at
from controller.admin.cluster.queries import Outcomes, describe_topics
from controller.admin.groups.options import SCENARIOS
from controller.admin.groups.queries import (
    Group,
    commit_offsets,
    committed_offsets,
    committed_with_epochs,
    delete_offsets,
    describe_group,
    list_groups,
)
from controller.admin.groups.reset import (
    Offsets,
    parse_datetime,
    parse_duration_ms,
    parse_plan,
    parse_topics,
    time_before,
    to_csv,
    within,
)
from controller.admin.groups.tables import OffsetRow
from controller.admin.toolkit.kafka_json import read_file
from controller.admin.toolkit.options import UsageExit
from controller.admin.toolkit.texts import Texts
from controller.admin.toolkit.tool import Run
from controller.wire.errors import ErrorCode
from controller.wire.longs import as_long
from controller.wire.types import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
_LOGGER: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_FUTURE: Final = "java.util.concurrent.ExecutionException: "


async def reset(run: Run) -> None:
    """`--reset-offsets`: a plan per group; shown, exported, and committed with `--execute`. Raises ToolFailure."""
    names = [*await list_groups(run.admin)] if run.args.has("all-groups") else list(dict.fromkeys(_groups(run)))
    plan: dict[str, Offsets] = {}
    for name in names:
        plan[name] = await _reset_one(run, name)
    if run.args.has("export"):
        run.console.line(to_csv(plan, with_group=len(_groups(run)) != 1))
    elif plan:
        rows = [(group, p.topic, p.partition, o) for group, offsets in plan.items() for p, o in offsets.items()]
        lines = (run.texts.reset_row.format(*row) for row in [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), *rows])
        run.console.text("\n" + "".join(line + run.texts.reset_row_end for line in lines))
    run.console.result({"executed": run.args.has("execute"), "groups": {g: _listed(o) for g, o in plan.items()}})


def _groups(run: Run) -> list[str]:
    return run.args.values("group")


def _listed(offsets: Mapping[TopicPartition, int]) -> list[dict[str, object]]:
    return [{"topic": p.topic, "partition": p.partition, "offset": o} for p, o in offsets.items()]


async def _reset_one(run: Run, name: str) -> Offsets:
    group = await describe_group(run.admin, name)
    if group.state not in ("Empty", "Dead"):
        run.console.line(
            f"\nError: Assignments can only be reset if the group '{name}' is inactive, but the current state is "
            f"{group.state}."
        )
        return {}
    unwrapped = not run.texts.wraps_group_refusals
    with _failing(unwrapped=unwrapped):
        partitions = await _scope(run, group)
    with _failing(unwrapped=False):
        offsets = dict(sorted((await _planned(run, group, partitions)).items()))
    with _failing(unwrapped=unwrapped):
        if run.args.has("execute"):
            for refused in (await commit_offsets(run.admin, group, offsets)).values():
                if refused is not None:
                    raise refused
    return offsets


@contextmanager
def _failing(*, unwrapped: bool) -> Iterator[None]:
    """What the cluster refuses fails the tool: as it is, or as what came out of a future. Raises ToolFailure."""
    try:
        yield
    except Refused as refused:
        if unwrapped:
            raise ToolFailure(str(refused), java_class=exception_class(refused.code)) from refused
        raise ToolFailure(_FUTURE + refused.prefixed) from refused


async def _scope(run: Run, group: Group) -> list[TopicPartition]:
    """The partitions that are meant. Raises UsageExit, Refused."""
    if run.args.has("all-topics"):
        return sorted(await committed_offsets(run.admin, group))
    if run.args.has("topic"):
        topics, partitions = parse_topics(run.args.values("topic"))
        for name, topic in (await describe_topics(run.admin, topics)).items():
            if isinstance(topic, Refused):
                raise topic
            partitions += [TopicPartition(name, p.partition) for p in topic.partitions]
        return sorted(set(partitions))
    if not run.args.has("from-file"):
        raise UsageExit("One of the reset scopes should be defined: --all-topics, --topic.")
    return []


async def _planned(run: Run, group: Group, partitions: Collection[TopicPartition]) -> Offsets:
    """New offsets by the one scenario asked for. Raises UsageExit, ToolFailure, Refused."""
    args, admin = run.args, run.admin
    if args.has("to-offset"):
        return await _in_range(run, dict.fromkeys(partitions, args.integer("to-offset") or 0))
    if args.has("to-earliest"):
        return await offsets_at(admin, partitions, EARLIEST)
    if args.has("to-latest"):
        return await offsets_at(admin, partitions, LATEST)
    if args.has("shift-by"):
        return await _in_range(run, await _shifted(run, group, partitions))
    if args.has("to-datetime"):
        return await _at_time(run, partitions, parse_datetime(args.value("to-datetime") or ""))
    if args.has("by-duration"):
        ago = parse_duration_ms(args.value("by-duration") or "")
        return await _at_time(run, partitions, time_before(run.machine.clock.now_ms(), ago))
    if args.has("from-file"):
        return await _from_file(run, group)
    if args.has("to-current"):
        committed = await committed_offsets(admin, group)
        current = {p: committed[p] for p in partitions if p in committed}
        return current | await offsets_at(admin, [p for p in partitions if p not in committed], LATEST)
    listed = ", ".join(f"[{name}]" for name in SCENARIOS)
    raise UsageExit(f"Option '[reset-offsets]' requires one of the following scenarios: [{listed}]")


async def _shifted(run: Run, group: Group, partitions: Collection[TopicPartition]) -> Offsets:
    committed = await committed_offsets(run.admin, group)
    by = run.args.integer("shift-by") or 0
    missing = next((p for p in partitions if p not in committed), None)
    if missing is not None:
        raise UsageExit(f"Cannot shift offset for partition {missing} since there is no current committed offset")
    return {p: as_long(committed[p] + by) for p in partitions}


async def _from_file(run: Run, group: Group) -> Offsets:
    try:
        text = read_file(run.args.value("from-file") or "")
    except ToolFailure as error:
        raise ToolFailure(class_and_message(error)) from error
    plan = parse_plan(text, _groups(run))
    if group.group_id not in plan:
        run.console.line(f"\nError: No reset plan for group {group.group_id} found")
        return {}
    return await _in_range(run, plan[group.group_id])


async def _in_range(run: Run, targets: Offsets) -> Offsets:
    first = await offsets_at(run.admin, targets.keys(), EARLIEST)
    end = await offsets_at(run.admin, targets.keys(), LATEST)
    offsets, warnings = within(targets, first, end)
    for warning in warnings:
        run.console.log("WARN", warning, _LOGGER)
    return offsets


async def _at_time(run: Run, partitions: Collection[TopicPartition], timestamp: int) -> Offsets:
    at_time = await offsets_at(run.admin, partitions, timestamp)
    later = [partition for partition, offset in at_time.items() if offset < 0]
    for partition in later:
        run.console.line(
            f"\nWarn: Partition {partition.partition} from topic {partition.topic} is empty. Falling back to latest "
            "known offset."
        )
    return at_time | await offsets_at(run.admin, later, LATEST)


async def delete(run: Run) -> None:
    """`--delete-offsets`: one group, any topics; what failed is printed. Raises ToolFailure, UsageExit."""
    name = run.args.value("group") or ""
    topics, partitions = parse_topics(run.args.values("topic"))
    outcomes: Outcomes = {}
    for topic, topic_now in (await describe_topics(run.admin, topics)).items():
        if isinstance(topic_now, Refused):
            outcomes[TopicPartition(topic, -1)] = topic_now
        else:
            partitions += [TopicPartition(topic, p.partition) for p in topic_now.partitions]
    in_order = sorted(set(partitions))
    try:
        outcomes |= await delete_offsets(run.admin, name, in_order)
        failed = next((r.code for p, r in outcomes.items() if r is not None and p in set(in_order)), ErrorCode.NONE)
    except Refused as refused:
        failed = refused.code
        outcomes |= dict.fromkeys(in_order, refused)
    texts = run.texts
    run.console.line(_summary(texts, failed, name, run.args.values("topic")))
    width = max(15, *(len(p.topic) for p in outcomes))
    row = partial(texts.offset_row.format, width=width)
    shown = sorted(outcomes.items(), key=lambda item: f"{item[0].topic}{item[0].partition}")
    cells = [(p.topic, p.partition if p.partition >= 0 else texts.no_partition, _status(texts, r)) for p, r in shown]
    run.console.text("\n" + row("TOPIC", "PARTITION", "STATUS") + "".join(row(*c) for c in cells))
    run.console.result(
        {
            "group": name,
            "partitions": [
                {"topic": p.topic, "partition": p.partition, "error": None if r is None else r.code.name}
                for p, r in shown
            ],
        }
    )


def _status(texts: Texts, refused: Refused | None) -> str:
    return "Successful" if refused is None else texts.offset_error.format(error=refused.prefixed)


def _summary(texts: Texts, failed: ErrorCode, group: str, topics: Collection[str]) -> str:
    """The first line: done, or what kind of failure there was."""
    if failed is ErrorCode.NONE:
        return texts.offsets_deleted.format(topics=", ".join(topics), group=group)
    by_code = {
        ErrorCode.INVALID_GROUP_ID: f"'{group}' is not valid.",
        ErrorCode.GROUP_ID_NOT_FOUND: texts.no_group.format(group=group),
        ErrorCode.NON_EMPTY_GROUP: f"Deleting offsets of a consumer group '{group}' is forbidden if the group is not "
        "empty.",
    }
    by_partition = (
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    if failed in by_partition:
        return f"\nError: {texts.offsets_deleted_in_part}"
    return "\nError: " + by_code.get(failed, f"Encounter some unknown error: {failed.name}")


async def offset_rows(run: Run, group: Group) -> list[OffsetRow]:
    """A row for each partition that is assigned or has a committed offset: those of the busiest member first.

    Raises: Refused when a partition cannot be asked for its end.
    """
    committed = await committed_with_epochs(run.admin, group)
    members = sorted(group.members, key=lambda m: -len(m.assignment))
    assigned = {partition: member for member in members for partition in sorted(member.assignment)}
    partitions: list[TopicPartition] = [*assigned, *(p for p in sorted(committed) if p not in assigned)]
    ends = await offsets_at(run.admin, partitions, LATEST)
    return [
        OffsetRow(
            group=group.group_id,
            partition=partition,
            current=before.offset if (before := committed.get(partition)) is not None else None,
            leader_epoch=before.leader_epoch if before is not None else None,
            end=ends.get(partition),
            member=assigned.get(partition),
        )
        for partition in partitions
    ]
