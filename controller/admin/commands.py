"""Kafka's tools as commands: which version of a tool a command line means, and that one's run.

`kwob topics ...` is `topics.main([...])`; on a running loop, `await topics([...], machine)`. Without `--compat` a tool
is that of Kafka 3.9, and of 4.1 on a cluster of Kafka 4; `--compat 2.0` and `2.6` work on ZooKeeper where those did.
Source: spec admin.md §0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Final

from controller.admin.toolkit.console import Console
from controller.admin.toolkit.machine import Machine, run_main
from controller.admin.toolkit.texts import V39
from controller.admin.toolkit.tool import Tool, run_async
from controller.admin.toolkit.versions import V41, VERSIONS


@dataclass(frozen=True, slots=True)
class Command:
    """A tool in all its versions: `module` has `tool_of`, and is not loaded before it is asked for. `examples` end the
    help of today's."""

    module: str
    examples: tuple[str, ...]

    def main(self, argv: Sequence[str], machine: Machine | None = None) -> int:
        """Runs the tool to its end. Returns its exit code; 130 when Ctrl-C ended it."""
        return run_main(self, argv, machine)

    def options(self) -> dict[str, str]:
        """The options of today's tool, with what they are for."""
        table = import_module(self.module).tool_of(V39, ["--help"]).table
        return {name: table[name].help for name in table.names}

    async def __call__(self, argv: Sequence[str], machine: Machine) -> int:
        """As `main`, on the running loop."""
        compat, words = split_compat(argv)
        texts = VERSIONS.get(V39.version if compat is None else compat)
        if texts is None:
            console = Console(machine, as_json="--json" in argv)
            complaint = (
                f"--compat {compat}: expected one of {', '.join(dict.fromkeys(t.version for t in VERSIONS.values()))}"
            )
            console.complain(complaint)
            console.result({"error": complaint})
            return 1
        tool_of = import_module(self.module).tool_of
        tool = tool_of(texts, words)
        assert isinstance(tool, Tool)
        if compat is None:
            tool = replace(tool, on_kraft=lambda: tool_of(V41, words))
        code = await run_async(tool, words, machine)
        if compat is None and "--help" in words and "--json" not in words:
            machine.err.write("\n".join(["", "examples:", *(f"  {line}" for line in self.examples), ""]))
        return code


class TopicsCommand(Command):
    """kafka-topics; `--explain` without an action is `kwob explain layout`."""

    async def __call__(self, argv: Sequence[str], machine: Machine) -> int:
        """As `Command`."""
        from controller.admin.topics.command import asks_for_layout

        compat, words = split_compat(argv)
        if compat in (None, V39.version) and asks_for_layout(words):
            from controller.admin import explain  # with rich, which is half of what a tool takes to start

            return await explain.main_async(["layout", *words], machine)
        return await super().__call__(argv, machine)


def split_compat(argv: Sequence[str]) -> tuple[str | None, list[str]]:
    """The value of `--compat` (the last one; None without), and the other words."""
    compat: str | None = None
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--compat":
            compat = next(words, "")
        elif word.startswith("--compat="):
            compat = word.removeprefix("--compat=")
        else:
            rest.append(word)
    return compat, rest


_AT: Final = "--bootstrap-server localhost:9092"

topics: Final = TopicsCommand(
    "controller.admin.topics.command",
    (
        f"kwob topics {_AT} --create --topic orders --partitions 6 --replication-factor 3",
        f"kwob topics {_AT} --describe --topic orders --explain",
        f"kwob topics {_AT} --describe --under-replicated-partitions",
    ),
)
reassign_partitions: Final = Command(
    "controller.admin.reassignment.command",
    (
        f"kwob reassign-partitions {_AT} --generate --strategy minimal --broker-list 1,2,3 "
        "--topics-to-move-json-file topics.json",
        f"kwob reassign-partitions {_AT} --execute --dry-run --throttle 50000000 --reassignment-json-file plan.json",
        f"kwob reassign-partitions {_AT} --execute --progress --throttle 50000000 --reassignment-json-file plan.json",
        f"kwob reassign-partitions {_AT} --verify --reassignment-json-file plan.json",
    ),
)
leader_election: Final = Command(
    "controller.admin.elections.command",
    (
        f"kwob leader-election {_AT} --election-type preferred --all-topic-partitions",
        f"kwob leader-election {_AT} --election-type unclean --topic orders --partition 3",
    ),
)
log_dirs: Final = Command(
    "controller.admin.log_dirs", (f"kwob log-dirs {_AT} --describe --broker-list 1,2 --topic-list orders",)
)
configs: Final = Command(
    "controller.admin.configs.command",
    (
        f"kwob configs {_AT} --describe --topic orders --all",
        f"kwob configs {_AT} --alter --topic orders --add-config min.insync.replicas=2,retention.ms=86400000",
        f"kwob configs {_AT} --alter --broker 1 --delete-config leader.replication.throttled.rate",
    ),
)
consumer_groups: Final = Command(
    "controller.admin.groups.command",
    (
        f"kwob consumer-groups {_AT} --describe --group billing",
        f"kwob consumer-groups {_AT} --reset-offsets --to-earliest --group billing --topic orders --dry-run",
    ),
)
get_offsets: Final = Command(
    "controller.admin.offsets.command", (f"kwob get-offsets {_AT} --topic orders --time latest",)
)
