"""Records that one replica alone has: which partitions, and how much at most, of a rehearsal and not of its start."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.rehearse.risk import Risk
from controller.wire.types import BrokerId, LeaderAndIsr, TopicPartition, settled
from tests.worlds.rehearsals import GB, brokers, play, topic

PARTITIONS = [TopicPartition("t", number) for number in range(2)]
#: What each broker has of each partition on its disk. Broker 3 copies, and has more by now.
ON_DISK = {1: 100.0, 2: 40.0, 3: 10.0}


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 1),
            st.sampled_from([[1], [2], [1, 2], [1, 2, 3]]),
            st.sampled_from([[1], [1, 2], [1, 2, 3]]),
            st.integers(0, 50),
        ),
        max_size=10,
    ),
    st.integers(0, 10),
)
@example([(0, [1], [1, 2], 5), (1, [2], [1, 2, 3], 50), (1, [1, 2], [1, 2], 0), (0, [1], [1, 2, 3], 3)], 1)
@example([(0, [1], [1, 2], 50), (0, [1, 2], [1, 2], 0), (0, [1], [1], 50), (1, [1], [1, 2, 3], 5)], 2)
def test_partitions_that_one_replica_alone_has_are_at_risk_since_the_begin_or_later(
    decisions: list[tuple[int, list[int], list[int], int]], before: int
) -> None:
    """After each decision so much is written, and looked at. The rehearsal begins after so many."""
    ends = dict.fromkeys(PARTITIONS, 100.0)
    copied, copies = [45.0], dict[TopicPartition, dict[BrokerId, Any]]()
    third = {BrokerId(3): SimpleNamespace(where=lambda _: copied[0])}
    plane: Any = SimpleNamespace(
        now_s=0.0, stream=lambda tp: SimpleNamespace(end=lambda _: ends[tp], copies=copies.get(tp, {}))
    )
    risk = Risk(plane, {BrokerId(b): dict.fromkeys(PARTITIONS, size) for b, size in ON_DISK.items()})
    alone: dict[TopicPartition, float] = {}
    at_risk, most = set(), (0.0, 0)
    for at_ms, (number, isr, replicas, size) in enumerate(decisions, start=1):
        if at_ms == before + 1:
            risk.begin()
            at_risk, most = set(alone), (0.0, 0)
        partition, assignment = PARTITIONS[number], settled(tuple(map(BrokerId, {*isr, *replicas})))
        state = LeaderAndIsr(leader=BrokerId(isr[0]), isr=tuple(map(BrokerId, isr)), leader_epoch=0, controller_epoch=0)
        copies[partition] = third if 3 in assignment.replicas else {}
        risk.decided(partition, state, assignment)
        others = [copied[0] if b == 3 else ON_DISK[b] for b in assignment.replicas if b not in isr]
        if len(isr) > 1 or not others:
            alone.pop(partition, None)
        else:
            alone.setdefault(partition, max(others))
        at_risk |= set(alone)
        ends[partition] += size
        copied[0] += size / 3
        alone = {tp: max(since, copied[0]) if copies[tp] else since for tp, since in alone.items()}
        found = sum(max(0.0, ends[tp] - since) for tp, since in alone.items())
        assert risk.look(at_ms) == pytest.approx(found)
        most = max(most, (found, at_ms), key=lambda row: row[0])
        assert (risk.partitions, risk.most_ms) == (at_risk, most[1])
        assert risk.most_bytes == pytest.approx(most[0])


@pytest.mark.parametrize("copies", [True, False], ids=["while it is copied", "for ever"])
def test_one_replica_alone_from_the_begin_is_warned_of(tmp_path: Path, copies: bool) -> None:
    partitions = topic([1, 2], bytes=GB, in_bytes_per_s=100.0, isr=[1])
    kill = {"do": "kill", "at": 0, "broker": 2}
    events = [] if copies else [kill]
    outcome = play(tmp_path, cluster={"brokers": brokers(2), "topics": {"t": partitions}}, events=events, end=60)
    assert outcome.at_risk_partitions == 1
    assert outcome.at_risk_bytes == pytest.approx(GB, rel=0.05)
    assert any("at risk at" in warning and warning.endswith(": t-0") for warning in outcome.warnings)


def test_what_a_follower_has_copied_again_is_at_risk_no_more(tmp_path: Path) -> None:
    """A hundred seconds of writing are, when it is back; while it catches up, less and less."""
    outcome = play(
        tmp_path,
        cluster={
            "brokers": brokers(2, link_bytes_per_s=7e6),
            "topics": {"t": topic([1, 2], bytes=0, in_bytes_per_s=5e6)},
        },
        events=[{"do": "kill", "at": 10, "broker": 2, "for": 100}],
    )
    assert outcome.moved_bytes > 1.2e9, "all that was written meanwhile, too"
    assert outcome.at_risk_bytes == pytest.approx(5e6 * 100, rel=0.03)
    assert outcome.at_risk_ms == pytest.approx(110_000, abs=2_000)
