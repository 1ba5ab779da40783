"""kafka-topics: create, delete, describe, or change a topic. Source: Kafka 3.9 `TopicCommand`; spec admin.md §2."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from controller.admin import explain
from controller.admin.cluster.queries import (
    create_partitions,
    create_topic,
    delete_topics,
    describe_topics,
    topic_names,
)
from controller.admin.layout.command import explain_topics
from controller.admin.toolkit.console import Console
from controller.admin.toolkit.failures import Refused, ToolFailure, class_and_message
from controller.admin.toolkit.machine import Machine
from controller.admin.toolkit.options import Arguments
from controller.admin.toolkit.texts import Texts
from controller.admin.toolkit.tool import Run, Tool, message_and_trace
from controller.admin.topic_describe import chosen, describe
from controller.admin.topic_filter import matching
from controller.admin.topic_options import ACTIONS, TABLE, check
from controller.admin.topic_plan import parse_assignment, parse_configs
from controller.rules.configs import topic as topic_configs
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId

COLLISION_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)


def layout(argv: Sequence[str], machine: Machine) -> Awaitable[int] | None:
    """`kwob explain layout` where `--explain` stands without an action: then flags describe the layout."""
    words = {word.lstrip("-").partition("=")[0] for word in argv if word.startswith("-")}
    if "explain" in words and not words & {*ACTIONS, "help", "version"}:
        return explain.main_async(["layout", *argv], machine)
    return None


async def perform(run_: Run) -> int:
    """Does the one action asked for. Raises ToolFailure, Refused."""
    action = next(name for name in ACTIONS if run_.args.has(name))
    if action == "describe" and run_.args.has("explain"):
        await explain_topics(run_, await chosen(run_))
        return 0
    await {"create": create, "list": list_topics, "describe": describe, "alter": alter, "delete": delete}[action](run_)
    if run_.args.has("explain"):
        names = [run_.args.value("topic") or ""] if action == "create" else await existing(run_)
        await explain_topics(run_, names, at_least=run_.args.integer("partitions") or 1)
    return 0


async def create(run_: Run) -> None:
    """`--create`: the checks that need no cluster come first, so a refusal changes nothing."""
    args, console = run_.args, run_.console
    name = args.value("topic") or ""
    partitions, replication_factor = counts(args)
    assignment = parse_assignment(args.value("replica-assignment") or "")
    configs = _configs(args, console, run_.texts)
    if "." in name or "_" in name:
        console.line(COLLISION_WARNING)
    if replication_factor is not None and not 1 <= replication_factor <= 32767:
        raise _illegal_argument("The replication factor must be between 1 and 32767 inclusive")
    if partitions is not None and partitions < 1:
        raise _illegal_argument("The partitions must be greater than 0")
    if not name:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, "The given topic name '' cannot be represented in a request.")
    try:
        await create_topic(
            run_.admin,
            name,
            partitions=-1 if assignment or partitions is None else partitions,
            replication_factor=-1 if assignment or replication_factor is None else replication_factor,
            assignment=assignment,
            configs=configs,
        )
    except Refused as refused:
        if refused.code is not ErrorCode.TOPIC_ALREADY_EXISTS or not args.has("if-not-exists"):
            raise
        console.result({"topic": name, "created": False})
    else:
        console.line(f"Created topic {name}.")
        console.result({"topic": name, "created": True})


def counts(args: Arguments) -> tuple[int | None, int | None]:
    """`--partitions` and `--replication-factor`. Raises OptionFailure."""
    return args.integer("partitions"), args.integer("replication-factor")


def _configs(args: Arguments, console: Console, texts: Texts) -> dict[str, str]:
    """The checked `--config` values. Raises ToolFailure."""
    configs = parse_configs(args.values("config"))
    try:
        topic_configs.validate(configs)
    except topic_configs.InvalidConfig as invalid:
        about_value = str(invalid).startswith("Invalid value")
        package = "org.apache.kafka.common"
        raise ToolFailure(
            str(invalid),
            java_class=f"{package}.config.ConfigException"
            if about_value
            else f"{package}.errors.InvalidConfigurationException",
        ) from invalid
    if "message.format.version" in configs:
        console.line(format_version_warning(configs["message.format.version"], texts))
    return configs


def format_version_warning(version: str, texts: Texts) -> str:
    """What `--config message.format.version` is answered with."""
    return (
        f"WARNING: The configuration message.format.version={version} is specified. This configuration will be ignored "
        f"if the version is newer than the inter.broker.protocol.version specified in the broker"
        f"{texts.format_version_end}"
    )


def _illegal_argument(message: str) -> ToolFailure:
    return ToolFailure(message, java_class="java.lang.IllegalArgumentException")


async def list_topics(run_: Run) -> None:
    """`--list`: names, sorted; one empty line when there is none."""
    names = matching(
        await topic_names(run_.admin), run_.args.value("topic"), exclude_internal=run_.args.has("exclude-internal")
    )
    run_.console.line("\n".join(names))
    run_.console.result({"topics": names})


async def existing(run_: Run) -> list[str]:
    """The topics that `--topic` means. Raises ToolFailure when there is none and `--if-exists` was not given."""
    wanted = run_.args.value("topic") or ""
    names = matching(await topic_names(run_.admin), wanted, exclude_internal=False)
    if not names and not run_.args.has("if-exists"):
        raise _illegal_argument(run_.texts.missing_topic.format(topic=wanted))
    return names


async def alter(run_: Run) -> None:
    """`--alter`: more partitions."""
    total = run_.args.integer("partitions")
    names = await existing(run_)
    if names and total is not None:
        described = await describe_topics(run_.admin, names)
        manual = parse_assignment(run_.args.value("replica-assignment") or "")
        assignments: dict[str, Sequence[Sequence[BrokerId]] | None] = {}
        for name, topic in described.items():
            if isinstance(topic, Refused):
                raise topic
            first_new = len(topic.partitions)
            given = [replicas for number, replicas in sorted(manual.items()) if number >= first_new]
            assignments[name] = given if manual else None
        await create_partitions(run_.admin, dict.fromkeys(names, total), assignments)
    run_.console.result({"topics": names, "partitions": total})


async def delete(run_: Run) -> None:
    """`--delete`: silent on success."""
    names = await existing(run_)
    if names:
        await delete_topics(run_.admin, names)
    run_.console.result({"deleted": names})


def say_failed(console: Console, error: Exception, _args: Arguments) -> None:
    """The message on standard output, the exception in the log."""
    console.line(f"Error while executing topic command : {error}")
    console.log("ERROR", class_and_message(error) + "\n", "org.apache.kafka.tools.TopicCommand")


TOOL = Tool(
    table=TABLE,
    check=check,
    perform=perform,
    say_unparsed=message_and_trace,
    say_failed=say_failed,
    no_arguments="Create, delete, describe, or change a topic.",
    instead=layout,
)
