"""How a tool of Kafka 2.x runs: as `controller.admin.toolkit.tool`, with a ZooKeeper session for `--zookeeper`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from controller.admin.older.znodes import NodeExists, Znodes
from controller.admin.toolkit.console import Console
from controller.admin.toolkit.failures import ToolFailure, class_and_message
from controller.admin.toolkit.machine import Machine
from controller.admin.toolkit.options import Arguments, OptionTable, UsageExit, VersionAsked
from controller.admin.toolkit.texts import V26
from controller.admin.toolkit.tool import Tool, perform_checked
from controller.wire.errors import KafkaError
from controller.wire.zk_operations import ZkSessionExpired, ZkUnreachable
from controller.wire.znodes import ZnodeError
from controller.world.ports import ZkSession

_UNPARSED: Final = 'Exception in thread "main" '


@dataclass(frozen=True, slots=True, kw_only=True)
class ZkRun:
    """What one run works with. `zookeeper` is the text of the option."""

    args: Arguments
    znodes: Znodes
    console: Console
    machine: Machine
    compat: str
    zookeeper: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderTool:
    """One tool of one version. `say_failed` prints what went wrong later, and says what to exit with."""

    compat: str
    table: OptionTable
    check: Callable[[Arguments], None]
    perform: Callable[[ZkRun], Awaitable[int]]
    say_failed: Callable[[Console, Exception, Arguments], int]
    no_arguments: str | None = None
    #: How a command line that does not go together is told: uncaught, but where the tool catches it.
    say_unparsed: Callable[[Console, Exception], object] = lambda console, error: uncaught(console, error)
    #: What runs with --bootstrap-server instead; None where the version asked ZooKeeper only.
    by_broker: Tool | None = None


async def run_older(tool: OlderTool, argv: Sequence[str], machine: Machine) -> int:
    """Parses, checks, opens a session (or asks brokers) and performs. Returns the exit code."""
    console = Console(machine, as_json="--json" in argv)
    try:
        args = tool.table.parse(argv)
        args.conflict_gap = "" if tool.compat == "2.0" else " "
        _check(tool, args)
        zookeeper = args.value("zookeeper") or ""
    except VersionAsked:
        machine.out.write(V26.version_line + "\n")
        return 0
    except UsageExit as usage:
        return _usage(tool, console, usage)
    except ToolFailure as failure:
        tool.say_unparsed(console, failure)
        console.result({"error": str(failure)})
        return 1
    if tool.by_broker is not None and args.has("bootstrap-server"):
        return await perform_checked(tool.by_broker, args.on(tool.by_broker.table), console, machine)
    try:
        session = await machine.zookeeper(zookeeper).connect(on_watch=lambda _: None, on_expired=lambda: None)
    except (ZkUnreachable, ValueError) as error:
        console.complain(f"Cannot reach ZooKeeper at {zookeeper}: {error}. Correct --zookeeper, host:port[/chroot].")
        console.result({"error": str(error)})
        return 1
    return await _perform(tool, args, session, console, machine, zookeeper)


def _check(tool: OlderTool, args: Arguments) -> None:
    if not args.argv:
        raise UsageExit(tool.no_arguments or tool.table.description)
    if "help" in tool.table and args.has("help") and tool.compat != "2.0":
        raise UsageExit(tool.table.description)
    if "version" in tool.table and args.has("version"):
        raise VersionAsked
    tool.check(args)


def _usage(tool: OlderTool, console: Console, usage: UsageExit) -> int:
    console.complain(str(usage))
    console.complain(tool.table.help())
    console.result({"error": str(usage)})
    return 1


async def _perform(
    tool: OlderTool, args: Arguments, session: ZkSession, console: Console, machine: Machine, zookeeper: str
) -> int:
    run = ZkRun(
        args=args,
        znodes=Znodes(session, tool.compat),
        console=console,
        machine=machine,
        compat=tool.compat,
        zookeeper=zookeeper,
    )
    try:
        return await tool.perform(run)
    except UsageExit as usage:
        return _usage(tool, console, usage)
    except ZkSessionExpired as error:
        console.complain(f"The ZooKeeper session ended: {error}. What was written stays; run the command again.")
        return 1
    except (ToolFailure, KafkaError, ZnodeError, NodeExists) as error:
        console.result({"error": str(error)})
        return tool.say_failed(console, error, args)
    finally:
        await session.close()


def uncaught(console: Console, error: Exception, _: Arguments | None = None) -> int:
    """As the JVM prints an exception that nobody caught."""
    console.complain(_UNPARSED + class_and_message(error))
    return 1
