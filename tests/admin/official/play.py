"""Plays a scenario on a stage with somebody's tools, and writes down what came of it in normal form.

A scenario is a text file: one step per line. A line that begins with a tool's name runs it: `$B` is the bootstrap
option, `$F` the folder of files, `$DIR(1,more)` a log directory of broker 1. A line that begins with `!` sets the
scene; `STEPS` has them all.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from tests.admin.official.normal_form import CONTROLLER, in_order, normal, normal_znodes
from tests.admin.official.stage import Stage
from tests.admin.official.tools import TOOLS, Tools

SCENARIOS: Final = Path(__file__).parents[1] / "scenarios"
RECORDINGS: Final = Path(__file__).parents[1] / "recordings"
Run = dict[str, Any]


def scenario_names() -> list[str]:
    """All scenarios."""
    return sorted(path.stem for path in SCENARIOS.glob("*.txt"))


def lines_of(scenario: str) -> list[str]:
    """The steps."""
    text = (SCENARIOS / f"{scenario}.txt").read_text(encoding="utf-8")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def racks_of(scenario: str) -> str:
    """The kind of cluster, from the first line: `# on: half-racked`."""
    first = (SCENARIOS / f"{scenario}.txt").read_text(encoding="utf-8").splitlines()[0]
    return first.removeprefix("# on:").strip() if first.startswith("# on:") else "plain"


async def _kill(stage: Stage, words: list[str]) -> None:
    await stage.kill(int(words[0]))


async def _start(stage: Stage, words: list[str]) -> None:
    await stage.start(int(words[0]))


async def _settle(stage: Stage, words: list[str]) -> None:
    await stage.settle(moving=words == ["moving"])


async def _produce(stage: Stage, words: list[str]) -> None:
    topic, partition, batches, timestamp = words
    await stage.produce(topic, int(partition), int(batches), int(timestamp))


async def _commit(stage: Stage, words: list[str]) -> None:
    group, topic, *pairs = words
    await stage.commit(group, topic, {int(p.split("=")[0]): int(p.split("=")[1]) for p in pairs})


async def _join(stage: Stage, words: list[str]) -> None:
    group, client_id, topic, *partitions = words
    await stage.join(group, client_id, topic, [int(p) for p in partitions])


async def _leave(stage: Stage, words: list[str]) -> None:
    await stage.leave(words[0])


async def _hidden(stage: Stage, words: list[str]) -> None:
    await stage.hidden(words[0])


async def _configured(stage: Stage, words: list[str]) -> None:
    await stage.configured(words[0], words[1])


async def _write(stage: Stage, words: list[str]) -> None:
    await stage.write(words[0], " ".join(words[1:]) or None)


STEPS: Final[dict[str, Callable[[Stage, list[str]], Awaitable[None]]]] = {
    "kill": _kill,  # BROKER
    "start": _start,  # BROKER
    "settle": _settle,  # [moving]
    "produce": _produce,  # TOPIC PARTITION BATCHES TIMESTAMP
    "commit": _commit,  # GROUP TOPIC PARTITION=OFFSET...
    "join": _join,  # GROUP CLIENT-ID TOPIC PARTITION...
    "leave": _leave,  # GROUP
    "hidden": _hidden,  # TOPIC
    "configured": _configured,  # NAME VALUE
    "write": _write,  # ZNODE [TEXT]
}


async def play(stage: Stage, scenario: str, tools: Tools) -> list[Run]:
    """Every run of a tool and every look at the znodes, in order. The stage is cleared afterwards,
    unless it was for this scenario alone (`fresh`)."""
    runs: list[Run] = []
    for line in lines_of(scenario):
        name, _, rest = line.partition(" ")
        if name in TOOLS:
            await stage.caught_up()
            outcome = await tools.run(name, [_filled(word, stage) for word in shlex.split(rest)])
            names = stage.names
            runs.append(
                {"line": line, "exit": outcome.exit, "out": _out(name, outcome.out, names)}
                | ({"err": err} if (err := normal(outcome.err, names)) else {})
            )
        elif name == "!file":
            file, _, text = rest.partition(" ")
            (stage.files / file).write_text(_filled(text, stage).replace("\\n", "\n"), encoding="utf-8")
        elif name == "!znodes":
            await stage.settle(moving=rest == "moving")
            runs.append({"line": line, "znodes": normal_znodes(await stage.znodes())})
        else:
            await STEPS[name.removeprefix("!")](stage, rest.split())
    if racks_of(scenario) != "fresh":
        await stage.clear()
    return runs


def _filled(text: str, stage: Stage) -> str:
    text = text.replace("$B", f"--bootstrap-server={stage.bootstrap}").replace("$F", str(stage.files))
    return re.sub(r"\$DIR\((\d),(\w+)\)", lambda m: stage.log_dir(int(m[1]), m[2]), text)


def _out(tool: str, text: str, names: dict[str, str]) -> list[str]:
    lines = in_order(tool, normal(text, names))
    return [_ordered_dirs(line) if tool == "log-dirs" and line.startswith("{") else line for line in lines]


def _ordered_dirs(line: str) -> str:
    """The JSON of log-dirs; a broker lists its directories in no particular order."""
    value = json.loads(line)
    value["brokers"] = [broker for broker in value["brokers"] if broker["broker"] != CONTROLLER]
    for broker in value["brokers"]:
        broker["logDirs"].sort(key=lambda d: str(d["logDir"]))
        for log_dir in broker["logDirs"]:
            log_dir["partitions"].sort(key=lambda p: (str(p["partition"]), p["isFuture"]))
    return json.dumps(value, separators=(",", ":"))


def recording(scenario: str, folder: str = "") -> dict[str, Any]:
    """What Kafka's tools said on Kafka's brokers; `kraft` has what those of 4.1 said on a cluster of 4.1."""
    found: dict[str, Any] = json.loads((RECORDINGS / folder / f"{scenario}.json").read_text(encoding="utf-8"))
    return found


def save(scenario: str, kafka: str, runs: list[Run], folder: str = "") -> None:
    """Writes a recording; one line per line of output, so that a difference can be read."""
    value = {"kafka": kafka, "scenario": scenario, "runs": runs}
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    (RECORDINGS / folder).mkdir(exist_ok=True)
    (RECORDINGS / folder / f"{scenario}.json").write_text(text, encoding="utf-8")
