"""Links that are cut: who fetches no more, whom clients do not reach, and what the controller makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.rehearse.outcome import Outcome
from controller.rehearse.scenario import ScenarioError
from tests.worlds.rehearsals import brokers, play, scenario, topic

SETTINGS = {"auto.leader.rebalance.enable": False, "replica.lag.time.max.ms": 10_000}
#: (what is in the ISR no more, from, until) within these ms
SHRUNK = (20_000, 26_500)


def after(outcome: Outcome, trouble: str) -> list[tuple[str, int, int | None]]:
    return [(str(w.topic_partition), w.from_ms, w.to_ms) for w in outcome.windows if w.trouble.value == trouble]


def played(folder: Path, *rows: list[int], mode: str = "zookeeper", rate: float = 1e4, **fault: Any) -> Outcome:
    """Partitions of 3 brokers; the fault begins at 10 s and lasts a minute."""
    return play(
        folder,
        cluster={
            "mode": mode,
            "brokers": brokers(3),
            "topics": {"t": topic(*rows, bytes=1000, in_bytes_per_s=rate)},
        },
        settings=SETTINGS,
        faults=[{"at": 10, "for": 60, "fault": "cut_link", **fault}],
    )


def test_followers_on_both_sides_of_a_cut_link_leave_the_isr_and_come_back(tmp_path: Path) -> None:
    outcome = played(tmp_path, [1, 2, 3], [2, 1, 3], [3, 1, 2], broker=1, peer=2)
    found = after(outcome, "under_replicated")
    # the third is led by a broker whose links are whole
    assert [name for name, _, _ in found] == ["t-0", "t-1"]
    assert all(SHRUNK[0] <= begin <= SHRUNK[1] for _, begin, _ in found)
    assert all(end is not None and 70_000 <= end <= 71_500 for _, _, end in found)
    assert (outcome.elections, outcome.refused_bytes, outcome.troubles["offline"].partitions) == (0, 0.0, 0)
    assert [h.what for h in outcome.story] == [
        "broker 1: the link to broker 2 is cut",
        "broker 1: the link to broker 2 is whole again",
    ]


def test_a_follower_that_lacks_nothing_stays_in_sync_however_long_the_link_is_cut(tmp_path: Path) -> None:
    assert after(played(tmp_path, [1, 2, 3], rate=0.0, broker=1, peer=2), "under_replicated") == []


def test_a_rack_is_cut_off_a_broker(tmp_path: Path) -> None:
    outcome = played(tmp_path, [1, 2, 3], [1, 3, 2], rack="b", peer=1)
    assert outcome.story[0].what == "rack b (broker 2): the link to broker 1 is cut"
    assert [name for name, _, _ in after(outcome, "under_replicated")] == ["t-0", "t-1"]


def test_a_broker_without_network_leads_on_but_nobody_reads_or_writes(tmp_path: Path) -> None:
    """Its session with ZooKeeper lives, so no other broker is elected."""
    outcome = played(tmp_path, [1, 2, 3], [2, 1, 3], broker=1)
    assert outcome.elections == 0
    assert outcome.refused_bytes == pytest.approx(60 * 1e4, rel=0.01), "t-0, while clients did not reach broker 1"
    assert outcome.refused_partitions == 1
    # what it leads grows no more, and so its followers have all of it; of t-1 it has less than is written
    assert [name for name, _, _ in after(outcome, "under_replicated")] == ["t-1"]
    assert outcome.is_over


def test_what_the_controller_says_to_a_broker_without_network_waits(tmp_path: Path) -> None:
    """Broker 2 dies meanwhile; broker 1 hears only when its network is back that it leads."""
    cluster = {"brokers": brokers(3), "topics": {"t": topic([2, 1], bytes=1000, in_bytes_per_s=1e4)}}
    settings = {**SETTINGS, "replica.lag.time.max.ms": 600_000, "zookeeper.session.timeout.ms": 6000}
    outcome = play(
        tmp_path,
        cluster=cluster,
        settings=settings,
        events=[{"at": 10, "for": 60, "do": "cut_link", "broker": 1}, {"at": 12, "do": "kill", "broker": 2}],
        end=120,
    )
    assert outcome.elections == 1
    # from 12 s on, when the leader died, until its heir hears of its office: the link is back at 70 s
    assert outcome.refused_bytes == pytest.approx(58 * 1e4, rel=0.02)


def test_under_kraft_a_broker_without_network_is_fenced(tmp_path: Path) -> None:
    outcome = played(tmp_path, [1, 2, 3], mode="kraft", broker=1)
    assert outcome.elections >= 1
    (first, *_) = after(outcome, "under_replicated")
    assert 19_000 <= first[1] <= 22_500, "9 s after its last heartbeat"
    assert outcome.is_over


def test_a_broker_that_starts_while_its_link_is_cut_or_paused_finds_it_so(tmp_path: Path) -> None:
    for fault in ({"do": "cut_link", "broker": 2, "peer": 1}, {"do": "pause_replication", "broker": 2}):
        outcome = play(
            tmp_path,
            cluster={"brokers": brokers(2), "topics": {"t": topic([1, 2], bytes=1000, in_bytes_per_s=1e4)}},
            settings=SETTINGS,
            events=[{"at": 5, "for": 10, "do": "kill", "broker": 2}, {"at": 10, "for": 60, **fault}],
        )
        ((_, _, end),) = after(outcome, "under_replicated")
        assert end is not None and 70_000 <= end <= 71_500, fault


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"broker": 1, "peer": 9}, "peer: the cluster has no broker 9; it has 1, 2"),
        ({"broker": 1, "peer": 1}, "peer: broker 1 has no link to itself"),
        ({"broker": 1, "peer": "x"}, "peer: expected a whole number, not 'x'"),
        ({"peer": 1}, "broker or rack: one of them is needed"),
    ],
)
def test_a_link_that_is_not_there_is_refused(tmp_path: Path, row: dict[str, Any], why: str) -> None:
    cluster = {"brokers": brokers(2), "topics": {"t": topic([1, 2])}}
    with pytest.raises(ScenarioError) as error:
        scenario(tmp_path, cluster=cluster, faults=[{"at": 0, "fault": "cut_link", **row}])
    assert str(error.value).startswith("scenario.yaml, line ")
    assert str(error.value).endswith(why)
