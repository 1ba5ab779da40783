"""kafka-log-dirs: what is in the log directories of brokers. Source: Kafka 3.9 `LogDirsCommand`; spec admin.md §4.2."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from controller.admin.cluster.log_dirs import LogDir, describe_log_dirs
from controller.admin.toolkit.console import compact
from controller.admin.toolkit.failures import Refused, exception_class
from controller.admin.toolkit.options import COMMAND_CONFIG, Arguments, Option, OptionTable, parse_integer
from controller.admin.toolkit.tool import Run, Tool, message_and_trace
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


async def perform(run_: Run, *, older: bool = False) -> int:
    """Prints the directories, with the keys in the order of 2.x when `older`. Exits with 1 for unknown brokers."""
    console = run_.console
    topics = [t for t in (run_.args.value("topic-list") or "").split(",") if t]
    wanted = [BrokerId(parse_integer(b)) for b in (run_.args.value("broker-list") or "").split(",") if b]
    live = await run_.admin.brokers()
    unknown = sorted(set(wanted) - live.keys())
    if unknown:
        existent = _ids(sorted(live))
        message = f"The given brokers do not exist from --broker-list: {_ids(unknown)}. Current existent brokers: "
        console.complain(f"ERROR: {message}{existent}")
        console.result({"error": message + existent})
        return 1
    console.line("Querying brokers for log directories information")
    brokers = sorted(set(wanted or live))
    described = await describe_log_dirs(run_.admin, brokers)
    console.line(f"Received log directory information from brokers {_ids(brokers)}")
    value = as_value(described, topics)
    if older:
        value = _in_older_order(value)
    console.line(compact(value))
    console.result(value)
    return 0


def as_value(described: Mapping[BrokerId, Sequence[LogDir]], topics: Collection[str]) -> dict[str, Any]:
    """The JSON of the tool, keys in the order of 3.9; of these topics only, unless there are none."""
    return {
        "brokers": [
            {"broker": broker, "logDirs": [_log_dir(d, topics) for d in dirs]}
            for broker, dirs in sorted(described.items())
        ],
        "version": 1,
    }


def _in_older_order(value: Mapping[str, Any]) -> dict[str, Any]:
    """The keys as 2.x had them."""
    brokers = [
        {"broker": b["broker"], "logDirs": [{k: d[k] for k in ("logDir", "error", "partitions")} for d in b["logDirs"]]}
        for b in value["brokers"]
    ]
    return {"version": value["version"], "brokers": brokers}


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


def _ids(brokers: Sequence[BrokerId]) -> str:
    return ",".join(map(str, brokers))


TOOL = Tool(
    table=TABLE,
    check=check,
    perform=perform,
    say_unparsed=message_and_trace,
    say_failed=message_and_trace,
)
