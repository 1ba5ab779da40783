"""Whole rehearsals whose figures can be worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.rehearse.clock import clock
from controller.rehearse.outcome import Outcome
from controller.rehearse.recorder import Recorder, Sample
from controller.rehearse.run import rehearse
from controller.rehearse.variants import with_throttle
from controller.wire.fault_scenario import parse_time_ms
from controller.wire.types import BrokerId
from tests.worlds.rehearsals import GB, brokers, play, scenario, topic

QUIET = {"auto.leader.rebalance.enable": False}


def test_a_throttled_move_ends_when_size_divided_by_throttle_says(tmp_path: Path) -> None:
    outcome = play(
        tmp_path,
        cluster={"brokers": brokers(4), "topics": {"t": topic([1, 2, 3], bytes=2 * GB)}},
        events=[{"do": "reassign", "at": 10, "throttle": "20MB", "partitions": [move("t", 0, 4, 2, 3)]}],
    )
    assert outcome.is_over
    assert outcome.moves_end_ms is not None
    # a follower with nothing else to fetch sleeps for a second when its throttle is used up: 10 seconds' worth in 11
    assert outcome.moves_end_ms == pytest.approx(10_000 + 110_000, abs=3_000)
    assert outcome.moved_bytes == pytest.approx(2 * GB, rel=0.001)
    assert outcome.troubles["offline"].partitions == 0
    assert outcome.warnings == ()


def test_a_leaders_throttle_holds_for_all_of_its_partitions(tmp_path: Path) -> None:
    """Each follower hears of a move before or after its leader does; the throttle counts it either way."""
    count, size = 40, 10_000_000
    outcome = play(
        tmp_path,
        cluster={"brokers": brokers(8), "topics": {"t": topic(*[[1, 2]] * count, bytes=size)}},
        events=[
            {
                "do": "reassign",
                "throttle": "2MB",
                "partitions": [move("t", n, 1, 3 + n % 6) for n in range(count)],
            }
        ],
    )
    assert outcome.moves_end_ms is not None
    assert outcome.moves_end_ms >= count * size / 2e6 * 1000
    assert outcome.moves_end_ms <= count * size / 2e6 * 1000 * 1.12


def test_writes_go_on_while_a_move_runs_and_make_it_longer(tmp_path: Path) -> None:
    outcome = play(
        tmp_path,
        cluster={"brokers": brokers(4), "topics": {"t": topic([1, 2, 3], bytes=2 * GB, in_bytes_per_s=4e6)}},
        events=[{"do": "reassign", "throttle": "20MB", "partitions": [move("t", 0, 4, 2, 3)]}],
    )
    # of the leader's 20 MB/s its two followers in sync use 8; the copy, which each append looks at again, gets the
    # rest, and 4 of it are new: 2000 / 8
    assert outcome.moves_end_ms == pytest.approx(250_000, abs=4_000)


@pytest.mark.filterwarnings("error")
def test_a_throttle_of_0_is_full_and_lets_no_copy_through(tmp_path: Path) -> None:
    """As brokers of a cluster file may have it; of a scenario it is refused."""
    stopped = [{**broker, "configs": {"leader.replication.throttled.rate": "0"}} for broker in brokers(4)]
    given = scenario(
        tmp_path,
        cluster={"brokers": stopped, "topics": {"t": topic([1, 2, 3], bytes=GB)}},
        events=[{"do": "reassign", "at": 10, "partitions": [move("t", 0, 4, 2, 3)]}],
        end="5m",
    )
    outcome = rehearse(with_throttle(given, 0))
    assert [moved.to_ms for moved in outcome.moves] == [None] and outcome.moved_bytes == 0
    assert {share for sample in outcome.samples for share in sample.leader_throttle.values()} == {1.0}
    assert outcome.peak_link_broker is None, "a link is not full for that"


def test_a_throttle_below_what_is_written_never_ends_and_says_so(tmp_path: Path) -> None:
    outcome = play(
        tmp_path,
        cluster={"brokers": brokers(4), "topics": {"t": topic([1, 2, 3], bytes=GB, in_bytes_per_s=5e6)}},
        events=[{"do": "reassign", "throttle": "1MB", "partitions": [move("t", 0, 4, 2, 3)]}],
    )
    assert not outcome.is_over
    assert outcome.moves_end_ms is None
    assert outcome.warnings[0].startswith("never ends: t-0 to broker 4: the throttle")
    assert "throttle" in outcome.warnings[0]


def test_a_killed_broker_is_noticed_when_its_session_ends(tmp_path: Path) -> None:
    outcome = play(
        tmp_path,
        cluster={
            "brokers": brokers(3),
            "topics": {"t": topic([2, 1], [1, 2], [1, 3], bytes=1000, in_bytes_per_s=10.0)},
        },
        settings={"zookeeper.session.timeout.ms": 6000, **QUIET},
        events=[{"do": "kill", "at": 10, "broker": 2, "for": 60}],
    )
    led = [w for w in outcome.windows if w.trouble.value == "under_replicated"]
    assert [str(w.topic_partition) for w in led] == ["t-0", "t-1"]
    assert all(16_000 <= w.from_ms < 19_500 for w in led)  # the session, and a tick of the server that ends it
    assert all(w.to_ms is not None and 70_000 <= w.to_ms < 75_000 for w in led)
    assert (outcome.elections, outcome.unclean_elections) == (1, 0)
    refused = {str(tp): s for tp, s in [(w.topic_partition, w) for w in led]}
    assert set(refused) == {"t-0", "t-1"}
    assert 50 < outcome.refused_bytes < 100  # 10 bytes a second while its leader was dead and nobody knew


def test_a_rack_that_holds_all_replicas_takes_them_offline(tmp_path: Path) -> None:
    outcome = play(
        tmp_path,
        cluster={"brokers": brokers(3, racks="aab"), "topics": {"t": topic([1, 2], [1, 3], bytes=1000)}},
        events=[{"do": "kill", "at": 5, "rack": "a", "for": 60}],
    )
    assert outcome.troubles["offline"].partitions == 1
    (offline,) = [w for w in outcome.windows if w.trouble.value == "offline"]
    assert offline.to_ms is not None
    assert outcome.warnings[0] == (
        f"rack a (brokers 1, 2) killed at 5.0 s: 1 partition offline, the longest for "
        f"{clock(offline.to_ms - offline.from_ms)}: t-0"
    )
    assert outcome.is_over


@pytest.mark.parametrize("gap_ms", (0, 1, 5))
def test_brokers_that_shut_down_one_right_after_the_other_lose_nothing(tmp_path: Path, gap_ms: int) -> None:
    """A leader that hears of its epoch when the next one leads already leads nobody."""
    outcome = play(
        tmp_path,
        cluster={
            "brokers": brokers(3),
            "topics": {
                "t": topic(
                    *([1, 2, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]),
                    configs={"min.insync.replicas": "2"}, bytes=1_000_000, in_bytes_per_s=8e5,
                )
            },
        },
        events=[
            {"do": "stop", "at": 10 + n * gap_ms / 1000, "broker": broker, "for": 30}
            for n, broker in enumerate((1, 2, 3))
        ],
        end="2m",
    )  # fmt: skip
    assert (outcome.unclean_elections, outcome.lost_bytes) == (0, 0.0)
    assert outcome.troubles["offline"].partitions == 4


def test_what_one_replica_alone_has_is_at_risk_and_what_its_rival_lacks_is_lost(tmp_path: Path) -> None:
    """Broker 2 dies at 10 s and comes back when 1, which went on alone until 100 s, is gone for ever."""
    cluster = {
        "brokers": brokers(3),
        "topics": {
            "t": topic([1, 2], bytes=1000, in_bytes_per_s=100.0, configs={"unclean.leader.election.enable": "true"})
        },
    }
    events = [
        {"do": "kill", "at": 10, "broker": 2},
        {"do": "kill", "at": 100, "broker": 1},
        {"do": "start", "at": 130, "broker": 2},
    ]
    settings = {"zookeeper.session.timeout.ms": 6000, **QUIET}
    outcome = play(tmp_path, cluster=cluster, settings=settings, events=events, end="3m")
    refused = 100 * 8  # until the session of 2 ends, the leader cannot know; from then on it goes on alone
    assert outcome.unclean_elections == 1
    assert outcome.at_risk_bytes == pytest.approx(100 * 90, abs=200), "from the death of 2 to that of 1"
    assert (outcome.at_risk_partitions, outcome.lost_partitions) == (1, 1)
    assert outcome.lost_bytes == pytest.approx(100 * 90, abs=refused)
    assert any("acknowledged records of 1 partition are lost: t-0" in warning for warning in outcome.warnings)
    assert any("at risk at" in warning and "t-0" in warning for warning in outcome.warnings)
    clean = play(tmp_path, cluster=cluster, settings=settings, events=events[:1], end="3m")
    assert (clean.lost_bytes, clean.unclean_elections) == (0.0, 0)
    assert clean.at_risk_bytes == pytest.approx(100 * 170, abs=200), "to the end"


def test_min_isr_refuses_writes_only_of_producers_that_ask_for_it(tmp_path: Path) -> None:
    cluster = {
        "brokers": brokers(2),
        "topics": {"t": topic([1, 2], bytes=1000, in_bytes_per_s=100.0, configs={"min.insync.replicas": "2"})},
    }
    events = [{"do": "kill", "at": 5, "broker": 2, "for": 120}]
    strict = play(tmp_path, cluster=cluster, events=events)
    loose = play(tmp_path, cluster=cluster, events=events, acks="1")
    assert strict.troubles["under_min_isr"].partitions == loose.troubles["under_min_isr"].partitions == 1
    assert strict.refused_bytes > 5_000
    assert loose.refused_bytes == 0


def test_a_follower_that_is_too_slow_leaves_the_isr_after_the_lag_time(tmp_path: Path) -> None:
    outcome = play(
        tmp_path,
        cluster={"brokers": brokers(2), "topics": {"t": topic([1, 2], bytes=0, in_bytes_per_s=1e6)}},
        settings={"replica.lag.time.max.ms": 10_000},
        events=[{"do": "slow", "at": 20, "broker": 2, "link": "400kB", "for": 60}],
    )
    (window,) = [w for w in outcome.windows if w.trouble.value == "under_replicated"]
    assert 30_000 <= window.from_ms <= 36_000  # the lag time after it fell behind, at the next tick (half of it)
    assert window.to_ms is not None
    assert 80_000 <= window.to_ms < 82_000


def test_a_paused_follower_leaves_and_comes_back(tmp_path: Path) -> None:
    outcome = play(
        tmp_path,
        cluster={"brokers": brokers(2), "topics": {"t": topic([1, 2], bytes=0, in_bytes_per_s=1e6)}},
        settings={"replica.lag.time.max.ms": 10_000},
        faults=[{"fault": "pause_replication", "at": 20, "for": 40, "broker": 2}],
    )
    (window,) = [w for w in outcome.windows if w.trouble.value == "under_replicated"]
    assert 30_000 <= window.from_ms <= 36_000
    assert window.to_ms is not None and 60_000 <= window.to_ms < 62_000


def test_a_rolling_restart_waits_for_every_isr_and_takes_nothing_offline(tmp_path: Path) -> None:
    outcome = play(
        tmp_path,
        cluster={
            "brokers": brokers(3),
            "topics": {"t": topic([1, 2, 3], [2, 3, 1], [3, 1, 2], bytes=GB, in_bytes_per_s=1e5)},
        },
        events=[{"do": "rolling_restart", "at": 5, "down": 20}],
    )
    assert outcome.is_over
    assert outcome.troubles["offline"].partitions == 0
    assert outcome.troubles["under_replicated"].at_most == 3
    assert [h.what for h in outcome.story][-1] == "rolling restart done"
    assert outcome.refused_bytes < 1e5


def test_a_cancelled_move_goes_back_and_its_throttles_go(tmp_path: Path) -> None:
    outcome = play(
        tmp_path,
        cluster={"brokers": brokers(4), "topics": {"t": topic([1, 2, 3], [2, 3, 1], bytes=GB)}},
        events=[
            {
                "do": "reassign",
                "throttle": "1MB",
                "batch": 1,
                "partitions": [move("t", 0, 4, 2, 3), move("t", 1, 2, 3, 4)],
            },
            {"do": "cancel", "at": 30},
        ],
    )
    assert outcome.is_over
    assert [(m.partition, m.to_ms is not None and m.to_ms < 35_000) for m in outcome.moves] == [(0, True)]
    assert outcome.moved_bytes < 60e6


def test_batches_follow_each_other(tmp_path: Path) -> None:
    outcome = play(
        tmp_path,
        cluster={"brokers": brokers(4), "topics": {"t": topic([1, 2, 3], [1, 2, 3], bytes=GB)}},
        events=[{"do": "reassign", "batch": 1, "partitions": [move("t", 0, 4, 2, 3), move("t", 1, 4, 2, 3)]}],
    )
    first, second = outcome.moves
    assert first.to_ms is not None and second.from_ms >= first.to_ms
    assert first.to_ms == pytest.approx(8_000, abs=1_500)  # 1 GB over a link of 125 MB/s


def test_a_broker_joins_and_topics_are_spread_to_it(tmp_path: Path) -> None:
    replicas = [[n % 3 + 1, (n + 1) % 3 + 1] for n in range(6)]
    outcome = play(
        tmp_path,
        cluster={"brokers": brokers(3), "topics": {"t": topic(*replicas, bytes=GB)}},
        events=[{"do": "add_broker", "at": 5, "id": 4, "rack": "a", "spread": True}],
    )
    assert outcome.is_over
    assert outcome.moves
    assert outcome.samples[-1].used_bytes[4] >= 1.999 * GB


def test_topics_that_are_spread_stay_spread_over_racks(tmp_path: Path) -> None:
    """The one broker of the other rack keeps all: what it has nobody else may have."""
    outcome = play(
        tmp_path,
        cluster={"brokers": brokers(2, racks="ab"), "topics": {"t": topic(*[[1, 2]] * 12, bytes=1000)}},
        events=[{"do": "add_broker", "at": 5, "id": 3, "rack": "a", "spread": True}],
    )
    used = outcome.samples[-1].used_bytes
    assert {broker: round(size) for broker, size in used.items()} == {1: 6_000, 2: 12_000, 3: 6_000}


def test_a_move_that_has_ended_when_it_is_cancelled_is_no_refusal(tmp_path: Path) -> None:
    outcome = play(
        tmp_path,
        cluster={"brokers": brokers(3), "topics": {"t": topic([1, 2], bytes=GB)}},
        events=[{"do": "reassign", "partitions": [move("t", 0, 3, 2)]}, *[{"do": "cancel", "at": 2}] * 2],
    )
    said = [happening.what for happening in outcome.story]
    assert said.count("1 moves cancelled") == 2 and not any("refused" in what for what in said)


def test_the_same_seed_gives_the_same_outcome(tmp_path: Path) -> None:
    cluster = {"brokers": brokers(3), "topics": {"t": topic([1, 2, 3], [2, 3, 1], bytes=GB, in_bytes_per_s=1e6)}}
    events = [{"do": "kill", "at": 5, "broker": 2, "for": 60}, {"do": "controller_failover", "at": 70}]
    assert play(tmp_path, cluster=cluster, events=events) == play(tmp_path, cluster=cluster, events=events)


def test_in_kraft_a_dead_broker_is_fenced_sooner(tmp_path: Path) -> None:
    cluster = {"brokers": brokers(2), "topics": {"t": topic([2, 1], bytes=1000)}}
    events = [{"do": "kill", "at": 10, "broker": 2}]
    for mode, at_least in (("zookeeper", 28_000), ("kraft", 19_000)):
        outcome = play(tmp_path, cluster={**cluster, "mode": mode}, events=events, end="2m")
        (window,) = [w for w in outcome.windows if w.trouble.value == "under_replicated"]
        assert at_least <= window.from_ms < at_least + 4_000


def move(name: str, partition: int, *replicas: int) -> dict[str, object]:
    return {"topic": name, "partition": partition, "replicas": list(replicas)}


def test_disks_are_as_full_as_a_recount_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a move, a loss with a truncation, a return and a catch-up."""
    looks, off = 0, []
    sample = Recorder.sample

    def recount(recorder: Recorder) -> Sample:
        nonlocal looks
        stage, looks = recorder.stage, looks + 1
        used = stage.plane.disk_used()
        for broker, disk in stage.disks.items():
            # what a broker has on its disks without a role stays there: it was moved away while the broker was down
            parts = disk | (stage.brokers[broker].replicas.sizes() if broker in stage.brokers else {})
            if abs(used[broker] - sum(parts.values())) > 2e5:
                off.append((stage.now_ms(), broker, used[broker], sum(parts.values())))
        return sample(recorder)

    monkeypatch.setattr(Recorder, "sample", recount)
    play(
        tmp_path,
        cluster={
            "brokers": brokers(4),
            "topics": {"t": topic([1, 2, 3], [2, 3, 1], [3, 1, 2], bytes=GB, in_bytes_per_s=1e6)},
        },
        events=[
            {"do": "reassign", "at": 5, "throttle": "50MB", "partitions": [move("t", 0, 4, 2, 3)]},
            {"do": "kill", "at": 20, "broker": 1, "for": 60},
        ],
        end="5m",
    )
    assert looks > 200 and off == []


