"""`kwob`: one table of subcommands. The composition root: the one place that knows every program.

A subcommand gets its arguments as they are and parses them itself; nothing is imported before it is asked for, so that
`kwob topics` does not wait for Spark.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import version
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TextIO

from controller.world.exit_codes import INTERRUPTED

if TYPE_CHECKING:
    from controller.local.completion import Pages


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: where its `main(argv) -> exit code` is, what it does, and the heading it stands under."""

    target: str
    summary: str
    heading: str


#: What shells have for a command that SIGPIPE ended.
PIPE_CLOSED: Final = 141

#: Flags of Kafka's tools after which nobody asks which cluster is meant.
_NAME_A_CLUSTER: Final = (
    "--bootstrap-server",
    "--bootstrap-controller",
    "--zookeeper",
    "--help",
    "-h",
    "--version",
)
#: The old name of --bootstrap-server, of one tool; to others it is a list of broker ids.
_BROKER_LIST: Final = ("get-offsets", "--broker-list")
#: Commands that are a program, too, and what is called otherwise.
_TWO_PARSERS: Final = {
    "up": ("controller.local.up:parser_of_up",),
    "broker": ("controller.local.control:broker_command_line", "broker_sim.command_line:make_parser"),
    "controller": ("controller.local.control:controller_command_line", "controller.node.run:parser"),
}
#: Where the parsers of subcommands are made that the command's own one does not know.
SUBCOMMANDS: Final = {
    "rehearse": {
        "compare": "controller.rehearse.compare:command_line",
        "sweep": "controller.rehearse.sweep:command_line",
    }
}
_LOCAL: Final = "A cluster on this machine"
_RECORDS: Final = "Records for any cluster"
TOOLS: Final = "Kafka's tools, with Kafka's flags"
_ANSWERS: Final = "What Kafka's tools do not tell"
_PROGRAMS: Final = "The programs themselves"

