"""Records what Kafka's own tools say on Kafka's own brokers: `python -m tests.admin.record [SCENARIO...]`.

Needs Java, Maven's jars and the starter of a real Kafka (see tests/kafka/cluster.py). Without names, all scenarios.
With `--ours`, these tools run instead and nothing is saved: what differs from the recordings is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from controller.world.real.clock import SystemClock
from controller.world.real.embedded_zookeeper import EmbeddedZooKeeper
from controller.world.real.net import TcpNetwork
from tests.admin.official.clusters import processes
from tests.admin.official.compare import differences
from tests.admin.official.differences import allowed
from tests.admin.official.kraft import VERSION as KRAFT_VERSION
from tests.admin.official.kraft import kraft
from tests.admin.official.play import play, racks_of, recording, save, scenario_names
from tests.admin.official.tools import KafkaTools, OurTools, Tools, kafka_jars
from tests.kafka.cluster import missing

#: Scenarios that write znodes, or of a cluster that nobody reaches.
NOT_ON_KRAFT = ("odd_states", "unreachable")


def main() -> int:
    """Plays the scenarios asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.admin.record", description=__doc__)
    parser.add_argument("scenario", nargs="*", help="names without .txt; all without any")
    parser.add_argument("--ours", action="store_true", help="run these tools, and compare")
    parser.add_argument(
        "--on", choices=("kafka", "kwob", "kraft"), default="kafka", help="whose brokers; kraft: Kafka 4.1's"
    )
    options = parser.parse_args()
    if reason := missing():
        sys.exit(reason)
    wanted = options.scenario or scenario_names()
    if options.on == "kraft":
        wanted = options.scenario or [name for name in scenario_names() if name not in NOT_ON_KRAFT]
        with tempfile.TemporaryDirectory() as folder:
            return asyncio.run(_record_kraft(Path(folder), wanted, ours=options.ours))
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_record(Path(folder), wanted, ours=options.ours, kafka=options.on == "kafka"))


async def _record_kraft(folder: Path, wanted: list[str], *, ours: bool) -> int:
    clock = SystemClock()
    tools: Tools = (
        OurTools(TcpNetwork(), clock, extra=("--compat", "4.1")) if ours else KafkaTools(kafka_jars(KRAFT_VERSION))
    )
    different = 0
    try:
        for kind in sorted({racks_of(name) for name in wanted}):
            async with kraft(folder / kind, kind) as stage:
                for name in (n for n in wanted if racks_of(n) == kind):
                    runs = await play(stage, name, tools)
                    print(f"{name}: {len(runs)} runs", file=sys.stderr)
                    if not ours:
                        save(name, KRAFT_VERSION, runs, "kraft")
                        continue
                    for text in differences(
                        name, recording(name, "kraft")["runs"], runs, allowed(ours=True, kafka=True)
                    ):
                        different += 1
                        print(text)
    finally:
        if isinstance(tools, KafkaTools):
            tools.close()
    return 1 if different else 0


async def _record(folder: Path, wanted: list[str], *, ours: bool, kafka: bool) -> int:
    jars = kafka_jars()
    tools: Tools = OurTools(TcpNetwork(), SystemClock()) if ours else KafkaTools(jars)
    different = 0
    try:
        async with EmbeddedZooKeeper(folder / "zookeeper") as zookeeper:
            for kind in sorted({racks_of(name) for name in wanted}):
                async with processes(folder / kind, f"{zookeeper.address}/{kind}", kind, kafka=kafka) as stage:
                    for name in wanted:
                        if racks_of(name) == kind:
                            runs = await play(stage, name, tools)
                            print(f"{name}: {len(runs)} runs", file=sys.stderr)
                            if kafka and not ours:
                                save(name, "3.9.1", runs)
                                continue
                            by = allowed(ours=ours, kafka=kafka)
                            for text in differences(name, recording(name)["runs"], runs, by):
                                different += 1
                                print(text)
    finally:
        if isinstance(tools, KafkaTools):
            tools.close()
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