def used(outcome: Outcome, broker: int, at_ms: int) -> float:
    """Bytes on a broker's disks at that time."""
    return next(s.used_bytes[BrokerId(broker)] for s in outcome.samples if s.at_ms >= at_ms)


def test_logs_grow_to_what_retention_keeps_and_a_move_copies_only_that(tmp_path: Path) -> None:
    """100 bytes a second, an hour of them kept; broker 3 was away for two hours, broker 4 gets a copy of its own."""
    outcome = play(
        tmp_path,
        cluster={
            "brokers": brokers(4),
            "topics": {"t": topic([1, 3], bytes=1000, in_bytes_per_s=100.0, configs={"retention.ms": "3600000"})},
        },
        settings=QUIET,
        events=[
            {"do": "kill", "at": "2h", "broker": 3, "for": "2h"},
            {"do": "reassign", "at": "5h", "partitions": [move("t", 0, 1, 4)]},
        ],
        end="6h",
    )
    kept, check = 360_000, 100 * 301  # what is written between two checks is there until the next one
    for broker, at in ((1, "90m"), (3, "90m"), (1, "3h"), (1, "5h"), (3, "270m"), (1, "359m"), (4, "359m")):
        assert kept <= used(outcome, broker, parse_time_ms(at)) <= kept + check, (broker, at)
    assert used(outcome, 3, parse_time_ms("359m")) == pytest.approx(0, abs=1), "its replica is deleted"
    assert used(outcome, 3, parse_time_ms("3h")) <= kept + check, "away, it keeps what it had"
    moved = used(outcome, 4, parse_time_ms("301m"))
    assert kept <= moved <= kept + check


