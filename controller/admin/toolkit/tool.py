"""How every tool runs: parse, check, connect, perform, and say a failure the way that tool of Kafka says it.

Each tool is a value (`Tool`): its options, its checks, what it does, and its habits of complaint. Exit codes: 0, or 1
for every failure and for the help; 130 when Ctrl-C ended it. Source: Kafka 3.9 tools; spec admin.md §0.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from controller.admin.cluster.client import AdminClient, Timeouts
from controller.admin.toolkit.console import Console
from controller.admin.toolkit.failures import ClusterUnreachable, ToolFailure, class_and_message
from controller.admin.toolkit.machine import Machine
from controller.admin.toolkit.options import Arguments, OptionFailure, OptionTable, UsageExit, VersionAsked
from controller.admin.toolkit.texts import V39, Texts
from controller.rules.configs.settings import SettingError, parse_properties
from controller.wire.errors import KafkaError

#: The tools follow those of this version, and `--version` says so.
COMPATIBLE_VERSION: Final = "3.9.1"
INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run of a tool works with."""

    args: Arguments
    admin: AdminClient
    console: Console
    machine: Machine
    #: Of the version that the tool works as.
    texts: Texts = V39


Say = Callable[[Console, Exception, Arguments], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool. `say_unparsed` prints a command line that does not parse, `say_failed` what went wrong later."""

    table: OptionTable
    check: Callable[[Arguments], None]
    perform: Callable[[Run], Awaitable[int]]
    say_unparsed: Callable[[Console, Exception], None]
    say_failed: Say
    no_arguments: str | None = None
    client_id: str = "adminclient-1"
    config_option: str = "command-config"
    servers: tuple[str, ...] = ("bootstrap-server",)
    #: What runs in its place for a command line that means something else; None for one that is its own.
    instead: Callable[[Sequence[str], Machine], Awaitable[int] | None] = lambda argv, machine: None
    #: Unless the property file says otherwise.
    timeouts: Timeouts = field(default_factory=Timeouts)
    #: What a failure of the action itself exits with.
    failed_exit: int = 1
    #: What it says by brokers, by version.
    texts: Texts = V39


async def run_async(tool: Tool, argv: Sequence[str], machine: Machine) -> int:
    """Runs a tool to its end. Returns its exit code."""
    if (other := tool.instead(argv, machine)) is not None:
        return await other
    console = Console(machine, as_json="--json" in argv)
    args: Arguments | None = None
    try:
        args = tool.table.parse(argv)
        _check(tool, args)
    except VersionAsked:
        machine.out.write(tool.texts.version_line + "\n")
        return 0
    except UsageExit as usage:
        _warn(console, args)
        console.complain(str(usage))
        console.complain(tool.table.help())
        console.result({"error": str(usage)})
        return 1
    except ToolFailure as failure:
        tool.say_unparsed(console, failure)
        console.result({"error": str(failure)})
        return 1
    _warn(console, args)
    return await perform_checked(tool, args, console, machine)


def _warn(console: Console, args: Arguments | None) -> None:
    for warning in args.warnings if args is not None else ():
        console.complain(warning)


def _check(tool: Tool, args: Arguments) -> None:
    if not args.argv:
        raise UsageExit(tool.no_arguments or tool.table.description)
    if args.has("help"):
        raise UsageExit(tool.table.description)
    if args.has("version"):
        raise VersionAsked
    tool.check(args)


async def perform_checked(tool: Tool, args: Arguments, console: Console, machine: Machine) -> int:
    """Connects and performs what was parsed and checked. Returns the exit code."""
    try:
        admin = _admin(tool, args, machine)
    except ToolFailure as failure:
        say = tool.say_unparsed if isinstance(failure, OptionFailure) else message_only
        say(console, failure)
        console.result({"error": str(failure)})
        return 1
    async with admin:
        try:
            run_ = Run(args=args, admin=admin, console=console, machine=machine, texts=tool.texts)
            return await tool.perform(run_)
        except UsageExit as usage:
            console.complain(str(usage))
            console.complain(tool.table.help())
            console.result({"error": str(usage)})
        except ClusterUnreachable as failure:
            console.complain(str(failure))
            console.result({"error": str(failure)})
        except (ToolFailure, KafkaError) as error:
            tool.say_failed(console, error, args)
            console.result({"error": str(error), "class": class_and_message(error).split(":")[0]})
            return tool.failed_exit
        return 1


def _admin(tool: Tool, args: Arguments, machine: Machine) -> AdminClient:
    servers = next((value for name in tool.servers if (value := args.value(name)) is not None), "")
    path = args.value(tool.config_option) if tool.config_option in tool.table else None
    client_id, timeouts = tool.client_id, tool.timeouts
    if path is not None:
        client_id, timeouts = _client_settings(Path(path), tool.client_id)
    return AdminClient(machine.network, servers, client_id=client_id, timeouts=timeouts)


def _client_settings(path: Path, client_id: str) -> tuple[str, Timeouts]:
    """What is used of a client property file. Raises ToolFailure for a file or a value that cannot be read."""
    try:
        settings = parse_properties(path.read_text(encoding="utf-8"))
        protocol = settings.get("security.protocol", "PLAINTEXT")
        timeouts = Timeouts(
            request_s=_positive_ms(settings, "request.timeout.ms", 30_000) / 1000,
            call_s=_positive_ms(settings, "default.api.timeout.ms", 60_000) / 1000,
        )
    except (OSError, UnicodeDecodeError, SettingError) as error:
        raise ToolFailure(f"Cannot read {path}: {error}", java_class="java.io.IOException") from error
    if protocol != "PLAINTEXT":
        raise ToolFailure(f"{path}: security.protocol={protocol} is not supported; use a PLAINTEXT listener")
    return settings.get("client.id", client_id), timeouts


def _positive_ms(settings: dict[str, str], name: str, default: int) -> int:
    text = settings.get(name, str(default))
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) < 2**31:
        raise SettingError(f"{name}={text}: expected milliseconds, at least 1")
    return int(text)


# Habits of complaint.


def message_and_trace(console: Console, error: Exception, _args: Arguments | None = None) -> None:
    """On standard error: the message, then the first line of the stack trace."""
    console.complain(str(error))
    console.complain(class_and_message(error))


def uncaught(console: Console, error: Exception, _args: Arguments | None = None) -> None:
    """As the JVM prints an exception that nobody caught."""
    console.complain(f'Exception in thread "main" {class_and_message(error)}')


def message_only(console: Console, error: Exception, _args: Arguments | None = None) -> None:
    """The message on standard error."""
    console.complain(str(error))
