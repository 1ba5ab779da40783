"""The commands of README's "Run your own", typed on a machine that has nothing.

It is the image: python:3.11-slim with kwob installed. No browser, no terminal, not root, an empty folder.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest

from tests.docker.conftest import ROOT, docker

pytestmark = [pytest.mark.docker, pytest.mark.timeout(540)]

#: Times that README gives a reader to watch, and those of the test.
SHORTER = (("--duration 2m", "--duration 25s"), ("--for 30s", "--for 6s"), ("--for 60s", "--for 4s"))
#: What README says stands in `move.yaml`, and a plan for it.
MOVE = "cluster: cluster.yaml\nevents: [{at: 0s, do: reassign, file: plan.json, throttle: 50MB}]\n"
PLAN = {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [3, 2, 1]}]}
#: Those that README says have a terminal of their own.
OWN_TERMINAL = ("kwob up", "kwob load")


def typed() -> list[str]:
    """The commands of the section, in their order, without those about files of a real cluster."""
    section = (ROOT / "README.md").read_text().partition("## Run your own")[2].partition("\n## ")[0]
    lines = re.findall(r"^    (kwob .*)$", section, re.MULTILINE)
    return [line for line in lines if not re.search(r"--kafka-logs|--metadata-log", line)]


def script(commands: list[str]) -> str:
    """As a shell runs them; each ends with its words and its exit code on a line of its own."""
    files = (("move.yaml", MOVE), ("plan.json", json.dumps(PLAN)))
    lines = ["cd $(mktemp -d)", *(f"printf %s {shlex.quote(text)} > {name}" for name, text in files)]
    for command in commands:
        for long, short in SHORTER:
            command = command.replace(long, short)
        tell = f'echo "== $? {shlex.quote(command)}"'
        if command.startswith("kwob up"):
            lines.append(f"({command} > up.out 2>&1; {tell}) &")
            lines.append("for i in $(seq 300); do grep -q ^ready up.out && break; sleep 0.2; done")
        elif command.startswith(OWN_TERMINAL):
            lines.append(f"({command} > load.out 2>&1; {tell}; tail -1 load.out) & load=$!; sleep 3")
        else:
            lines.append(f"{command}; {tell}")
            if command.startswith("kwob fault clear"):
                lines.append("wait $load")
    return "\n".join(
        [*lines, 'kwob check; echo "== $? kwob check"', "ls results what-if rehearsal sweep", "kwob down", "wait"]
    )


def test_every_command_of_run_your_own_does_what_it_says(cluster: Any) -> None:
    commands = typed()
    assert len(commands) >= 12 and commands[0].startswith("kwob up") and "sweep" in commands[-1]
    ran = docker("run", "--rm", "--init", "--entrypoint", "bash", "kwob", "-c", script(commands))
    codes = dict(reversed(found) for found in re.findall(r"^== (\d+) '?(kwob[^'\n]*)", ran.stdout, re.MULTILINE))
    why = next(name for name in codes if name.startswith("kwob why"))
    assert codes.pop(why) == "3" and "broker 2 does not answer" in ran.stdout, "it says what is wrong, and that"
    assert {name: code for name, code in codes.items() if code != "0"} == {}, ran.stdout + ran.stderr
    assert len(codes) == len(commands), ran.stdout + ran.stderr
    assert "no acknowledged record is missing" in ran.stdout
    assert ran.stdout.count("report.html") >= 2
