"""The tools of 2.6 with --bootstrap-server: today's, in that version's words (`texts.V26`). Source: spec admin.md.

Where the spec names no difference, 2.6 does by brokers what 3.9 does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from controller.admin import configs, leader_election, topics
from controller.admin import reassign_partitions as reassign
from controller.admin.older.topic_config_versions import is_known
from controller.admin.toolkit.console import Console
from controller.admin.toolkit.failures import Refused, Terse, ToolFailure, class_and_message
from controller.admin.toolkit.options import Arguments
from controller.admin.toolkit.texts import V20, V26
from controller.admin.toolkit.tool import Run, Tool
from controller.admin.topic_plan import parse_assignment, parse_configs

_EXECUTION: Final = "java.util.concurrent.ExecutionException: "
_INVALID: Final = "org.apache.kafka.common.errors.InvalidConfigurationException"
_IGNORED: Final = (
    "Warning: ignoring deprecated --zookeeper option because --bootstrap-server was specified.  The --zookeeper option "
    "will be removed in a future version of Kafka."
)


def trace(error: Exception) -> str:
    """The first line of the stack trace, with the class that 2.6 had."""
    return class_and_message(V26.renamed(error) if isinstance(error, ToolFailure) else error)


def say_topics(console: Console, error: Exception, args: Arguments) -> None:
    """kafka-topics: what the cluster refused is said with its class, but for --create, which unwrapped it. §2.2."""
    wrapped = isinstance(error, Refused) and V26.prefixes_refusals and not args.has("create")
    message = error.prefixed if isinstance(error, Refused) and wrapped else str(error)
    console.line(f"Error while executing topic command : {message}")
    console.log("ERROR", (_EXECUTION if wrapped else "") + trace(error) + "\n", "kafka.admin.TopicCommand$")


async def _topics(run: Run) -> int:
    """As today's; --create knows the configs of 2.6 only. Raises ToolFailure, Refused."""
    if run.args.has("create"):
        topics.counts(run.args)
        parse_assignment(run.args.value("replica-assignment") or "")
        unknown = [n for n in parse_configs(run.args.values("config")) if not is_known(V26.version, n)]
        if unknown:
            raise ToolFailure(f"Unknown topic config name: {unknown[0]}", java_class=_INVALID)
    return await topics.perform(run)


def topics_tool() -> Tool:
    """kafka-topics."""
    return replace(topics.TOOL, texts=V26, perform=_topics, say_failed=say_topics)


def say_reassign(console: Console, error: Exception, args: Arguments) -> None:
    """kafka-reassign-partitions: as today's, with its classes. §3.1."""
    if isinstance(error, ToolFailure) and not isinstance(error, Terse):
        error = V26.renamed(error)
    reassign.say_failed(console, error, args)


async def _reassign(run: Run) -> int:
    """As today's; --zookeeper beside it is not looked at, and that is said first."""
    if run.args.has("zookeeper"):
        run.console.line(_IGNORED)
    return await reassign.perform(run)


def reassign_tool() -> Tool:
    """kafka-reassign-partitions."""
    return replace(reassign.TOOL, texts=V26, perform=_reassign, say_failed=say_reassign)


def configs_tool(compat: str) -> Tool:
    """kafka-configs; in 2.0 for brokers only. §4.3."""
    return replace(configs.TOOL, texts=V20 if compat == V20.version else V26)


def say_message(console: Console, error: Exception) -> None:
    """The message alone, of what the tool catches itself."""
    console.complain(str(error))


#: What kafka-leader-election has, and the older kafka-preferred-replica-election had not.
_LEADER_TOOL: Final = ("election-type", "topic", "partition", "all-topic-partitions")


def means_leader_tool(compat: str, argv: Sequence[str]) -> bool:
    """Whether a command line is one of kafka-leader-election (there from 2.4 on), not of the preferred elections."""
    words = {word.lstrip("-").partition("=")[0] for word in argv if word.startswith("-")}
    return compat == V26.version and bool(words.intersection(_LEADER_TOOL))


def election_tool() -> Tool:
    """kafka-leader-election. §4.1."""
    check = partial(leader_election.check_as, V26)
    return replace(leader_election.TOOL, texts=V26, check=check, say_failed=say_uncaught, say_unparsed=say_uncaught)


def say_uncaught(console: Console, error: Exception, _: Arguments | None = None) -> None:
    """As the JVM prints an exception that nobody caught."""
    console.complain(f'Exception in thread "main" {trace(error)}')