def test_without_retention_logs_grow_and_a_full_disk_is_named(tmp_path: Path) -> None:
    shape = [{**broker, "log_dirs": [{"path": "/d", "capacity_bytes": 500_000}]} for broker in brokers(2)]
    log = topic([1, 2], bytes=1000, in_bytes_per_s=100.0, configs={"retention.ms": "-1"})
    outcome = play(tmp_path, cluster={"brokers": shape, "topics": {"t": log}}, end="3h")
    assert used(outcome, 1, 10_700_000) == pytest.approx(1000 + 100 * 10_700, rel=0.01)
    assert any(w.startswith("broker 1: its disks are over their capacity at 01:2") for w in outcome.warnings)
    bounded = {**log, "configs": {"retention.bytes": "400000"}}
    within = play(tmp_path, cluster={"brokers": shape, "topics": {"t": bounded}}, end="3h")
    assert within.warnings == ()


def test_a_broker_whose_session_expired_registers_again_and_hears_of_throttles(tmp_path: Path) -> None:
    outcome = play(
        tmp_path,
        cluster={"brokers": brokers(4), "topics": {"t": topic([1, 2, 3], bytes=GB)}},
        faults=[{"at": 5, "fault": "expire_session", "broker": 1}, {"at": 5, "fault": "expire_session", "broker": 4}],
        events=[{"do": "reassign", "at": 60, "throttle": "20MB", "partitions": [move("t", 0, 4, 2, 3)]}],
    )
    assert [h.what for h in outcome.story][:2] == [f"broker {n}: the ZooKeeper session expires" for n in (1, 4)]
    assert outcome.moves_end_ms is not None
    assert outcome.moves_end_ms >= 60_000 + 50_000, "the throttle that is set later holds"
    assert outcome.elections >= 1, "who registers anew was gone for a moment"


