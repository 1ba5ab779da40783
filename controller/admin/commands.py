"""Kafka's tools as commands: which version of a tool a command line means, and that one's run.

`kwob topics ...` is `topics.main([...])`; on a running loop, `await topics([...], machine)`. Without `--compat` a tool
is that of Kafka 3.9; `--compat 2.0` and `2.6` are what `controller.admin.older` has. Source: spec admin.md §0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Final

from controller.admin.toolkit.console import Console
from controller.admin.toolkit.machine import Machine, this_machine
from controller.admin.toolkit.tool import COMPATIBLE_VERSION, INTERRUPTED, Tool, run_async

#: What `--compat` takes: the older forms, and that of today.
OLDER_VERSIONS: Final = ("2.0", "2.6")
CURRENT_VERSIONS: Final = ("3.9", COMPATIBLE_VERSION)

#: Runs a tool as an older version had it: version, arguments, machine. Returns the exit code.
Older = Callable[[str, Sequence[str], Machine], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Command:
    """A tool in all its versions.

    `module` holds today's as `TOOL`. Neither it nor the older ones are loaded before they are asked for.
    """

    module: str
    older: Older

    def main(self, argv: Sequence[str], machine: Machine | None = None) -> int:
        """Runs the tool to its end. Returns its exit code; 130 when Ctrl-C ended it."""
        try:
            return asyncio.run(self(argv, machine or this_machine()))
        except KeyboardInterrupt:
            return INTERRUPTED

    async def __call__(self, argv: Sequence[str], machine: Machine) -> int:
        """As `main`, on the running loop."""
        compat, words = split_compat(argv)
        if compat in OLDER_VERSIONS:
            return await self.older(compat, words, machine)
        if compat not in (None, *CURRENT_VERSIONS):
            console = Console(machine, as_json="--json" in argv)
            complaint = f"--compat {compat}: expected one of {', '.join((*OLDER_VERSIONS, CURRENT_VERSIONS[0]))}"
            console.complain(complaint)
            console.result({"error": complaint})
            return 1
        tool = import_module(self.module).TOOL
        assert isinstance(tool, Tool)
        return await run_async(tool, words, machine)


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


# The older forms.


async def _older_topics(compat: str, argv: Sequence[str], machine: Machine) -> int:
    from controller.admin.older import program, topics

    return await program.run_older(topics.tool(compat), argv, machine)


async def _older_reassign(compat: str, argv: Sequence[str], machine: Machine) -> int:
    from controller.admin.older import program, reassign

    return await program.run_older(reassign.tool(compat), argv, machine)


async def _older_election(compat: str, argv: Sequence[str], machine: Machine) -> int:
    from controller.admin.older import by_broker, election, program

    if by_broker.means_leader_tool(compat, argv):
        return await run_async(by_broker.election_tool(), argv, machine)
    return await program.run_older(election.tool(compat), argv, machine)


async def _older_configs(compat: str, argv: Sequence[str], machine: Machine) -> int:
    from controller.admin.older import configs, program

    return await program.run_older(configs.tool(compat), argv, machine)


async def _older_groups(compat: str, argv: Sequence[str], machine: Machine) -> int:
    from controller.admin.older import consumer_groups

    return await consumer_groups.run_older(compat, argv, machine)


async def _older_get_offsets(_compat: str, argv: Sequence[str], machine: Machine) -> int:
    from controller.admin.older import get_offsets

    return await get_offsets.run_older(argv, machine)


async def _older_log_dirs(_compat: str, argv: Sequence[str], machine: Machine) -> int:
    from controller.admin import log_dirs

    tool = replace(log_dirs.TOOL, perform=partial(log_dirs.perform, older=True))
    return await run_async(tool, argv, machine)


topics: Final = Command("controller.admin.topics", _older_topics)
reassign_partitions: Final = Command("controller.admin.reassign_partitions", _older_reassign)
leader_election: Final = Command("controller.admin.leader_election", _older_election)
log_dirs: Final = Command("controller.admin.log_dirs", _older_log_dirs)
configs: Final = Command("controller.admin.configs", _older_configs)
consumer_groups: Final = Command("controller.admin.consumer_groups", _older_groups)
get_offsets: Final = Command("controller.admin.get_offsets", _older_get_offsets)
