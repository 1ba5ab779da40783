"""How every tool runs: parse, check, connect, perform, and say a failure the way that tool of Kafka says it.

Each tool of each version is a value (`Tool`): its options, its checks, what it does by brokers and, where its version
did, by ZooKeeper, and its habits of complaint. Exit codes: 0, or 1 for every failure and for the help; 130 when Ctrl-C
ended it. Source: Kafka 2.0, 2.6 and 3.9 tools; spec admin.md §0.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from controller.admin.cluster.client import AdminClient, Timeouts
from controller.admin.cluster.failures import ClusterUnreachable, ToolFailure, class_and_message
from controller.admin.cluster.port import ByBrokers, ByZnodes, Cluster
from controller.admin.cluster.znodes import NodeExists, Znodes
from controller.admin.toolkit.console import Console
from controller.admin.toolkit.machine import Machine
from controller.admin.toolkit.options import Answered, Arguments, OptionFailure, OptionTable, UsageExit, VersionAsked
from controller.admin.toolkit.properties import read_properties
from controller.admin.toolkit.texts import V39, Texts, ZookeeperTexts
from controller.rules.configs.settings import SettingError
from controller.wire.errors import KafkaError
from controller.wire.whole import whole
from controller.wire.zk_operations import ZkRefused, ZkSessionExpired, ZkUnreachable
from controller.wire.znodes import ZnodeError


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run of a tool works with. `texts` are of the version that the tool works as."""

    args: Arguments
    cluster: Cluster
    console: Console
    machine: Machine
    texts: Texts = V39

    @property
    def admin(self) -> AdminClient:
        """The client, where brokers are asked."""
        assert isinstance(self.cluster, ByBrokers)
        return self.cluster.admin

    @property
    def znodes(self) -> Znodes:
        """The session, where ZooKeeper is asked."""
        assert isinstance(self.cluster, ByZnodes)
        return self.cluster.znodes

    @property
    def zookeeper_texts(self) -> ZookeeperTexts:
        """What the version says where ZooKeeper is asked."""
        assert self.texts.zookeeper is not None
        return self.texts.zookeeper