COMMANDS: Final[dict[str, Command]] = {
    "demo": Command("controller.demo.command:main", "run a cluster, break it, heal it, replay its ISR trace", _LOCAL),
    "up": Command("controller.local.up:main", "run a local cluster until Ctrl-C", _LOCAL),
    "down": Command("controller.local.up:down_main", "end the cluster of a data folder", _LOCAL),
    "status": Command("controller.local.status:main", "what runs in a data folder", _LOCAL),
    "broker": Command("controller.cli:broker", "kill, stop or start a broker; `broker run` is the program", _LOCAL),
    "controller": Command(
        "controller.cli:controller", "kill, stop or start a controller; `controller run` is the program", _LOCAL
    ),
    "fault": Command("controller.local.fault:main", "put faults in force for running brokers, and end them", _LOCAL),
    "scenario": Command("controller.local.scenario.command:main", "play a file of load and faults: what held?", _LOCAL),
    "wait": Command("controller.local.check:wait_main", "wait for full ISRs, leaders, the end of moves", _ANSWERS),
    "check": Command("controller.local.check:check_main", "whether a cluster is as it should be", _ANSWERS),
    "logs": Command("controller.local.logs_command:main", "the log lines of all processes, merged by time", _LOCAL),
    "ui": Command("controller.ui.command:main", "a page that shows a cluster, or rehearsals, as they are", _LOCAL),
    "load": Command("controller.local.load.command:main", "send and read; is anything acknowledged missing?", _RECORDS),
    "produce": Command("controller.local.load.hand:produce_main", "send records by hand", _RECORDS),
    "consume": Command("controller.local.load.hand:consume_main", "print records", _RECORDS),
    "topics": Command("controller.admin.commands:topics.main", "kafka-topics", TOOLS),
    "reassign-partitions": Command(
        "controller.admin.commands:reassign_partitions.main", "kafka-reassign-partitions", TOOLS
    ),
    "leader-election": Command("controller.admin.commands:leader_election.main", "kafka-leader-election", TOOLS),
    "log-dirs": Command("controller.admin.commands:log_dirs.main", "kafka-log-dirs", TOOLS),
    "configs": Command("controller.admin.commands:configs.main", "kafka-configs", TOOLS),
    "consumer-groups": Command("controller.admin.commands:consumer_groups.main", "kafka-consumer-groups", TOOLS),
    "get-offsets": Command("controller.admin.commands:get_offsets.main", "kafka-get-offsets", TOOLS),
    "snapshot": Command("controller.admin.snapshot.command:main", "a cluster's shape and rates as a file", _ANSWERS),
    "why": Command("controller.local.why_local:main", "why a partition is offline, lags or is stuck", _ANSWERS),
    "rehearse": Command("controller.rehearse.command:main", "play a plan against a cluster on virtual time", _ANSWERS),
    "plan": Command("controller.rehearse.plan_command:main", "the throttle with which a move harms nobody", _ANSWERS),
    "explain": Command("controller.admin.explain:main", "what would happen, and why, without doing it", _ANSWERS),
    "sim": Command("controller.sim.command:main", "simulated clusters: a world of faults for each seed", _PROGRAMS),
    "health": Command("controller.admin.health:main", "whether a controller or a broker serves", _PROGRAMS),
    "forward": Command("controller.local.forward:main", "the door of a network of containers", _PROGRAMS),
    "spark": Command("broker_sim.replay.standalone:main", "`spark master`, `worker`: where replays run", _PROGRAMS),
    "trace": Command(
        "broker_sim.replay.generator.command:main", "`trace generate`: a synthetic cluster's trace", _PROGRAMS
    ),
    "replay": Command("broker_sim.replay.cli:main", "`replay run`: replay ISR traces or logs on Spark", _PROGRAMS),
    "test-cluster": Command("controller.embedded.server:main", "a cluster for KwobContainer, over a port", _PROGRAMS),
    "completion": Command("controller.cli:completion", "what bash, zsh or fish completes, as a script", _PROGRAMS),
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand. Returns its exit code; 2 for a subcommand that there is not, 130 after Ctrl-C."""
    words = list(sys.argv[1:] if argv is None else argv)
    _open_what_is_closed()
    _print_what_the_terminal_cannot()
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except (BrokenPipeError, SystemExit) as ended:  # the reader, such as `head`, has seen enough; rich exits then
        if isinstance(ended, SystemExit) and not isinstance(ended.__context__, BrokenPipeError):
            raise
        _forget_output()
        return PIPE_CLOSED
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EBADF) or error.filename is not None:
            raise
        _forget_output()
        print(f"kwob {' '.join(words[:1])}: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1


def _open_what_is_closed() -> None:
    """Who closes a standard stream wants nothing of it; else the next file or connection would be in its place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with contextlib.suppress(OSError):
                os.fstat(number)
                continue
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _run(words: list[str]) -> int:
    """As `main`, of words; what cannot be written comes out as it is."""
    if words[:1] == ["--version"]:
        print(version("kwob"))
        return 0
    if not words or words[0] in ("--help", "-h", "help"):
        _print_help(sys.stdout if words else sys.stderr)
        return 0 if words else 2
    if words[0] not in COMMANDS:
        print(f"kwob: no command {words[0]!r}; there are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    return _run_command(words[0], words[1:])


def _run_command(name: str, words: list[str]) -> int:
    """As `main`; 1 and a line that says what to install where a package of an extra is not there."""
    from controller.local import extras

    command, needed = COMMANDS[name], extras.NEEDED.get(name, ())
    absent = [] if {"--help", "-h"} & set(words) else extras.lacking(needed)
    try:
        if not absent:
            return _marked(name, command, with_bootstrap(command, words))
    except ModuleNotFoundError as error:
        extra = extras.extra_of(error.name, needed)
        if extra is None:
            raise
        absent = extras.lacking(needed) or [extra]
    print(extras.what_to_install(name, absent), file=sys.stderr)
    return 1


def _marked(name: str, command: Command, words: list[str]) -> int:
    """Runs it; one of Kafka's tools that changed the cluster of the data folder stands on that cluster's time line."""
    if command.heading != TOOLS:
        return _load(command.target)(words)
    began_ns = time.time_ns()
    code = _load(command.target)(words)
    if code == 0:
        from controller.local.marks import mark_tool

        mark_tool(_data_folder(), name, words, at_ns=began_ns)
    return code


def _data_folder() -> str:
    return os.environ.get("KWOB_DATA") or "kwob-data"


def _print_what_the_terminal_cannot() -> None:
    """A character that the terminal's encoding does not have is printed as `?` instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def _forget_output() -> None:
    """What is still buffered must not complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def with_bootstrap(command: Command, words: list[str]) -> list[str]:
    """A tool's words; where they name no cluster, the one of the data folder (KWOB_DATA, else ./kwob-data), if any."""
    tool, old_name = _BROKER_LIST
    names = {*_NAME_A_CLUSTER, old_name} if command is COMMANDS[tool] else _NAME_A_CLUSTER
    if command.heading != TOOLS or not words or any(word.partition("=")[0] in names for word in words):
        return words
    try:
        with open(os.path.join(_data_folder(), "cluster.json"), encoding="utf-8") as file:  # noqa: PTH118, PTH123 - pathlib is slow
            bootstrap = json.load(file)["bootstrap"]
    except (OSError, ValueError, KeyError, TypeError):
        return words
    return [*words, "--bootstrap-server", str(bootstrap)]


def broker(argv: Sequence[str]) -> int:
    """`kwob broker run ...` is the broker program, anything else a command to a running `kwob up`."""
    target = "broker_sim.__main__:main" if argv[:1] == ["run"] else "controller.local.control:broker_main"
    return _load(target)(argv)


def controller(argv: Sequence[str]) -> int:
    """`kwob controller run ...` is the controller program, anything else a command to a running `kwob up`."""
    target = "controller.__main__:main" if argv[:1] == ["run"] else "controller.local.control:controller_main"
    return _load(target)(argv)


def completion(argv: Sequence[str]) -> int:
    """`kwob completion SHELL`: prints a script for it. Returns the exit code."""
    from controller.local.completion import SHELLS, script
    from controller.local.flags import make_parser

    parser = make_parser(
        "kwob completion",
        "Prints what a shell completes behind kwob, made from the commands' own parsers.",
        examples=[
            'eval "$(kwob completion bash)"   # in ~/.bashrc',
            'eval "$(kwob completion zsh)"    # in ~/.zshrc, after compinit',
            "kwob completion fish | source    # in ~/.config/fish/config.fish",
        ],
        exit_codes="0 printed; 2 wrong arguments",
    )
    parser.add_argument("shell", choices=list(SHELLS))
    sys.stdout.write(script(parser.parse_args(argv).shell, completions()))
    return 0


def completions() -> Pages:
    """What may follow each command's words: the options of Kafka's tools, what the parsers of all others take."""
    from controller.local.completion import SHELLS, Page, pages_of
    from controller.local.extras import extra_of

    summaries = {name: command.summary for name, command in COMMANDS.items()}
    pages: Pages = {"": Page(commands=summaries, flags={"--help": "all commands", "--version": "of kwob"})}
    for name, command in COMMANDS.items():
        if command.heading == TOOLS:
            tool = made(command.target.removesuffix(".main"))
            pages[name] = Page(flags={f"--{option}": text for option, text in tool.options().items()})
        else:
            try:
                pages |= pages_of(name, *map(made, parsers_of(name, command)))
                for word, target in SUBCOMMANDS.get(name, {}).items():
                    parser = made(target)
                    summary = str(parser().description).partition(".")[0]
                    pages[name] = replace(pages[name], commands={**pages[name].commands, word: summary})
                    pages |= pages_of(f"{name} {word}", parser)
            except ModuleNotFoundError as error:
                if extra_of(error.name) is None:
                    raise
    pages["completion"] = Page(commands=dict.fromkeys(SHELLS, ""))
    return pages


def parsers_of(name: str, command: Command) -> list[str]:
    """Where a command's parsers are made: beside `main` in `command_line`, with the same beginning of the name."""
    if name in _TWO_PARSERS:
        return list(_TWO_PARSERS[name])
    module, _, function = command.target.partition(":")
    makers = (f"{function.removesuffix('main')}command_line", "parser")
    return [f"{module}:{maker}" for maker in makers if hasattr(import_module(module), maker)][:1]


def _load(target: str) -> Callable[[Sequence[str]], int]:
    loaded: Callable[[Sequence[str]], int] = made(target)
    return loaded


def made(target: str) -> Any:
    """What `module:name` names, loaded."""
    module, _, name = target.partition(":")
    return attrgetter(name)(import_module(module))


def _print_help(out: TextIO) -> None:
    print("usage: kwob COMMAND ...   (kwob COMMAND --help tells more)", file=out)
    for heading in dict.fromkeys(command.heading for command in COMMANDS.values()):
        print(f"\n{heading}:", file=out)
        for name, command in COMMANDS.items():
            if command.heading == heading:
                print(f"  {name:<20} {command.summary}", file=out)


if __name__ == "__main__":
    sys.exit(main())
