"""What a rehearsal found, as one value: when it ended, what went wrong for how long, the worst moment, and warnings.

Everything a table, a page, a comparison or an exit code needs is here; nothing of it depends on how it ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from broker_sim.fluid.limits import UNLIMITED
from controller.rehearse.exposure import Exposed
from controller.rehearse.ledger import Change, Trouble, Window, length_ms
from controller.rehearse.operator import Happening, Operator
from controller.rehearse.recorder import Recorder, Sample
from controller.rehearse.stage import Stage
from controller.rehearse.warnings import warnings_of

#: What is not modelled, said with every outcome.
NOT_MODELLED: Final = (
    "page cache and request queues: a copy runs at the pace of links, disks and throttles",
    "clients' retries and batches: what they could not write is counted as refused, not written later",
    "compaction: what is compacted grows, and copies copy what a log has; retention deletes whole bytes, not segments",
)
RULES: Final = {
    "zookeeper": "ZooKeeper mode: ISRs are written to ZooKeeper, a dead broker is noticed when its session ends",
    "kraft": "KRaft: a dead broker is fenced after broker.session.timeout.ms; leader changes by the same elections",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """One kind of trouble: how many partitions, how long in sum and for the worst of them, how many at most at once."""

    partitions: int
    partition_ms: int
    longest_ms: int
    at_most: int
    at_most_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One partition that moved: when it began, when all its targets were in the ISR; None: not within the rehearsal."""

    topic: str
    partition: int
    from_ms: int
    to_ms: int | None

    def length_ms(self, end_ms: int) -> int:
        """How long it took, in a rehearsal that ended then."""
        return length_ms(self.from_ms, self.to_ms, end_ms)


#: Fields of an outcome that grow with time or partitions.
_GROWING: Final = ("samples", "windows", "moves", "changes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A whole rehearsal. Times are ms since it began."""

    name: str
    rules: str
    seed: int
    end_ms: int
    is_over: bool
    moves_end_ms: int | None
    moved_bytes: float
    troubles: dict[str, Totals]
    elections: int
    unclean_elections: int
    isr_changes: int
    refused_bytes: float
    refused_partitions: int
    lost_bytes: float
    lost_partitions: int
    at_risk_bytes: float
    at_risk_partitions: int
    at_risk_ms: int
    peak_link: float
    peak_link_broker: int | None
    peak_link_ms: int
    busiest_ms: int
    knows_links: bool
    exposed: tuple[Exposed, ...]
    warnings: tuple[str, ...]
    story: tuple[Happening, ...]
    moves: tuple[Move, ...] = ()
    samples: tuple[Sample, ...] = ()
    windows: tuple[Window, ...] = ()
    changes: tuple[Change, ...] = ()
    not_modelled: tuple[str, ...] = field(default=NOT_MODELLED)

    def summary(self) -> dict[str, Any]:
        """All but what grows with time or partitions."""
        found = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _GROWING}
        found["troubles"] = {name: asdict(totals) for name, totals in self.troubles.items()}
        return found | {name: tuple(map(asdict, found[name])) for name in ("story", "exposed")}


def outcome_of(stage: Stage, operator: Operator, recorder: Recorder, *, is_over: bool) -> Outcome:
    """What the rehearsal found."""
    end_ms = stage.now_ms()
    windows = stage.ledger.finish()
    refused = stage.clients.refused()
    moves = tuple(
        Move(topic=w.topic_partition.topic, partition=w.topic_partition.partition, from_ms=w.from_ms, to_ms=w.to_ms)
        for w in windows
        if w.trouble is Trouble.MOVING
    )
    share, broker, at_ms = recorder.peaks.link
    ends = [move.to_ms for move in moves]
    return Outcome(
        name=stage.scenario.name,
        rules=RULES[stage.scenario.cluster.mode],
        seed=stage.scenario.seed,
        end_ms=end_ms,
        is_over=is_over,
        moves_end_ms=None if not ends or None in ends else max(e for e in ends if e is not None),
        moved_bytes=stage.plane.copied_bytes(),
        troubles={trouble.value: _totals(trouble, windows, end_ms) for trouble in Trouble},
        elections=len(stage.ledger.elections),
        unclean_elections=sum(change.is_unclean for change in stage.ledger.elections),
        isr_changes=stage.ledger.isr_changes,
        refused_bytes=sum(size for size, _ in refused.values()),
        refused_partitions=len(refused),
        lost_bytes=sum(stage.plane.losses.lost.values()),
        lost_partitions=len(stage.plane.losses.lost),
        at_risk_bytes=stage.risk.most_bytes,
        at_risk_partitions=len(stage.risk.partitions),
        at_risk_ms=stage.risk.most_ms,
        peak_link=share,
        peak_link_broker=broker,
        peak_link_ms=at_ms,
        busiest_ms=_busiest(windows, end_ms),
        knows_links=any(limits.link < UNLIMITED for limits in stage.machine_limits.values()),
        exposed=stage.exposure.worst(end_ms),
        warnings=tuple(warnings_of(stage, operator, recorder, windows, end_ms, is_over=is_over)),
        story=tuple(operator.story),
        moves=moves,
        samples=tuple(recorder.samples),
        windows=windows,
        changes=tuple(stage.ledger.elections),
    )


def _totals(trouble: Trouble, windows: Sequence[Window], end_ms: int) -> Totals:
    mine = [w for w in windows if w.trouble is trouble]
    lengths = [w.length_ms(end_ms) for w in mine]
    at_most, at_ms = _most_at_once(mine, end_ms)
    return Totals(
        partitions=len({w.topic_partition for w in mine}),
        partition_ms=sum(lengths),
        longest_ms=max(lengths, default=0),
        at_most=at_most,
        at_most_ms=at_ms,
    )


def _busiest(windows: Sequence[Window], end_ms: int) -> int:
    """The middle of the stretch in which most partitions move or are under-replicated."""
    under_way = (Trouble.MOVING, Trouble.UNDER_REPLICATED)
    _, from_ms, to_ms = _stretch_of_most([w for w in windows if w.trouble in under_way], end_ms)
    return (from_ms + to_ms) // 2


def _most_at_once(windows: Sequence[Window], end_ms: int) -> tuple[int, int]:
    """How many windows were open together at most, and since when."""
    return _stretch_of_most(windows, end_ms)[:2]


def _stretch_of_most(windows: Sequence[Window], end_ms: int) -> tuple[int, int, int]:
    """How many windows were open together at most, and the first stretch in which they were.

    One that ends as another begins does not overlap.
    """
    steps = sorted(
        [(w.from_ms, 1) for w in windows] + [(end_ms if w.to_ms is None else w.to_ms, -1) for w in windows],
    )
    count = most = from_ms = to_ms = 0
    for step_ms, change in steps:
        if to_ms <= from_ms:  # the step after the one that began it: if it is one more, that begins another
            to_ms = step_ms
        count += change
        if count > most:
            most, from_ms, to_ms = count, step_ms, step_ms
    return most, from_ms, to_ms