def test_a_slow_disk_of_the_fault_schema_makes_a_move_longer(tmp_path: Path) -> None:
    cluster = {"brokers": brokers(4), "topics": {"t": topic([1, 2, 3], bytes=GB)}}
    moves = [{"do": "reassign", "partitions": [move("t", 0, 4, 2, 3)]}]
    slow = {"fault": "slow_disk", "broker": 4, "bytes_per_second": 10_000_000, "for": "50s"}
    as_ever = play(tmp_path, cluster=cluster, events=moves)
    held_up = play(tmp_path, cluster=cluster, events=moves, faults=[slow])
    assert as_ever.moves_end_ms == pytest.approx(8_000, abs=1_500)  # 1 GB through 125 MB/s
    assert held_up.moves_end_ms == pytest.approx(50_000 + 4_000, abs=1_500)  # half of it at 10 MB/s


def test_kraft_fences_after_the_time_that_the_cluster_file_says(tmp_path: Path) -> None:
    def led_again_ms(**configs: int) -> int:
        outcome = play(
            tmp_path,
            cluster={
                "mode": "kraft",
                "brokers": brokers(3),
                "configs": configs,
                "topics": {"t": topic([2, 1], bytes=1000)},
            },
            settings=QUIET,
            events=[{"do": "kill", "at": 10, "broker": 2}],
            end="5m",
        )
        (window,) = [w for w in outcome.windows if w.trouble.value == "under_replicated"]
        return window.from_ms

    assert 19_000 <= led_again_ms() < 24_000
    assert 50_000 <= led_again_ms(**{"broker.session.timeout.ms": 40_000}) < 72_000


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_move_to_a_broker_that_is_down_never_ends_and_says_so(how: str, tmp_path: Path) -> None:
    outcome = play(
        tmp_path,
        cluster={"brokers": brokers(3), "topics": {"t": topic([1, 2], bytes=GB, in_bytes_per_s=1e6)}},
        events=[
            {"do": "reassign", "at": 0, "partitions": [{"topic": "t", "partition": 0, "replicas": [3, 2]}], "batch": 1},
            {"do": how, "at": 2, "broker": 3},
        ],
    )
    assert not outcome.is_over and outcome.moves_end_ms is None
    assert outcome.end_ms < 600_000
    assert "never ends: broker 3 is down, and 1 partition moves to it: t-0" in outcome.warnings


