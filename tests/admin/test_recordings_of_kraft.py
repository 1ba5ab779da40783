"""The tools with `--compat 4.1` beside recordings of Kafka 4.1's own on a cluster of 4.1.

Here a simulated cluster answers, with the topic configs and the default of 4.1. Its refusals are in the words of 3.9:
each is named below with that of 4.1, and a row of `differences` (OLDER) has what 4.1 does otherwise. All other words,
streams and exit codes must be equal. On a live 4.1 cluster nothing is left to name: tests/kafka plays that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import pytest
import structlog

from controller.rules.configs.topic import TOPIC_CONFIGS, TopicConfig
from controller.wire.protocol import ApiKey
from controller.world.simulated.world import World, run_world
from tests.admin.official.compare import differences, rows_met
from tests.admin.official.differences import BROKERS, DIFFERENCES, OLDER, TOOLS
from tests.admin.official.play import Run, play, racks_of, recording
from tests.admin.official.simulated import simulated
from tests.admin.official.stage import Stage
from tests.admin.official.tools import OurTools
from tests.admin.test_recordings import LaterClock

pytestmark = pytest.mark.sim

#: What the controller or a broker of 4.1 says, and the same of 3.9. Groups must be equal.
_OF_CLUSTERS: Final[Mapping[str, str]] = {
    r"No such (?:partition|topic) as \S+": r"The partition does not exist\.",
    r"(?:Unable to replicate the partition \d+ time\(s\): )?The target replication factor of (\d+) cannot be reached "
    r"because only (\d+) broker\(s\) are registered\.": (
        r"Replication factor: (\d+) larger than available brokers: (\d+)\."
    ),
    r"(Invalid value .*)": (
        r"Invalid config value for resource ConfigResource\(type=TOPIC, name='foo'\): (Invalid value .*)"
    ),
    r"collides with existing topic: (.*)": r"collides with existing topics: (.*)",
    r"The topic foo currently has (\d+) partition\(s\); (\d+) would not be an increase\.": (
        r"Topic currently has (\d+) partitions, which is higher than the requested (\d+)\."
    ),
    r"Topic already has (\d+) partition\(s\)\.": r"Topic already has (\d+) partitions\.",
    r"Attempted to add (\d+) additional partition\(s\), but only (\d+) assignment\(s\) were specified\.": (
        r"Increasing the number of partitions by (\d+) but (\d+) assignments provided\."
    ),
    r"The manual partition assignment includes broker (\d+), but no such broker is registered\.": (
        r"Unknown broker\(s\) in replica assignment: (\d+)\."
    ),
    r"\tElr: \tLastKnownElr: ": r"\tElr: N/A\tLastKnownElr: N/A",
}  # fmt: skip


#: Told by brokers of KRaft alone.
_TOPIC_ID: Final = "\tTopicId: <id>"


def in_words_of_39(runs: list[Run]) -> list[Run]:
    """The same runs with what clusters say replaced by the number of its row."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(each) for each in value]
        if not isinstance(value, str):
            return value
        value = value.replace(_TOPIC_ID, "")
        for number, (newer, older) in enumerate(_OF_CLUSTERS.items()):
            value = re.sub(f"{older}|{newer}", partial(_numbered, number), value)
        return value

    return [{name: plain(value) for name, value in run.items() if name != "znodes"} for run in runs]


def _numbered(row: int, found: re.Match[str]) -> str:
    return f"<{row}: {', '.join(word for word in found.groups() if word is not None)}>"


@pytest.fixture
def topic_configs_of_41(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """4.0 took two away, gave one another default and another a least value."""
    table = cast(dict[str, TopicConfig], TOPIC_CONFIGS)
    for gone in ("message.downconversion.enable", "message.timestamp.difference.max.ms"):
        monkeypatch.delitem(table, gone)
    after = "message.timestamp.after.max.ms"
    monkeypatch.setitem(table, after, replace(table[after], default="3600000"))
    monkeypatch.setitem(table, "segment.bytes", replace(table["segment.bytes"], least=1_048_576))
    yield


async def _as_formatted(stage: Stage) -> None:
    """4.1 sets this when its storage is formatted."""
    config = {"name": "min.insync.replicas", "config_operation": 0, "value": "1"}
    body = {"resources": [{"resource_type": 4, "resource_name": "", "configs": [config]}], "validate_only": False}
    answer = await stage.call(1, ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, body)
    assert [r.error_code for r in answer.responses] == [0]


SCENARIOS: Final = (
    "offsets", "log_dirs", "elections", "reassign_refused", "groups", "configs", "topics", "reassign",
    "racks",
)  # fmt: skip


@pytest.mark.usefixtures("topic_configs_of_41")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_tools_say_what_those_of_4_1_say(scenario: str, tmp_path: Path) -> None:
    async def run(world: World) -> list[Run]:
        async with simulated(world, tmp_path, racks_of(scenario)) as stage:
            await _as_formatted(stage)
            return await play(stage, scenario, OurTools(stage.network, LaterClock(), extra=("--compat", "4.1")))

    with structlog.testing.capture_logs():
        found = run_world(1, run)
    recorded = recording(scenario, "kraft")["runs"]
    one, other = in_words_of_39(recorded), in_words_of_39(found)
    by = (TOOLS, BROKERS, OLDER)
    different = differences(scenario, one, other, by)
    assert not different, "\n" + "\n".join(different)
    assert len(recorded) > 10
    rows = {row.reason for row in DIFFERENCES if row.scenario == scenario and row.by == OLDER}
    assert rows <= rows_met(scenario, one, other, by), "the table of differences has rows that nothing needs any more"
