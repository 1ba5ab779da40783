"""A rolling restart takes one broker at a time: the next goes when the one before is back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.worlds.rehearsals import GB, brokers, play, topic


@pytest.mark.parametrize("replicas", [[3], [1, 2], [1, 2, 3]], ids=str)
@pytest.mark.parametrize("wait", ["full_isr", "none"])
def test_the_next_broker_goes_when_the_one_before_is_back(tmp_path: Path, wait: str, replicas: list[int]) -> None:
    """Whether or not it has replicas whose return could be waited for. A process takes 40 s to start."""
    outcome = play(
        tmp_path,
        cluster={"brokers": brokers(3), "topics": {"t": topic(replicas, bytes=0, in_bytes_per_s=1000)}},
        events=[{"do": "rolling_restart", "at": 10, "down": 5, "pause": 1, "wait": wait}],
        broker_start="40s",
        end=600,
    )
    asked = {h.what.split()[1]: h.at_ms for h in outcome.story if h.what.endswith("asked to shut down")}
    started = {h.what.split()[1]: h.at_ms for h in outcome.story if h.what.endswith("started")}
    assert list(asked) == ["1", "2", "3"]
    for before, after in (("1", "2"), ("2", "3")):
        waits_ms = asked[after] - started[before]
        assert waits_ms >= 41_000 if wait == "full_isr" else waits_ms == 1_000


@pytest.mark.parametrize(
    "events",
    [
        [{"do": "kill", "broker": 1, "for": 1}],
        [{"do": "stop", "broker": 1, "for": 1}],
        [{"do": "kill", "broker": 1}, {"do": "start", "broker": 1, "at": 30}],
        [{"do": "rolling_restart", "broker": 1, "wait": "none", "down": 1}],
        [{"do": "add_broker", "id": 4, "rack": "a", "spread": True}],
    ],
    ids=lambda events: str(events[-1]["do"]),
)
def test_a_rehearsal_waits_for_brokers_whose_processes_take_long_to_start(
    tmp_path: Path, events: list[dict[str, Any]]
) -> None:
    outcome = play(
        tmp_path,
        cluster={"brokers": brokers(3), "topics": {"t": topic([1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2], bytes=1000)}},
        events=events,
        broker_start="10m",
    )
    assert outcome.end_ms > 600_000
    assert outcome.is_over
    last = outcome.samples[-1]
    assert (last.under_replicated, last.moving) == (0, 0)
    assert all(used > 0 for used in last.used_bytes.values()), "what joins has what was spread to it"


@pytest.mark.parametrize("seed", [5, 6, 9, 10])
def test_what_a_leader_writes_for_a_follower_goes_on_when_that_ends(tmp_path: Path, seed: int) -> None:
    """All are asked to shut down together: some lead what others that end before them fetch."""
    written = {"replicas": [1, 2, 3], "bytes": 40 * GB, "in_bytes_per_s": 800_000, "out_bytes_per_s": 1_600_000}
    still = {"replicas": [2, 3, 1], "bytes": 40 * GB}
    outcome = play(
        tmp_path,
        cluster={
            "brokers": brokers(3),
            "topics": {"t": {"partitions": [written, still, [3, 1, 2]], "configs": {"min.insync.replicas": "2"}}},
        },
        events=[{"do": "stop", "broker": [1, 2, 3], "at": "10m", "for": "1m"}],
        end="30m",
        seed=seed,
    )
    assert [h.what for h in outcome.story][1:] == ["brokers 1, 2, 3 shut down", "brokers 1, 2, 3 started"]
    assert outcome.samples[-1].under_replicated == 0