def test_nothing_acknowledged_is_lost_while_a_leader_hands_over(tmp_path: Path) -> None:
    """The next leader is killed around the moment of the handover: what the old one took alone was not acknowledged."""
    cluster = {"brokers": brokers(4), "topics": {"t": topic([1, 2], bytes=GB // 10, in_bytes_per_s=5e6)}}
    move = {"do": "reassign", "at": 0, "partitions": [{"topic": "t", "partition": 0, "replicas": [3, 4]}]}
    moved = play(tmp_path, cluster=cluster, events=[move])
    assert moved.moves_end_ms is not None
    for at_ms in range(moved.moves_end_ms - 40, moved.moves_end_ms + 15, 5):
        kill = {"do": "kill", "at": f"{at_ms}ms", "broker": 3}
        outcome = play(tmp_path, cluster=cluster, events=[move, kill])
        assert (outcome.lost_bytes, outcome.unclean_elections) == (0, 0), at_ms


def test_producers_are_refused_as_long_as_the_leader_has_taken_too_many_off_its_isr(tmp_path: Path) -> None:
    outcome = play(
        tmp_path,
        cluster={
            "brokers": brokers(2),
            "topics": {"t": topic([1, 2], bytes=0, in_bytes_per_s=1e5, configs={"min.insync.replicas": "2"})},
        },
        events=[{"at": 10, "do": "pause_replication", "broker": 2, "for": "3m"}],
    )
    under_ms = outcome.troubles["under_min_isr"].partition_ms
    assert under_ms > 120_000
    assert outcome.refused_bytes == pytest.approx(1e5 * under_ms / 1000, rel=0.02)
