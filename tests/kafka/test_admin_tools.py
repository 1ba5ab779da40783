"""Kafka's tools and these, each on Kafka's brokers and on kwob's: the same command lines, compared with the recordings.

Recorded is what Kafka's tools say on Kafka's brokers (`python -m tests.admin.record` renews it). Here the other three
pairs are played on real processes, and that one again, so that the recordings stay true.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.world.real.clock import SystemClock
from controller.world.real.embedded_zookeeper import EmbeddedZooKeeper
from controller.world.real.net import TcpNetwork
from tests.admin.official.clusters import processes
from tests.admin.official.compare import differences
from tests.admin.official.differences import OLDER, TOOLS, allowed
from tests.admin.official.kraft import kraft
from tests.admin.official.play import Run, play, racks_of, recording, scenario_names
from tests.admin.official.stage import RACKS
from tests.admin.official.tools import KafkaTools, OurTools, Tools, kafka_jars
from tests.admin.record import NOT_ON_KRAFT

from .cluster import missing

ON_KRAFT = [name for name in scenario_names() if name not in NOT_ON_KRAFT]
pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
#: id -> whose tools are Kafka's, whose brokers are Kafka's
PAIRS = {
    "Kafka's tools on Kafka's brokers": (True, True),
    "these tools on Kafka's brokers": (False, True),
    "Kafka's tools on kwob's brokers": (True, False),
    "these tools on kwob's brokers": (False, False),
}


@pytest.fixture(scope="module", autouse=True)
def real_kafka() -> None:
    if reason := missing():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def kafka_tools() -> Iterator[KafkaTools]:
    tools = KafkaTools(kafka_jars())
    yield tools
    tools.close()


async def _play_all(folder: Path, connect: str, kind: str, tools: Tools, *, kafka: bool) -> dict[str, list[Run]]:
    async with processes(folder, connect, kind, kafka=kafka) as stage:
        return {name: await play(stage, name, tools) for name in scenario_names() if racks_of(name) == kind}


@pytest.mark.parametrize("kind", RACKS)
@pytest.mark.parametrize("pair", PAIRS)
def test_tools_and_brokers_say_what_was_recorded(
    pair: str, kind: str, zookeeper: EmbeddedZooKeeper, tmp_path: Path, kafka_tools: KafkaTools
) -> None:
    theirs, kafka = PAIRS[pair]
    tools: Tools = kafka_tools if theirs else OurTools(TcpNetwork(), SystemClock())
    connect = f"{zookeeper.address}/tools-{theirs}-{kafka}-{kind}"
    played = asyncio.run(_play_all(tmp_path, connect, kind, tools, kafka=kafka))
    by = allowed(ours=not theirs, kafka=kafka)
    different = [t for name, runs in played.items() for t in differences(name, recording(name)["runs"], runs, by)]
    assert not different, "\n" + "\n".join(different)


def test_these_tools_say_on_a_cluster_of_4_1_what_its_own_say(tmp_path: Path) -> None:
    """Of what OLDER allows only this is met: where new partitions go is drawn."""

    async def run() -> list[str]:
        different = []
        for kind in sorted({racks_of(name) for name in ON_KRAFT}):
            async with kraft(tmp_path / kind, kind) as stage:
                for name in (name for name in ON_KRAFT if racks_of(name) == kind):
                    runs = await play(stage, name, OurTools(TcpNetwork(), SystemClock(), extra=("--compat", "4.1")))
                    different += differences(name, recording(name, "kraft")["runs"], runs, (TOOLS, OLDER))
        return different

    different = asyncio.run(run())
    assert not different, "\n" + "\n".join(different)
