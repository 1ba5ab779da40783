"""kafka-log-dirs: what is in the log directories of brokers. Source: Kafka 3.9 `LogDirsCommand`; spec admin.md §4.2."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from controller.admin.cluster.failures import Refused, exception_class
from controller.admin.cluster.log_dirs import LogDir, describe_log_dirs
from controller.admin.toolkit.console import commas, compact
from controller.admin.toolkit.options import COMMAND_CONFIG, Arguments, Option, OptionTable, parse_integer
from controller.admin.toolkit.texts import V39, Texts
from controller.admin.toolkit.tool import Run, Tool, Way, message_and_trace
from controller.wire.types import BrokerId

TABLE: Final = OptionTable(
    "This tool helps to query log directory usage on the specified brokers.",
    [
        Option(
            name="bootstrap-server",
            argument="The server(s) to use for bootstrapping",
            help="REQUIRED: brokers to ask first.",
        ),
        COMMAND_CONFIG,
        Option(name="describe", help="Describe the log directories of the brokers."),
        Option(name="topic-list", argument="Topic list", default="", help="Only these topics: topic1,topic2."),
        Option(name="broker-list", argument="Broker list", default="", help="Only these brokers: 0,1,2."),
    ],
)


def check(args: Arguments) -> None:
    """Raises UsageExit."""
    args.require("bootstrap-server", "describe")


async def perform(run: Run) -> int:
    """Prints the directories. Exits with 1 for unknown brokers."""
    console = run.console
    topics = [t for t in (run.args.value("topic-list") or "").split(",") if t]
    asked_for = [BrokerId(parse_integer(b)) for b in (run.args.value("broker-list") or "").split(",") if b]
    live = await run.admin.brokers()
    unknown = sorted(set(asked_for) - live.keys())
    if unknown:
        existent = commas(sorted(live))
        message = f"The given brokers do not exist from --broker-list: {commas(unknown)}. Current existent brokers: "
        console.complain(f"ERROR: {message}{existent}")
        console.result({"error": message + existent})
        return 1
    console.line("Querying brokers for log directories information")
    brokers = sorted(set(asked_for or live))
    described = await describe_log_dirs(run.admin, brokers)
    console.line(f"Received log directory information from brokers {commas(brokers)}")
    value = as_value(described, topics, run.texts)
    console.line(compact(value))
    console.result(value)
    return 0


def as_value(
    described: Mapping[BrokerId, Sequence[LogDir]], topics: Collection[str], texts: Texts = V39
) -> dict[str, Any]:
    """The JSON of the tool, keys in the order of the version; of these topics only, unless there are none."""
    brokers = [
        {"broker": broker, "logDirs": [_in_order(_log_dir(d, topics), texts.log_dir_keys) for d in dirs]}
        for broker, dirs in sorted(described.items())
    ]
    return _in_order({"brokers": brokers, "version": 1}, texts.broker_dirs_keys)


def _in_order(value: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: value[key] for key in keys}


def _log_dir(log_dir: LogDir, topics: Collection[str]) -> dict[str, Any]:
    return {
        "partitions": [
            {
                "partition": str(r.partition),
                "size": r.size_bytes,
                "offsetLag": r.offset_lag,
                "isFuture": r.is_future,
            }
            for r in log_dir.replicas
            if not topics or r.partition.topic in topics
        ],
        "error": _error(log_dir.error),
        "logDir": log_dir.path,
    }


def _error(error: Refused | None) -> str | None:
    return None if error is None else exception_class(error.code)


def tool_of(texts: Texts, _argv: Sequence[str]) -> Tool:
    """The tool of a version."""
    return Tool(
        table=TABLE,
        check=check,
        by_brokers=Way(perform=perform, say_failed=message_and_trace),
        say_unparsed=message_and_trace,
        client_id="log-dirs-tool",
        texts=texts,
    )
