"""What a loss would take, counted as states change, against counting all of them anew; and that it does when played."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.rehearse.exposure import Exposure, Loss
from controller.rehearse.run import rehearse
from controller.rehearse.scenario import ScenarioError
from controller.rehearse.sweep import main
from controller.rehearse.variants import Sweep, play, severity, with_losses
from controller.wire.types import BrokerId, LeaderAndIsr, TopicPartition
from tests.worlds.rehearsals import GB, brokers, scenario, topic, write

RACKS: Mapping[BrokerId, str | None] = {BrokerId(1): "a", BrokerId(2): "a", BrokerId(3): "b", BrokerId(4): None}
PARTITIONS = [TopicPartition("t", number) for number in range(3)]
#: Each partition's own, so that equal ISRs are not the same to lose.
MIN_ISRS = dict(zip(PARTITIONS, (2, 1, 3), strict=True))
LOSSES = [*(Loss(broker=int(b)) for b in RACKS), Loss(rack="a"), Loss(rack="b")]


def takes(loss: Loss, isr: tuple[int, ...], min_isr: int) -> tuple[int, int]:
    """One partition, by the definition."""
    gone = {b for b, rack in RACKS.items() if b == loss.broker or (rack is not None and rack == loss.rack)}
    left = [b for b in isr if b not in gone]
    return int(bool(isr) and not left), int(bool(left) and len(left) < min_isr <= len(isr))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 20),
            st.sampled_from(PARTITIONS),
            st.lists(st.sampled_from([1, 2, 3, 4]), unique=True, max_size=4),
        ),
        max_size=30,
    )
)
@example([(0, PARTITIONS[0], [1]), (1, PARTITIONS[0], []), (2, PARTITIONS[0], [1]), (3, PARTITIONS[0], [1, 2])])
@example(
    [
        *((2, PARTITIONS[0], [1]), (5, PARTITIONS[0], []), (5, PARTITIONS[1], [1])),
        *((7, PARTITIONS[1], []), (7, PARTITIONS[2], [1]), (9, PARTITIONS[2], [])),
    ]
)
def test_the_worst_moment_is_that_of_counting_anew(changes: list[tuple[int, TopicPartition, list[int]]]) -> None:
    exposure, isrs = Exposure(RACKS), dict.fromkeys(PARTITIONS, ())
    by_ms: dict[int, dict[TopicPartition, tuple[int, ...]]] = {}
    for at_ms, partition, isr in sorted(changes, key=lambda row: row[0]):
        state = LeaderAndIsr(
            leader=BrokerId(isr[0] if isr else 0), isr=tuple(map(BrokerId, isr)), leader_epoch=0, controller_epoch=0
        )
        exposure.decided(partition, state if isr else None, MIN_ISRS[partition], at_ms)
        by_ms.setdefault(at_ms, {})[partition] = tuple(isr)
    tolls: dict[Loss, list[tuple[int, int]]] = {loss: [] for loss in LOSSES}
    for at_ms in range(25):
        isrs |= by_ms.get(at_ms, {})
        for loss in LOSSES:
            rows = [takes(loss, isr, MIN_ISRS[partition]) for partition, isr in isrs.items()]
            tolls[loss].append((sum(row[0] for row in rows), sum(row[1] for row in rows)))
    for found in exposure.worst(25):
        each = tolls[Loss(found.rack, found.broker)]
        assert (found.offline, found.under_min_isr) == max(each)
        assert {each[at_ms] for at_ms in range(found.from_ms, found.to_ms)} == {max(each)}
        runs = [(toll, len(list(run))) for toll, run in groupby(each)]
        longest = max(length for toll, length in runs if toll == max(each))
        assert found.to_ms - found.from_ms == longest, "of equal ones the longest"
        assert found.from_ms <= found.at_ms <= found.to_ms


CLUSTER: dict[str, Any] = {
    "brokers": brokers(6, racks="aabbcc"),
    "topics": {"t": topic([1, 3, 5], [3, 5, 1], [5, 1, 3], bytes=GB, in_bytes_per_s=1e5)},
    "configs": {"min.insync.replicas": "2"},
}
#: The plan puts two replicas of each into one rack; meanwhile a restart takes another one away.
EVENTS = [
    {
        "do": "reassign",
        "at": 10,
        "throttle": "30MB",
        "batch": 1,
        "partitions": [{"topic": "t", "partition": n, "replicas": [1, 2, 5]} for n in range(3)],
    },
    {"do": "stop", "at": 30, "broker": 5, "for": 20},
]


def test_no_other_moment_is_worse_than_the_one_that_is_found(tmp_path: Path) -> None:
    given_ = scenario(tmp_path, cluster=CLUSTER, events=EVENTS, end="6m")
    (base,) = Sweep.parse(given_, ["rack"]).bases(given_)
    row = play(base)
    for loss in (Loss(rack="a"), Loss(rack="b"), Loss(rack="c")):
        found = next(exposed for exposed in row["exposed"] if exposed["rack"] == loss.rack)
        (worst,) = map(play, with_losses(base, [loss], row, ["worst"], None))
        others = [
            play(variant) for variant in with_losses(base, [loss], row, list(range(5_000, 350_000, 60_000)), None)
        ]
        assert worst["troubles"]["offline"]["partitions"] >= found["offline"]
        assert severity(worst)[:3] >= max(severity(other)[:3] for other in others)


def test_a_loss_while_nothing_is_exposed_is_played_when_most_moves(tmp_path: Path) -> None:
    whole = {"brokers": brokers(4, racks="abcd"), "topics": {"t": topic([1, 2, 3], bytes=GB)}}
    event = {
        "do": "reassign",
        "at": 0,
        "throttle": "20MB",
        "partitions": [{"topic": "t", "partition": 0, "replicas": [4, 2, 3]}],
    }
    given_ = scenario(tmp_path, cluster=whole, events=[event])
    (base,) = Sweep.parse(given_, ["rack"]).bases(given_)
    row = play(base)
    listed = list(with_losses(base, [Loss(rack="a")], row, ["worst", "busiest"], None))
    assert [variant.varied["at_ms"] for variant in listed] == [row["busiest_ms"]]
    assert 0 < row["busiest_ms"] < rehearse(given_).moves_end_ms


#: what is lost -> the times at which it can be, of 30 s, 90 s and 3 min
ONCE_JOINED = {
    Loss(broker=1): [30_000, 90_000, 180_000],
    Loss(broker=7): [90_000, 180_000],
    Loss(broker=8): [180_000],
    Loss(rack="a"): [30_000, 90_000, 180_000],
    Loss(rack="z"): [90_000, 180_000],
}


def test_what_has_not_joined_is_not_lost(tmp_path: Path) -> None:
    """Such a row would say that the loss costs nothing."""
    joins = [
        {"do": "add_broker", "at": "1m", "id": 7, "rack": "z"},
        {"do": "add_broker", "at": "2m", "id": 8, "rack": "z"},
        {"do": "add_broker", "at": "2m", "id": 9, "rack": "a"},
    ]
    given_ = scenario(tmp_path, cluster=CLUSTER, events=joins, end="4m")
    (base,) = Sweep.parse(given_, ["broker"]).bases(given_)
    listed = with_losses(base, ONCE_JOINED, play(base), [30_000, 90_000, 180_000], None)
    assert [(v.varied["loss"], v.varied["at_ms"]) for v in listed] == [
        (str(loss), at_ms) for loss, times in ONCE_JOINED.items() for at_ms in times
    ]


def test_a_sweep_of_what_has_not_joined_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = {"brokers": brokers(3, rack=None), "topics": {"t": topic([1, 2, 3], bytes=GB)}}
    joins = [{"do": "add_broker", "at": "1m", "id": 7, "rack": "z"}]
    path = write(tmp_path, cluster=whole, events=joins, end="4m")
    words = [str(path), "--each", "rack", "--at", "10s", "--workers", "1", "--out", str(tmp_path / "out")]
    assert main(words) == 2
    assert "nothing of what is to be lost has joined by then" in capsys.readouterr().err


def test_throttles_that_let_nothing_through_are_not_swept(tmp_path: Path) -> None:
    given_ = scenario(tmp_path, cluster=CLUSTER, events=EVENTS, end="6m")
    assert Sweep.parse(given_, ["throttle=1,20MB"]).throttles == ("1", "20MB")
    with pytest.raises(ScenarioError, match=r"0\.5: a throttle is at least 1 byte per second"):
        Sweep.parse(given_, ["throttle=20MB,0.5"])