Say = Callable[[Console, Exception, Arguments], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What a tool does in one of the two ways, how it says what went wrong then, and what it exits with."""

    perform: Callable[[Run], Awaitable[int]]
    say_failed: Say
    failed_exit: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool of one version. `say_unparsed` prints a command line that does not parse."""

    table: OptionTable
    check: Callable[[Arguments], None]
    #: What it does with --bootstrap-server; None where the version asked ZooKeeper only.
    by_brokers: Way | None
    say_unparsed: Callable[[Console, Exception], None]
    #: What it does without; None where it always asks brokers.
    by_zookeeper: Way | None = None
    no_arguments: str | None = None
    client_id: str = "adminclient-1"
    config_option: str = "command-config"
    servers: tuple[str, ...] = ("bootstrap-server",)
    #: Unless the property file says otherwise.
    timeouts: Timeouts = field(default_factory=Timeouts)
    #: The option with the time limit of each call in ms, where there is one: it goes before all else (`withTimeoutMs`).
    call_timeout_option: str | None = None
    #: What is wrong with an option of the client itself fails the tool as all else that it does.
    catches_client: bool = False
    texts: Texts = V39
    #: The tool of KRaft's time, where it depends on the cluster which one is meant.
    on_kraft: Callable[[], Tool] | None = None


async def run_async(tool: Tool, argv: Sequence[str], machine: Machine) -> int:
    """Runs a tool to its end. Returns its exit code."""
    console = Console(machine, as_json="--json" in argv)
    args: Arguments | None = None
    try:
        args = tool.table.parse(argv)
        args.conflict_gap = tool.texts.conflict_gap
        _check(tool, args)
    except VersionAsked:
        machine.out.write(tool.texts.version_line + "\n")
        return 0
    except Answered as answer:
        console.line(str(answer))
        console.result({"answer": str(answer)})
        return 0
    except UsageExit as usage:
        _warn(console, args)
        return _usage(tool, console, usage)
    except ToolFailure as failure:
        tool.say_unparsed(console, tool.texts.renamed(failure))
        console.result({"error": str(failure)})
        return 1
    _warn(console, args)
    if tool.by_brokers is None or (tool.by_zookeeper is not None and not args.has("bootstrap-server")):
        assert tool.by_zookeeper is not None
        return await _by_zookeeper(tool, tool.by_zookeeper, args, console, machine)
    return await _by_brokers(tool, tool.by_brokers, args, console, machine)


def _warn(console: Console, args: Arguments | None) -> None:
    for warning in args.warnings if args is not None else ():
        console.complain(warning)


def _check(tool: Tool, args: Arguments) -> None:
    if not args.argv:
        raise UsageExit(tool.no_arguments or tool.table.description)
    if args.has("help") and tool.texts.has_help:
        raise UsageExit(tool.table.description)
    if args.has("version"):
        raise VersionAsked
    tool.check(args)


def _usage(tool: Tool, console: Console, usage: UsageExit) -> int:
    console.complain(str(usage))
    console.complain(tool.table.help())
    console.result({"error": str(usage)})
    return 1


async def _by_brokers(tool: Tool, way: Way, args: Arguments, console: Console, machine: Machine) -> int:
    try:
        admin = _admin(tool, args, machine)
    except ToolFailure as failure:
        console.result({"error": str(failure)})
        if isinstance(failure, OptionFailure) and tool.catches_client:
            way.say_failed(console, failure, args)
            return way.failed_exit
        say = tool.say_unparsed if isinstance(failure, OptionFailure) else message_only
        say(console, failure)
        return 1
    async with admin:
        if tool.on_kraft is not None and await admin.is_of_4x():
            tool = tool.on_kraft()
            assert tool.by_brokers is not None
            way = tool.by_brokers
        run = Run(args=args, cluster=ByBrokers(admin), console=console, machine=machine, texts=tool.texts)
        return await _perform(tool, way, run)


async def _by_zookeeper(tool: Tool, way: Way, args: Arguments, console: Console, machine: Machine) -> int:
    assert tool.texts.zookeeper is not None
    try:
        hosts = args.value("zookeeper") or ""
    except ToolFailure as failure:
        tool.say_unparsed(console, failure)
        console.result({"error": str(failure)})
        return 1
    try:
        session = await machine.zookeeper(hosts).connect(on_watch=lambda _: None, on_expired=lambda: None)
    except (ZkUnreachable, ValueError) as error:
        console.complain(f"Cannot reach ZooKeeper at {hosts}: {error}. Correct --zookeeper, host:port[/chroot].")
        console.result({"error": str(error)})
        return 1
    znodes = Znodes(session, topic_version=tool.texts.zookeeper.topic_znode_version)
    run = Run(args=args, cluster=ByZnodes(znodes, hosts), console=console, machine=machine, texts=tool.texts)
    try:
        return await _perform(tool, way, run)
    finally:
        await session.close()


async def _perform(tool: Tool, way: Way, run: Run) -> int:
    """What the tool does, and what it says and exits with when that fails."""
    console = run.console
    try:
        return await way.perform(run)
    except UsageExit as usage:
        return _usage(tool, console, usage)
    except ClusterUnreachable as failure:
        console.complain(str(failure))
        console.result({"error": str(failure)})
    except ZkSessionExpired as error:
        console.complain(f"The ZooKeeper session ended: {error}. What was written stays; run the command again.")
        console.result({"error": str(error)})
    except (ToolFailure, KafkaError, ZnodeError, ZkRefused, NodeExists) as error:
        outcome = tool.texts.renamed(error) if isinstance(error, ToolFailure) else error
        way.say_failed(console, outcome, run.args)
        console.result({"error": str(outcome), "class": class_and_message(outcome).split(":")[0]})
        return way.failed_exit
    return 1


def _admin(tool: Tool, args: Arguments, machine: Machine) -> AdminClient:
    servers = next((value for name in tool.servers if (value := args.value(name)) is not None), "")
    path = args.value(tool.config_option) if tool.config_option in tool.table else None
    client_id, timeouts = tool.client_id, tool.timeouts
    if path is not None:
        client_id, timeouts = _client_settings(Path(path), tool.client_id)
    if tool.call_timeout_option is not None:
        timeouts = timeouts.within((args.integer(tool.call_timeout_option) or 0) / 1000)
    return AdminClient(machine.network, servers, client_id=client_id, timeouts=timeouts)


def _client_settings(path: Path, client_id: str) -> tuple[str, Timeouts]:
    """What is used of a client property file. Raises ToolFailure for a file or a value that cannot be read."""
    try:
        settings = read_properties(path)
        protocol = settings.get("security.protocol", "PLAINTEXT")
        timeouts = Timeouts(
            request_s=_positive_ms(settings, "request.timeout.ms", 30_000) / 1000,
            call_s=_positive_ms(settings, "default.api.timeout.ms", 60_000) / 1000,
        )
    except (OSError, ValueError) as error:
        raise ToolFailure(f"Cannot read {path}: {error}", java_class="java.io.IOException") from error
    if protocol != "PLAINTEXT":
        raise ToolFailure(f"{path}: security.protocol={protocol} is not supported; use a PLAINTEXT listener")
    return settings.get("client.id", client_id), timeouts


def _positive_ms(settings: dict[str, str], name: str, default: int) -> int:
    text = settings.get(name, str(default))
    number = whole(text)
    if number is None or not 0 < number < 2**31:
        raise SettingError(f"{name}={text}: expected milliseconds, at least 1")
    return number


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
