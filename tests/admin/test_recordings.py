"""The tools beside the recordings of Kafka's own, on a simulated cluster in equal states. See `record.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog

from controller.world.simulated.world import World, run_world
from tests.admin.official.compare import differences, rows_met
from tests.admin.official.differences import BROKERS, DIFFERENCES, TOOLS
from tests.admin.official.play import Run, play, racks_of, recording, scenario_names
from tests.admin.official.simulated import simulated
from tests.admin.official.tools import OurTools

pytestmark = pytest.mark.sim
BOTH = (TOOLS, BROKERS)


class LaterClock:
    """A time of day after all records of the scenarios."""

    def now_ms(self) -> int:
        return 1_795_000_000_000


def play_simulated(folder: Path, scenario: str) -> list[Run]:
    """A scenario with these tools on a cluster in memory."""

    async def run(world: World) -> list[Run]:
        async with simulated(world, folder, racks_of(scenario)) as stage:
            return await play(stage, scenario, OurTools(stage.network, LaterClock()))

    with structlog.testing.capture_logs():
        return run_world(1, run)


@pytest.mark.parametrize("scenario", scenario_names())
def test_the_tools_say_what_kafkas_say(scenario: str, tmp_path: Path) -> None:
    recorded, found = recording(scenario)["runs"], play_simulated(tmp_path, scenario)
    different = differences(scenario, recorded, found, BOTH)
    assert not different, "\n" + "\n".join(different)
    needed = rows_met(scenario, recorded, found, BOTH)
    rows = {row.reason for row in DIFFERENCES if row.scenario == scenario and row.by in BOTH}
    assert rows == needed, "the table of differences has rows that nothing needs any more"
