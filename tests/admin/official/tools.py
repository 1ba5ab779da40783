"""Who runs a command line: Kafka's unmodified tools in one Java, or these tools in this process."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from controller.admin import commands
from controller.admin.toolkit.machine import Machine
from controller.world.ports import Clock, Network

HERE: Final = Path(__file__).parent
#: Longest run of one command line: Kafka's admin client gives up after a minute.
RUN_LIMIT_S: Final = 90
TOOLS: Final[Mapping[str, commands.Command]] = {
    "topics": commands.topics,
    "reassign-partitions": commands.reassign_partitions,
    "leader-election": commands.leader_election,
    "configs": commands.configs,
    "log-dirs": commands.log_dirs,
    "consumer-groups": commands.consumer_groups,
    "get-offsets": commands.get_offsets,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run left. `exit` is None for one that did not end in time."""

    exit: int | None
    out: str
    err: str


class Tools(Protocol):
    """Runs a tool with an argument vector."""

    async def run(self, tool: str, argv: Sequence[str]) -> Outcome: ...


class KafkaTools:
    """Kafka's tools, by a Java that stays up. Close it."""

    def __init__(self, jars: Path) -> None:
        log4j = f"-Dlog4j.configuration=file:{jars.parent}/tools-log4j.properties"
        if jars.parent.name >= "4":
            log4j = f"-Dlog4j2.configurationFile=file:{jars.parent}/tools-log4j2.properties"
        self._java = subprocess.Popen(
            [
                "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC",
                log4j, "-cp", f"{jars}/*", str(HERE / "KafkaTools.java"),
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8",
        )  # fmt: skip

    async def run(self, tool: str, argv: Sequence[str]) -> Outcome:
        """Blocks: while a tool runs, nothing else is to happen here."""
        stdin, stdout = self._java.stdin, self._java.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps({"tool": tool, "argv": list(argv), "limit_s": RUN_LIMIT_S}) + "\n")
        stdin.flush()
        answer: dict[str, Any] = json.loads(stdout.readline())
        return Outcome(answer["exit"], answer["out"], answer["err"])

    def close(self) -> None:
        """Ends the Java."""
        assert self._java.stdin is not None and self._java.stdout is not None
        self._java.stdin.close()
        self._java.wait(30)
        self._java.stdout.close()


class OurTools:
    """These tools, on a network and a clock. `seed` decides what they draw."""

    def __init__(self, network: Network, clock: Clock, *, seed: int = 1, extra: Sequence[str] = ()) -> None:
        self._network, self._clock, self._seed, self._extra = network, clock, seed, extra

    async def run(self, tool: str, argv: Sequence[str]) -> Outcome:
        out, err = io.StringIO(), io.StringIO()
        machine = Machine(network=self._network, clock=self._clock, chance=random.Random(self._seed), out=out, err=err)
        code = await TOOLS[tool]([*self._extra, *argv], machine)
        return Outcome(code, out.getvalue(), err.getvalue())


def kafka_jars(version: str = "3.9.1") -> Path:
    """The folder of Kafka's jars."""
    from tests.kafka.cluster import REAL_KAFKA

    environment = {**os.environ, "KAFKA_VERSION": version}
    told = subprocess.run([str(REAL_KAFKA), "jars"], capture_output=True, text=True, check=True, env=environment)
    return Path(told.stdout.strip())
