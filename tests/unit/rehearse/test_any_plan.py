"""Whatever a cluster is and whatever is done to it: bytes are conserved, throttles hold, what can end ends, and no
partition stays offline while a member of its ISR lives.

A few examples in the plain run, many by name: `pytest -m slow tests/unit/rehearse/test_any_plan.py`.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import given, note, settings
from hypothesis import strategies as st

from broker_sim.fluid.clients import RETRY_S
from controller.rehearse.ledger import Trouble
from controller.rehearse.outcome import Outcome
from controller.rehearse.recorder import Recorder, Sample
from controller.wire.types import BrokerId, TopicPartition
from tests.worlds.fuzz import few, many, takes_long
from tests.worlds.rehearsals import brokers, play, topic

FEW = few(12)
MANY = many(600)
MB = 1_000_000
#: A controller that is killed is followed when its session ends; the others look within seconds.
ELECTED_S = 45
SETTINGS = {"replica.lag.time.max.ms": 10_000, "auto.leader.rebalance.enable": False}


@dataclass(frozen=True)
class Drawn:
    """A cluster, a plan for it, and what happens meanwhile."""

    document: dict[str, Any]
    sizes: tuple[int, ...]
    rates: tuple[float, ...]
    replicas: tuple[tuple[int, ...], ...]
    targets: tuple[tuple[int, ...], ...]
    throttle: float | None

    def moves(self, number: int) -> list[int]:
        """The brokers that a partition is to be copied to."""
        return [broker for broker in self.targets[number] if broker not in self.replicas[number]]


@st.composite
def plans(draw: st.DrawFn, *, disturbed: bool) -> Drawn:
    """Throttles and links are drawn so that all of it can end."""
    count = draw(st.integers(3, 6))
    ids = range(1, count + 1)
    width = draw(st.integers(2, 3))
    replica_lists = st.permutations(list(ids)).map(lambda order: tuple(order[:width]))
    replicas = tuple(draw(st.lists(replica_lists, min_size=1, max_size=6)))
    targets = tuple(draw(replica_lists) for _ in replicas)
    sizes = tuple(draw(st.sampled_from([0, 1, 1000, 5 * MB, 37 * MB, 200 * MB])) for _ in replicas)
    rates = tuple(draw(st.sampled_from([0.0, 10.0, 1e4, 2e5, 1e6])) for _ in replicas)
    written = sum(rates) * count
    throttle = draw(st.sampled_from([None, 2 * written + MB, 2 * written + 20 * MB]))
    move: dict[str, Any] = {
        "do": "reassign",
        "at": draw(st.integers(0, 10)),
        "partitions": [{"topic": "t", "partition": n, "replicas": list(target)} for n, target in enumerate(targets)],
        "batch": draw(st.integers(1, 6)),
    }
    if throttle is not None:
        move["throttle"] = throttle
    link = 2 * written + draw(st.sampled_from([5, 60, 500])) * MB
    each = [
        {"replicas": list(r), "bytes": size, "in_bytes_per_s": rate}
        for r, size, rate in zip(replicas, sizes, rates, strict=True)
    ]
    # What is written is there at the end: retention would take what is beyond the first size.
    configs = {"min.insync.replicas": str(draw(st.integers(1, 2))), "retention.ms": "-1"}
    document = {
        "cluster": {
            "mode": draw(st.sampled_from(["zookeeper", "kraft"])),
            "brokers": brokers(count, draw(st.sampled_from(["abc", "ab", "a"])), link_bytes_per_s=link),
            "topics": {"t": {"partitions": each, "configs": configs}},
        },
        "settings": SETTINGS,
        "seed": draw(st.integers(1, 1000)),
        "events": [move, *(draw(st.lists(disturbances(count), max_size=4)) if disturbed else ())],
    }
    return Drawn(document, sizes, rates, replicas, targets, throttle)


def disturbances(count: int) -> st.SearchStrategy[dict[str, Any]]:
    """Each of them ends."""
    times = {"at": st.integers(0, 90), "for": st.integers(1, 60), "broker": st.integers(1, count)}
    rows = [
        st.fixed_dictionaries({"do": st.sampled_from(["kill", "stop", "pause_replication", "cut_link"]), **times}),
        st.fixed_dictionaries({"do": st.just("slow"), "link": st.sampled_from(["1MB", "50MB"]), **times}),
        st.fixed_dictionaries({"do": st.sampled_from(["controller_failover", "elect_preferred"]), "at": times["at"]}),
        st.fixed_dictionaries({"do": st.just("rates"), "factor": st.sampled_from([0, 1]), "at": times["at"]}),
        st.fixed_dictionaries({"do": st.just("rolling_restart"), "at": times["at"], "down": st.integers(0, 20)}),
    ]
    pairs = [(one, other) for one in range(1, count + 1) for other in range(1, count + 1) if one != other]
    ends = st.sampled_from(pairs).map(lambda pair: {"do": "cut_link", "broker": pair[0], "peer": pair[1]})
    lasts = st.fixed_dictionaries({"at": times["at"], "for": times["for"]})
    rows.append(st.builds(lambda ends, lasts: {**ends, **lasts}, ends, lasts))
    return st.one_of(rows)


class Watch:
    """Looks at each sample; `wrong` is what cannot be."""

    def __init__(self) -> None:
        self.since_ms: dict[TopicPartition, int] = {}
        self.differ: dict[BrokerId, float] = {}
        self.wrong: list[Any] = []

    def look(self, recorder: Recorder, sample: Sample) -> None:
        stage = recorder.stage
        alive, offline = stage.registered(), set(stage.ledger.troubled(Trouble.OFFLINE))
        for tp in offline:
            state, _ = stage.ledger.partition(tp)
            assert state is not None
            if not alive & set(state.isr):
                self.since_ms.pop(tp, None)
            elif sample.at_ms - self.since_ms.setdefault(tp, sample.at_ms) > ELECTED_S * 1000:
                self.wrong.append(("offline with a member of its ISR", sample.at_ms, tp, state, alive))
        self.since_ms = {tp: since_ms for tp, since_ms in self.since_ms.items() if tp in offline}
        before, self.differ = self.differ, {}
        for broker, disk in stage.disks.items():
            sizes = {**disk, **(stage.brokers[broker].replicas.sizes() if broker in stage.brokers else {})}
            self.differ[broker] = sum(sizes.values()) - sample.used_bytes[broker]
            # for a moment a copy may be beyond the end
            if min(abs(self.differ[broker]), abs(before.get(broker, 0.0))) > 1000:
                self.wrong.append(("its disks have what no replica has", sample.at_ms, broker, self.differ[broker]))


def rehearsed(drawn: Drawn) -> Outcome:
    watch, sampled = Watch(), Recorder.sample

    def sample(recorder: Recorder) -> Sample:
        found = sampled(recorder)
        watch.look(recorder, found)
        return found

    with tempfile.TemporaryDirectory() as folder, patch.object(Recorder, "sample", sample):
        outcome = play(Path(folder), **drawn.document)
    assert not watch.wrong, watch.wrong[:3]
    return outcome


def check_calm(limits: settings) -> None:
    @limits
    @given(plans(disturbed=False))
    def run(drawn: Drawn) -> None:
        outcome = rehearsed(drawn)
        _all_has_ended(drawn, outcome)
        assert outcome.refused_bytes == 0.0
        assert outcome.troubles["offline"].partitions == 0
        ends = {move.partition: (move.from_ms / 1000, (move.to_ms or 0) / 1000) for move in outcome.moves}
        least = sum(drawn.sizes[n] * len(drawn.moves(n)) for n in ends)
        most = sum((drawn.sizes[n] + drawn.rates[n] * (end + 30)) * len(drawn.moves(n)) for n, (_, end) in ends.items())
        assert least - 10 * len(ends) <= outcome.moved_bytes <= most + 10 * len(ends)
        if drawn.throttle is not None:
            _throttles_held(drawn, ends)

    run()


def _throttles_held(drawn: Drawn, ends: dict[int, tuple[float, float]]) -> None:
    """What came to a broker took the time that its throttle says, at least."""
    assert drawn.throttle is not None
    for broker in range(1, 7):
        mine = [n for n in ends if broker in drawn.moves(n)]
        if mine:
            seconds = max(ends[n][1] for n in mine) - min(ends[n][0] for n in mine)
            assert sum(drawn.sizes[n] for n in mine) <= drawn.throttle * (seconds + 0.1)


def check_disturbed(limits: settings) -> None:
    @limits
    @given(plans(disturbed=True))
    def run(drawn: Drawn) -> None:
        note(str(drawn.document))
        _all_has_ended(drawn, rehearsed(drawn))

    run()


def _all_has_ended(drawn: Drawn, outcome: Outcome) -> None:
    """Every move arrived that was not refused, nothing lags, and the disks have what was there and what was written;
    and what a move has dropped of a broker that was down when it ended, as with Kafka."""
    assert outcome.is_over, outcome.warnings
    assert outcome.unclean_elections or not outcome.lost_bytes
    assert [move for move in outcome.moves if move.to_ms is None] == []
    assert [w for w in outcome.windows if w.to_ms is None] == []
    # one whose replicas only change their order, or only go, has moved at once
    moving = {n for n in range(len(drawn.targets)) if drawn.moves(n)}
    refused = {n for n in moving if any(text.startswith(f"refused: t-{n}: ") for text in outcome.warnings)}
    assert moving - refused <= {move.partition for move in outcome.moves}
    first, last = outcome.samples[0], outcome.samples[-1]
    grown = sum(last.used_bytes.values()) - sum(first.used_bytes.values())
    width = len(drawn.replicas[0])
    if not any(event["do"] == "rates" for event in drawn.document["events"]) and not outcome.lost_bytes:
        written = sum(drawn.rates) * (last.at_ms - first.at_ms) / 1000 - outcome.refused_bytes
        beyond, rounded = grown - width * written, 1000 + 0.001 * width * sum(drawn.rates)
        downs = sum(happening.takes_brokers for happening in outcome.story)
        paused = 2 * downs * RETRY_S * width * sum(drawn.rates)  # what lasts no longer refuses nothing
        assert -rounded - paused <= beyond and (beyond <= rounded or downs), beyond


def test_any_plan_in_calm_times() -> None:
    check_calm(FEW)


def test_any_plan_while_things_go_wrong() -> None:
    check_disturbed(FEW)


def test_a_plan_that_a_leaving_controller_does_not_take_is_given_to_its_successor(tmp_path: Path) -> None:
    outcome = play(
        tmp_path,
        cluster={"brokers": brokers(4), "topics": {"t": topic([1, 2, 3], [1, 4, 2], bytes=1000)}},
        events=[
            {"do": "reassign", "partitions": [{"topic": "t", "partition": 1, "replicas": [1, 4, 3]}]},
            {"do": "controller_failover", "at": 0},
        ],
    )
    assert [m.partition for m in outcome.moves] == [1]
    assert outcome.moves[0].to_ms is not None


def test_a_broker_that_is_killed_while_it_shuts_down_keeps_nobody_waiting(tmp_path: Path) -> None:
    outcome = play(
        tmp_path,
        cluster={"brokers": brokers(3), "topics": {"t": topic([1, 2, 3], bytes=1000)}},
        broker_stop=20,
        events=[
            {"do": "rolling_restart", "at": 5, "down": 5, "broker": [1, 2]},
            {"do": "rolling_restart", "at": 5, "down": 5, "broker": 1},
            {"do": "kill", "at": 6, "broker": 1, "for": 30},
        ],
        end="2h",
    )
    assert [h.what for h in outcome.story].count("rolling restart done") == 2
    assert [w for w in outcome.windows if w.to_ms is None] == []


@takes_long
def test_any_plan_in_calm_times_for_long() -> None:
    check_calm(MANY)


@takes_long
def test_any_plan_while_things_go_wrong_for_long() -> None:
    check_disturbed(MANY)
