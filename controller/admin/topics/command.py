"""kafka-topics: create, delete, describe, or change a topic. Source: Kafka 3.9 `TopicCommand`; spec admin.md §2."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from controller.admin.cluster.failures import Refused, ToolFailure, class_and_message
from controller.admin.cluster.queries import (
    create_partitions,
    create_topic,
    delete_topics,
    describe_topics,
    topic_names,
)
from controller.admin.toolkit.console import Console
from controller.admin.toolkit.options import Arguments, option_names
from controller.admin.toolkit.texts import Texts
from controller.admin.toolkit.tool import Run, Tool, Way, message_and_trace, uncaught
from controller.admin.topics import by_znodes, options_2x
from controller.admin.topics.config_versions import checked_configs
from controller.admin.topics.describe import chosen, describe, names_a_topic
from controller.admin.topics.filter import matching
from controller.admin.topics.options import ACTIONS, TABLE, check
from controller.admin.topics.plan import parse_assignment, warn_of_collisions
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId


def asks_for_layout(argv: Sequence[str]) -> bool:
    """Whether `--explain` stands without an action: then flags describe the layout, as for `kwob explain layout`."""
    words = option_names(argv)
    return "explain" in words and not words & {*ACTIONS, "help", "version"}


async def _explain(run: Run, names: Collection[str], *, at_least: int = 0) -> None:
    from controller.admin.layout.command import explain_topics  # it draws: rich is loaded by who asks for that

    await explain_topics(run, names, at_least=at_least)


async def perform(run: Run) -> int:
    """Does the one action asked for. Raises ToolFailure, Refused."""
    action = next(name for name in ACTIONS if run.args.has(name))
    if action == "describe" and run.args.has("explain"):
        await _explain(run, await chosen(run))
        return 0
    await {"create": create, "list": list_topics, "describe": describe, "alter": alter, "delete": delete}[action](run)
    if run.args.has("explain"):
        names = [run.args.value("topic") or ""] if action == "create" else await existing(run)
        await _explain(run, names, at_least=run.args.integer("partitions") or 1)
    return 0


async def create(run: Run) -> None:
    """`--create`: the checks that need no cluster come first, so a refusal changes nothing."""
    args, console = run.args, run.console
    name = args.value("topic") or ""
    partitions, replication_factor = counts(args)
    assignment = parse_assignment(args.value("replica-assignment") or "")
    configs = checked_configs(run)
    warn_of_collisions(console, name)
    if replication_factor is not None and not 1 <= replication_factor <= 32767:
        raise _illegal_argument("The replication factor must be between 1 and 32767 inclusive")
    if partitions is not None and partitions < 1:
        raise _illegal_argument("The partitions must be greater than 0")
    if not name:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, "The given topic name '' cannot be represented in a request.")
    try:
        await create_topic(
            run.admin,
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


def _illegal_argument(message: str) -> ToolFailure:
    return ToolFailure(message, java_class="java.lang.IllegalArgumentException")


async def list_topics(run: Run) -> None:
    """`--list`: names, sorted; one empty line when there is none."""
    names = matching(
        await topic_names(run.admin), run.args.value("topic"), exclude_internal=run.args.has("exclude-internal")
    )
    run.console.line("\n".join(names))
    run.console.result({"topics": names})


async def existing(run: Run) -> list[str]:
    """The topics that `--topic` means. Raises ToolFailure when there is none and `--if-exists` was not given."""
    topic = run.args.value("topic") or ""
    names = matching(await topic_names(run.admin), topic, exclude_internal=False)
    if not names and not run.args.has("if-exists") and names_a_topic(run, topic):
        raise _illegal_argument(run.texts.missing_topic.format(topic=topic))
    return names


async def alter(run: Run) -> None:
    """`--alter`: more partitions."""
    total = run.args.integer("partitions")
    manual = parse_assignment(run.args.value("replica-assignment") or "")
    names = await existing(run)
    if names and total is not None:
        described = await describe_topics(run.admin, names)
        assignments: dict[str, Sequence[Sequence[BrokerId]] | None] = {}
        for name, topic in described.items():
            if isinstance(topic, Refused):
                raise topic
            first_new = len(topic.partitions)
            given = [replicas for number, replicas in sorted(manual.items()) if number >= first_new]
            assignments[name] = given if manual else None
        await create_partitions(run.admin, dict.fromkeys(names, total), assignments)
    run.console.result({"topics": names, "partitions": total})


async def delete(run: Run) -> None:
    """`--delete`: silent on success."""
    names = await existing(run)
    if names:
        await delete_topics(run.admin, names)
    run.console.result({"deleted": names})


def say_failed(texts: Texts, console: Console, error: Exception, args: Arguments) -> None:
    """The message on standard output, the exception in the log. 2.6 unwrapped refusals of --create only (§2.2)."""
    wrapped = isinstance(error, Refused) and texts.prefixes_refusals and not args.has("create")
    message = error.prefixed if isinstance(error, Refused) and wrapped else str(error)
    console.line(f"Error while executing topic command : {message}")
    wrapper = "java.util.concurrent.ExecutionException: " if wrapped else ""
    console.log("ERROR", wrapper + class_and_message(error) + "\n", texts.topic_logger)


def tool_of(texts: Texts, _argv: Sequence[str]) -> Tool:
    """The tool of a version."""
    older = texts.zookeeper is not None
    by_brokers = Way(perform=perform, say_failed=partial(say_failed, texts))
    return Tool(
        table=options_2x.table(texts) if older else TABLE,
        check=partial(options_2x.check if older else check, texts),
        by_brokers=by_brokers if texts.asks_brokers else None,
        by_zookeeper=Way(perform=by_znodes.perform, say_failed=partial(say_failed, texts)) if older else None,
        say_unparsed=uncaught if older else message_and_trace,
        no_arguments="Create, delete, describe, or change a topic.",
        texts=texts,
    )
