"""kafka-topics 2.0 and 2.6 with --zookeeper: topics by their znodes. Source: Kafka 2.x `TopicCommand`; spec §2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from controller.admin.cluster.failures import ToolFailure
from controller.admin.cluster.znodes import NodeExists
from controller.admin.toolkit.tool import Run
from controller.admin.topics.config_versions import INVALID_CONFIG, check_configs, checked_configs, is_known
from controller.admin.topics.describe_znodes import INTERNAL, describe
from controller.admin.topics.filter import matching
from controller.admin.topics.options import ACTIONS
from controller.admin.topics.plan import parse_assignment, warn_of_collisions
from controller.rules.placement import (
    RackMode,
    add_partitions,
    assign_replicas,
    check_manual,
    draw_start,
    usable_brokers,
)
from controller.rules.topic_names import MAX_TOPIC_NAME_LENGTH, check_topic_name, collisions
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.types import BrokerId

_ERRORS: Final = "org.apache.kafka.common.errors."
_ILLEGAL: Final = "java.lang.IllegalArgumentException"


async def perform(run: Run) -> int:
    """Does the one action asked for. Raises UsageExit, ToolFailure, KafkaError."""
    action = next(name for name in ACTIONS if run.args.has(name))
    actions = {"create": create, "list": list_topics, "describe": describe, "alter": alter, "delete": delete}
    try:
        await actions[action](run)
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
            raise ToolFailure(str(error), java_class="kafka.admin.AdminOperationException") from error
        raise
    return 0


async def create(run: Run) -> None:
    """`--create`. Nothing is written before everything is checked; configs first, then the topic, as Kafka did."""
    args, console, texts = run.args, run.console, run.zookeeper_texts
    topic, assignment = args.value("topic") or "", args.value("replica-assignment") or ""
    manual = {} if texts.reads_assignment_late else parse_assignment(assignment)
    configs = checked_configs(run)
    warn_of_collisions(console, topic)
    if texts.reads_assignment_late:
        manual = parse_assignment(assignment)
    replicas = manual or await _placed(run)
    existing = await run.znodes.topics()
    _check_name(topic)
    if topic in existing:
        if args.has("if-not-exists"):
            console.result({"topic": topic, "created": False})
            return
        raise ToolFailure(f"Topic '{topic}' already exists.", java_class=f"{_ERRORS}TopicExistsException")
    same = collisions(topic, existing)
    if same:
        raise ToolFailure(
            f"Topic '{topic}' collides with existing topics: {', '.join(same)}",
            java_class=f"{_ERRORS}InvalidTopicException",
        )
    check_manual(replicas)
    await run.znodes.write_configs(f"topics/{topic}", configs, notify=False)
    await run.znodes.write_assignment(topic, replicas)
    console.line(texts.topic_created.format(topic=topic))
    console.result({"topic": topic, "created": True})


async def _placed(run: Run) -> Mapping[int, tuple[BrokerId, ...]]:
    """The arithmetic, on the brokers that are registered."""
    args = run.args
    args.require("partitions", "replication-factor")
    partitions, replication_factor = args.integer("partitions") or 0, args.integer("replication-factor") or 0
    mode = RackMode.DISABLED if args.has("disable-rack-aware") else RackMode.ENFORCED
    brokers = usable_brokers(await run.cluster.brokers(), mode)
    start = draw_start(len(brokers), run.machine.chance)
    return assign_replicas(brokers, partitions=partitions, replication_factor=replication_factor, start=start)


def _check_name(topic: str) -> None:
    """The words of 2.x. Raises ToolFailure."""
    try:
        check_topic_name(topic)
    except KafkaError as error:
        if not topic:
            text = "Topic name is illegal, it can't be empty"
        elif topic in (".", ".."):
            text = 'Topic name cannot be "." or ".."'
        elif len(topic) > MAX_TOPIC_NAME_LENGTH:
            most = f"it can't be longer than {MAX_TOPIC_NAME_LENGTH} characters"
            text = f"Topic name is illegal, {most}, topic name: {topic}"
        else:
            text = (
                f"Topic name \"{topic}\" is illegal, it contains a character other than ASCII alphanumerics, '.', "
                "'_' and '-'"
            )
        raise ToolFailure(text, java_class=f"{_ERRORS}InvalidTopicException") from error


async def list_topics(run: Run) -> None:
    """`--list`: sorted, with what is marked for deletion."""
    marked = set(await run.znodes.marked())
    names = await chosen(run)
    for name in names:
        run.console.line(f"{name} - marked for deletion" if name in marked else name)
    run.console.result({"topics": names, "marked_for_deletion": sorted(marked & set(names))})


async def chosen(run: Run) -> list[str]:
    """The topics that `--topic` means; all without it."""
    names = {name: name in INTERNAL for name in await run.znodes.topics()}
    return matching(names, run.args.value("topic"), exclude_internal=run.args.has("exclude-internal"))


async def _existing(run: Run) -> list[str]:
    names = await chosen(run)
    if not names and not run.args.has("if-exists"):
        fields = {"topic": run.args.value("topic") or "", "zookeeper": run.args.value("zookeeper") or ""}
        raise ToolFailure(run.zookeeper_texts.missing_topic.format(**fields), java_class=_ILLEGAL)
    return names


async def alter(run: Run) -> None:
    """`--alter`: configs, then partitions, topic by topic."""
    names = await _existing(run)
    for name in names:
        if run.args.count(("config", "delete-config")):
            await _alter_configs(run, name)
        if run.args.has("partitions"):
            await _alter_partitions(run, name)
    run.console.result({"topics": names})


async def _alter_configs(run: Run, topic: str) -> None:
    run.console.line(
        "WARNING: Altering topic configuration from this script has been deprecated and may be removed in future "
        "releases."
    )
    run.console.line(" " * 9 + "Going forward, please use kafka-configs.sh for this functionality")
    added = checked_configs(run)
    removed = [name.strip() for name in run.args.values("delete-config")]
    for name in removed:
        if not is_known(run.texts.version, name):
            raise ToolFailure(f"Unknown topic config name: {name}", java_class=INVALID_CONFIG)
    configs = {k: v for k, v in (await run.znodes.configs(f"topics/{topic}") | added).items() if k not in removed}
    check_configs(run.texts, configs)
    await run.znodes.write_configs(f"topics/{topic}", configs)
    run.console.line(run.zookeeper_texts.topic_config_updated.format(topic=topic))


async def _alter_partitions(run: Run, topic: str) -> None:
    fixed = run.zookeeper_texts.fixed_topics.get(topic)
    if fixed is not None:
        raise ToolFailure(f"The number of partitions for {fixed} cannot be changed.", java_class=_ILLEGAL)
    run.console.line(
        "WARNING: If partitions are increased for a topic that has a key, the partition logic or ordering of the "
        "messages will be affected"
    )
    total = run.args.integer("partitions") or 0
    before = await run.znodes.assignment(topic)
    existing = before.listed if before else {}
    added = add_partitions(
        topic, existing, await run.cluster.brokers(), total=total, manual=_manual_rest(run, len(existing))
    )
    await run.znodes.write_assignment(topic, {**existing, **added}, before)
    run.console.line("Adding partitions succeeded!")


def _manual_rest(run: Run, existing: int) -> Sequence[Sequence[BrokerId]] | None:
    """The lists of the new partitions; the first ones, of those that exist, are not looked at.

    With nothing left, 2.0 stumbled over the empty text and 2.6 placed the partitions itself.
    """
    text = run.args.value("replica-assignment")
    if text is None:
        return None
    rest = ",".join(text.split(",")[existing:])
    if not rest and run.zookeeper_texts.needs_new_partitions:
        raise ToolFailure('For input string: ""', java_class="java.lang.NumberFormatException")
    return list(parse_assignment(rest).values()) if rest else None


async def delete(run: Run) -> None:
    """`--delete`: marks each topic; internal ones stop it."""
    names = await _existing(run)
    for name in names:
        if name in INTERNAL:
            raise ToolFailure(
                f"Topic {name} is a kafka internal topic and is not allowed to be marked for deletion.",
                java_class="kafka.admin.AdminOperationException",
            )
        try:
            await run.znodes.mark(name)
        except NodeExists:
            run.console.line(f"Topic {name} is already marked for deletion.")
        else:
            run.console.line(f"Topic {name} is marked for deletion.")
            run.console.line("Note: This will have no impact if delete.topic.enable is not set to true.")
    run.console.result({"deleted": names})
