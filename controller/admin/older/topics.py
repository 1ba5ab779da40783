"""kafka-topics 2.0 and 2.6 with --zookeeper: topics by their znodes. Source: Kafka 2.x `TopicCommand`; spec §2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from controller.admin.older import by_broker, topic_config_versions
from controller.admin.older.program import OlderTool, ZkRun
from controller.admin.older.topic_describe import describe
from controller.admin.older.topic_options import ACTIONS, check, table
from controller.admin.older.znodes import V20, NodeExists
from controller.admin.toolkit.console import Console
from controller.admin.toolkit.failures import ToolFailure, class_and_message
from controller.admin.toolkit.options import Arguments
from controller.admin.toolkit.texts import V26
from controller.admin.topic_filter import matching
from controller.admin.topic_plan import parse_assignment, parse_configs
from controller.admin.topics import format_version_warning
from controller.rules.configs import topic as topic_configs
from controller.rules.placement import (
    BrokerRack,
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

INTERNAL: Final = ("__consumer_offsets", "__transaction_state")
COLLISION_WARNING: Final = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)
_ERRORS: Final = "org.apache.kafka.common.errors."
_ILLEGAL: Final = "java.lang.IllegalArgumentException"


async def perform(run: ZkRun) -> int:
    """Does the one action asked for. Raises UsageExit, ToolFailure, KafkaError."""
    action = next(name for name in ACTIONS if run.args.has(name))
    actions = {"create": create, "list": list_topics, "describe": describe, "alter": alter, "delete": delete}
    await actions[action](run)
    return 0


async def create(run: ZkRun) -> None:
    """`--create`. Nothing is written before everything is checked; configs first, then the topic, as Kafka did."""
    args, console = run.args, run.console
    topic = args.value("topic") or ""
    old = run.compat == V20
    manual = {} if old else _manual(args)
    configs = _added(run)
    if "." in topic or "_" in topic:
        console.line(COLLISION_WARNING)
    if old:
        manual = _manual(args)
    replicas = manual or await _placed(run)
    existing = await run.znodes.topics()
    _check_name(topic)
    if topic in existing:
        if args.has("if-not-exists"):
            console.result({"topic": topic, "created": False})
            return
        raise ToolFailure(f"Topic '{topic}' already exists.", java_class=f"{_ERRORS}TopicExistsException")
    same = collisions(topic, existing) if "." in topic or "_" in topic else []
    if same:
        raise ToolFailure(
            f"Topic '{topic}' collides with existing topics: {', '.join(same)}",
            java_class=f"{_ERRORS}InvalidTopicException",
        )
    check_manual(replicas)
    _validate(run.compat, configs)
    await run.znodes.write_configs(f"topics/{topic}", configs, notify=False)
    await run.znodes.write_assignment(topic, replicas)
    console.line(f'Created topic "{topic}".' if old else f"Created topic {topic}.")
    console.result({"topic": topic, "created": True})


def _manual(args: Arguments) -> Mapping[int, tuple[BrokerId, ...]]:
    return parse_assignment(args.value("replica-assignment") or "")


async def _racks(run: ZkRun) -> list[BrokerRack]:
    return [BrokerRack(broker_id=b.broker_id, rack=b.rack) for b in await run.znodes.brokers()]


async def _placed(run: ZkRun) -> Mapping[int, tuple[BrokerId, ...]]:
    """The arithmetic, on the brokers that are registered."""
    args = run.args
    args.require("partitions", "replication-factor")
    partitions, replication_factor = args.integer("partitions") or 0, args.integer("replication-factor") or 0
    mode = RackMode.DISABLED if args.has("disable-rack-aware") else RackMode.ENFORCED
    brokers = usable_brokers(await _racks(run), mode)
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


def _added(run: ZkRun) -> dict[str, str]:
    """The checked `--config` values. Raises ToolFailure."""
    configs = parse_configs(run.args.values("config"))
    _validate(run.compat, configs)
    if "message.format.version" in configs:
        run.console.line(format_version_warning(configs["message.format.version"], V26))
    return configs


def _validate(compat: str, configs: Mapping[str, str]) -> None:
    try:
        topic_config_versions.validate(compat, configs)
    except topic_configs.InvalidConfig as invalid:
        raise ToolFailure(str(invalid), java_class=f"{_ERRORS}InvalidConfigurationException") from invalid


async def list_topics(run: ZkRun) -> None:
    """`--list`: sorted, with what is marked for deletion."""
    marked = set(await run.znodes.marked())
    names = await chosen(run)
    for name in names:
        run.console.line(f"{name} - marked for deletion" if name in marked else name)
    run.console.result({"topics": names, "marked_for_deletion": sorted(marked & set(names))})


async def chosen(run: ZkRun) -> list[str]:
    """The topics that `--topic` means; all without it."""
    names = {name: name in INTERNAL for name in await run.znodes.topics()}
    exclude = run.compat != V20 and run.args.has("exclude-internal")
    return matching(names, run.args.value("topic"), exclude_internal=exclude)


async def _existing(run: ZkRun) -> list[str]:
    names = await chosen(run)
    if not names and not run.args.has("if-exists"):
        topic = run.args.value("topic") or ""
        text = f"Topic {topic} does not exist on ZK path {run.zookeeper}"
        raise ToolFailure(
            text if run.compat == V20 else f"Topic '{topic}' does not exist as expected", java_class=_ILLEGAL
        )
    return names


async def alter(run: ZkRun) -> None:
    """`--alter`: configs, then partitions, topic by topic."""
    names = await _existing(run)
    for name in names:
        if run.args.count(("config", "delete-config")):
            await _alter_configs(run, name)
        if run.args.has("partitions"):
            await _alter_partitions(run, name)
    run.console.result({"topics": names})


async def _alter_configs(run: ZkRun, topic: str) -> None:
    run.console.line(
        "WARNING: Altering topic configuration from this script has been deprecated and may be removed in future "
        "releases."
    )
    run.console.line(" " * 9 + "Going forward, please use kafka-configs.sh for this functionality")
    added = _added(run)
    removed = [name.strip() for name in run.args.values("delete-config")]
    for name in removed:
        if not topic_config_versions.is_known(run.compat, name):
            raise ToolFailure(
                f"Unknown topic config name: {name}", java_class=f"{_ERRORS}InvalidConfigurationException"
            )
    configs = {k: v for k, v in (await run.znodes.configs(f"topics/{topic}") | added).items() if k not in removed}
    _validate(run.compat, configs)
    await run.znodes.write_configs(f"topics/{topic}", configs)
    run.console.line(
        f'Updated config for topic "{topic}".' if run.compat == V20 else f"Updated config for topic {topic}."
    )


async def _alter_partitions(run: ZkRun, topic: str) -> None:
    if topic in (INTERNAL[:1] if run.compat == V20 else INTERNAL):
        which = "the offsets topic" if run.compat == V20 else f"the internal topic {topic}"
        raise ToolFailure(f"The number of partitions for {which} cannot be changed.", java_class=_ILLEGAL)
    run.console.line(
        "WARNING: If partitions are increased for a topic that has a key, the partition logic or ordering of the "
        "messages will be affected"
    )
    total = run.args.integer("partitions") or 0
    before = await run.znodes.assignment(topic)
    existing = {p: tuple(a.replicas) for p, a in (before.partitions if before else {}).items()}
    added = add_partitions(topic, existing, await _racks(run), total=total, manual=_manual_rest(run, len(existing)))
    await run.znodes.write_assignment(topic, {**existing, **added}, before)
    run.console.line("Adding partitions succeeded!")


def _manual_rest(run: ZkRun, existing: int) -> Sequence[Sequence[BrokerId]] | None:
    """The lists of the new partitions; the first ones, of those that exist, are not looked at.

    With nothing left, 2.0 stumbled over the empty text and 2.6 placed the partitions itself.
    """
    text = run.args.value("replica-assignment")
    if text is None:
        return None
    rest = ",".join(text.split(",")[existing:])
    if not rest and run.compat == V20:
        raise ToolFailure('For input string: ""', java_class="java.lang.NumberFormatException")
    return list(parse_assignment(rest).values()) if rest else None


async def delete(run: ZkRun) -> None:
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


def say_failed(console: Console, error: Exception, _: Arguments) -> int:
    """The message on standard output, the exception in the log."""
    console.line(f"Error while executing topic command : {error}")
    text = class_and_message(error)
    if isinstance(error, KafkaError) and error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
        text = f"kafka.admin.AdminOperationException: {error}"
    console.log("ERROR", text + "\n", "kafka.admin.TopicCommand$")
    return 1


def tool(compat: str) -> OlderTool:
    """kafka-topics of a version."""
    return OlderTool(
        compat=compat,
        table=table(compat),
        check=partial(check, compat),
        perform=perform,
        say_failed=say_failed,
        no_arguments="Create, delete, describe, or change a topic.",
        by_broker=by_broker.topics_tool() if compat != V20 else None,
    )
