"""What brokers trace replays to the ISR changes that they wrote: the rules of the replay, over the files of a world.

Only this oracle and its sister (`replayed_rules`) read the files, so they alone see what the writer collapses or leaves
out. Source: spec isr-replay.md §3, §7.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from broker_sim.replay.rows import Outcome, OutcomeKind
from controller.sim.oracles.lanes import CHANGES, Lower, Replayed, SetBack, Write


def changes_do_not_follow(lanes: Iterable[Replayed]) -> Iterator[str]:
    """Each membership change or high watermark that a leader wrote and its rows do not explain.

    The other way round is no violation: a rule may want what ZooKeeper, cut off or slow, did not let a leader write.
    Where it wanted that while a write was on its way, it is elsewhere for the rest of that leader epoch (§3.5). So it
    is where its high watermark rose with that write, which it takes for done at once, and the leader's did not: a
    follower that fetched while the write was on its way holds it back, as one that is caught up (§3.6). That of the
    rules may rise again before the next fetch, or with it; neither ever falls, so it counts when that of the
    rules was first above where the leader's is now. Nor is what follows a stop that keeps a leader's replica: it leads
    on until it is told more, for the trace it has ended.
    """
    for one in lanes:
        broker, tp, apart = one.broker, one.tp, one.stopped | _apart(one.lane.outcomes, one.writes, one.lower)
        for outcome in one.lane.outcomes:
            is_elsewhere = _is_elsewhere(outcome, apart.get(outcome.epoch), one.set_back)
            if outcome.kind == OutcomeKind.MISSING.value and not is_elsewhere:
                change = f"{outcome.change} of {outcome.replica} in {tp} at {outcome.ts}"
                yield f"replay: nothing in its trace explains broker {broker}'s {change}"
            elif outcome.kind == OutcomeKind.HW.value and outcome.amount != outcome.total:
                count = (outcome.total or 0) - (outcome.amount or 0)
                yield f"replay: {count} of {outcome.total} high watermarks of {tp} at broker {broker} are others"


def _is_elsewhere(outcome: Outcome, since_ms: int | None, set_back: Iterable[SetBack]) -> bool:
    """Whether it comes after the rules and the leader parted, though its clock was set back meanwhile."""
    if since_ms is None:
        return False
    later = (back.after for back in set_back if back.epoch == outcome.epoch and back.before >= since_ms)
    return since_ms <= outcome.ts or min(later, default=outcome.ts + 1) <= outcome.ts


def _apart(outcomes: Iterable[Outcome], writes: Sequence[Write], lower: Iterable[Lower]) -> dict[int, int]:
    """Leader epoch -> when the rules first changed the ISR while the leader, which waited for a write, could not; or
    when the leader's high watermark was first seen lower after a write with which that of the rules had risen above it.

    `writes`: those of a partition come one after the other.
    """
    apart: dict[int, int] = {}
    decided, returned = zip(*sorted(writes), strict=True) if writes else ((), ())
    for outcome in outcomes:
        nth = bisect_left(decided, outcome.ts) - 1
        if outcome.kind in CHANGES and nth >= 0 and outcome.ts < returned[nth]:
            apart[outcome.epoch] = min(outcome.ts, apart.get(outcome.epoch, outcome.ts))
    seen = sorted({each.ts for each in lower})
    for epoch, ts, rose in lower:
        nth = bisect_right(decided, rose) - 1
        if nth >= 0 and rose < returned[nth] <= ts and seen[bisect_left(seen, decided[nth])] < returned[nth]:
            apart[epoch] = min(ts, apart.get(epoch, ts))
    return apart
