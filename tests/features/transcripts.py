"""Runs the transcripts of docs/tools.md: `python -m tests.features.transcripts` writes them anew.

A block marked `console` has commands, each behind `$ `, with what they print. They run in order, in one system on
virtual time with three brokers and one seed. Comments between the blocks change its world: `kill N`,
`produce TOPIC PARTITION RECORDS`, `file NAME TEXT`.
"""

from __future__ import annotations

import argparse
import io
import random
import re
import shlex
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from controller.admin import explain
from controller.admin.toolkit.machine import Machine
from controller.admin.why import command as why
from tests.worlds.system import TOOLS, System, play

FILE = Path(__file__).resolve().parents[2] / "docs" / "tools.md"
_PARTS = re.compile(r"^```console\n(?P<block>.*?)^```$|^<!-- (?P<step>.*?) -->$", re.MULTILINE | re.DOTALL)


def rewritten(text: str) -> str:
    """The document with what its commands print now."""
    with tempfile.TemporaryDirectory() as folder:
        return _play(text, Path(folder))


def _play(text: str, folder: Path) -> str:
    parts: list[str] = []

    async def scenario(system: System) -> None:
        at = 0
        for found in _PARTS.finditer(text):
            parts.append(text[at : found.start()])
            at = found.end()
            if found["step"] is not None:
                await _step(system, folder, found["step"])
                parts.append(found[0])
                continue
            commands = [line for line in found["block"].splitlines() if line.startswith("$ ")]
            printed = [f"{command}\n{await _run(system, folder, command[2:])}" for command in commands]
            parts.append("```console\n" + "".join(printed) + "```")
        parts.append(text[at:])

    play(folder, scenario)
    return "".join(parts)


async def _step(system: System, folder: Path, step: str) -> None:
    word, _, rest = step.partition(" ")
    if word == "kill":
        await system.hold(int(rest))
        await system.sleep(10)
    elif word == "produce":
        topic, partition, records = rest.split()
        await system.until(system.healthy, within_s=30, what="all in sync")
        await system.sleep(2)
        for _ in range(int(records)):
            assert await system.produce(topic, int(partition), b"x" * 1000)
    elif word == "file":
        name, _, content = rest.partition(" ")
        (folder / name).write_text(content, encoding="utf-8")
    else:
        raise ValueError(f"no such step: {step}")


async def _run(system: System, folder: Path, line: str) -> str:
    out = io.StringIO()
    machine = Machine(
        network=system.world.machine("client").network,
        clock=system.world.clock,
        chance=random.Random(11),
        out=out,
        err=out,
    )
    words = shlex.split(line)
    assert words[0] == "kwob", line
    argv = [str(folder / word) if (folder / word).is_file() else word for word in words[2:]]
    if words[1] == "why":
        parser = argparse.ArgumentParser()
        why.add_arguments(parser)
        connector = system.world.machine("client").connector(session_timeout_ms=60_000)
        await why.explain(parser.parse_args(argv), machine, lambda _: connector)
    elif words[1] == "explain":
        await explain.main_async(argv, machine)
    else:
        tool: Callable[[Sequence[str], Machine], object] = TOOLS[words[1]]
        await tool(argv, machine)  # type: ignore[misc]
    return _without_folder(out.getvalue(), str(system.folder))


def _without_folder(text: str, folder: str) -> str:
    """Paths of this run as /data; columns beside them are as wide as this run's paths, so their blanks are two."""
    if folder not in text:
        return text
    lines = text.replace(folder, "/data").splitlines(keepends=True)
    return "".join(
        re.sub(r"(?<=\S) {2,}", "  ", line) if "/data" in line or "log dir" in line else line for line in lines
    )


if __name__ == "__main__":
    FILE.write_text(rewritten(FILE.read_text(encoding="utf-8")), encoding="utf-8")
