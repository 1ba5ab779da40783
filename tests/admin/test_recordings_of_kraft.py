"""The tools with `--compat 4.1` beside recordings of Kafka 4.1's own on a cluster of 4.1.

Here a simulated cluster answers, whose refusals are in the words of 3.9: these, and what only znodes or KRaft's brokers
tell, are named below. All other words, streams and exit codes must be equal.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import structlog

from controller.world.simulated.world import World, run_world
from tests.admin.official.compare import differences
from tests.admin.official.play import Run, play, racks_of, recording
from tests.admin.official.simulated import simulated
from tests.admin.official.tools import OurTools
from tests.admin.test_recordings import BOTH, LaterClock

pytestmark = pytest.mark.sim

#: Words of the cluster, not of the tools: 4.1's controller, and what stands for it in 3.9's.
_OF_CLUSTERS: Final = (
    (r"No such (?:partition|topic) as \S+|The partition does not exist\.", "<no such partition>"),
    (r"All brokers are currently fenced\.|Replication factor: 1 larger than available brokers: 0\.", "<no brokers>"),
    (
        r"The target replication factor of 2 cannot be reached because only 1 broker\(s\) are registered\."
        r"|Replication factor: 2 larger than available brokers: 1\.",
        "<too few brokers>",
    ),
    # ids of topics are random, eligible leaders are KRaft's, and 4.1 sets min.insync.replicas where it has those
    (r"\tTopicId: \S+|,?min\.insync\.replicas=1(?=\s|$)|\tElr: (?:N/A)?\tLastKnownElr: (?:N/A)?", ""),
)


def without_the_clusters_words(runs: list[Run]) -> list[Run]:
    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(each) for each in value]
        if isinstance(value, str):
            for pattern, name in _OF_CLUSTERS:
                value = re.sub(pattern, name, value)
        return value

    return [{name: plain(value) for name, value in run.items() if name != "znodes"} for run in runs]


@pytest.mark.parametrize("scenario", ["offsets", "log_dirs", "elections", "reassign_refused"])
def test_the_tools_say_what_those_of_4_1_say(scenario: str, tmp_path: Path) -> None:
    async def run(world: World) -> list[Run]:
        async with simulated(world, tmp_path, racks_of(scenario)) as stage:
            return await play(stage, scenario, OurTools(stage.network, LaterClock(), extra=("--compat", "4.1")))

    with structlog.testing.capture_logs():
        found = run_world(1, run)
    recorded = recording(scenario, "kraft")["runs"]
    one, other = without_the_clusters_words(recorded), without_the_clusters_words(found)
    different = differences(scenario, one, other, BOTH)
    assert not different, "\n" + "\n".join(different)
    assert len(recorded) > 15
