"""Makes a failing world smaller while it still fails: fewer steps, fewer programs, fewer clients.

Steps are left out by halves first, one by one last (delta debugging); options of the shape go to simpler values. "Still
fails" means that the same property is broken: its name is the first word of the report.
Source: Zeller, Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from controller.sim.plan import Plan
from controller.sim.play import Outcome, play
from controller.sim.shape import Shape

#: field -> simpler values, simplest first
SIMPLER: Final[dict[str, tuple[object, ...]]] = {
    "controllers": (1, 2),
    "brokers": (1, 2, 3, 4),
    "partitions": (1, 2),
    "replication_factor": (1, 2, 3),
    "producers": (0, 1),
    "idempotent_producers": (0,),
    "acks_one_producers": (0,),
    "consumers": (0,),
    "group_members": (0, 2),
    "static_members": (0,),
    "probers": (0,),
    "side_producers": (0,),
    "merge_above": (1000,),
    "consumer_wait_ms": (0,),
    "fetch_bytes": (1 << 20,),
    "offsets_segment_bytes": (1 << 20,),
    "housekeeping_ms": (30_000,),
    "racks": (0,),
    "log_dirs": (1,),
    "clock_skew_max_ms": (0,),
    "power_cuts": (False,),
    "topic_forbids_unclean": (False,),
    "unclean_leader_election": (False,),
    "batch_records": (1,),
    "segment_bytes": (1 << 20,),
    "fetchers": (1,),
    "min_insync_replicas": (1,),
}
#: Fields whose simple value is the larger one.
LARGER: Final = frozenset({"merge_above", "segment_bytes", "offsets_segment_bytes", "fetch_bytes", "housekeeping_ms"})


@dataclass(slots=True)
class Shrunk:
    """The smallest failing world found, and how many were played to find it."""

    plan: Plan
    outcome: Outcome
    plays: int


def kind_of(outcome: Outcome) -> str:
    """What a failure is about: the property's name, without what was seen of it."""
    text = outcome.broken[0] if outcome.broken else ""
    first = text.split(":", 2)
    return first[1].strip() if first[0].startswith("not within") and len(first) > 2 else first[0][:40]


def shrink(
    plan: Plan,
    *,
    plays_max: int,
    played: Callable[[Plan], Outcome] = play,
    note: Callable[[str], None] = lambda text: None,
) -> Shrunk | None:
    """The smallest world found with `plays_max` plays; None when the plan does not fail at all."""
    outcome = played(plan)
    if not outcome.broken:
        return None
    found = Shrunk(plan, outcome, 1)
    kind = kind_of(outcome)

    def still_fails(candidate: Plan) -> bool:
        if found.plays >= plays_max:
            return False
        found.plays += 1
        tried = played(candidate)
        if not tried.broken or kind_of(tried) != kind:
            return False
        found.plan, found.outcome = candidate, tried
        note(f"{len(candidate.steps)} steps, {candidate.shape.brokers} brokers ({found.plays} worlds played)")
        return True

    before = None
    while before != found.plan and found.plays < plays_max:
        before = found.plan
        _fewer_steps(found, still_fails)
        for shape in _simpler(found.plan.shape):
            if still_fails(replace(found.plan, shape=shape)):
                break
    return found


def _fewer_steps(found: Shrunk, still_fails: Callable[[Plan], bool]) -> None:
    """Leaves out runs of steps, shorter and shorter ones."""
    size = max(1, len(found.plan.steps) // 2)
    while True:
        at = 0
        while at < len(found.plan.steps):
            numbers = [step.number for step in found.plan.steps]
            if not still_fails(found.plan.only({*numbers[:at], *numbers[at + size :]})):
                at += size
        if size == 1:
            return
        size = max(1, size // 2)


def _simpler(shape: Shape) -> Iterator[Shape]:
    """The shape with one option simpler, those first that make the world smallest."""
    for name, values in SIMPLER.items():
        now = getattr(shape, name)
        for value in values:
            if value == now:
                break
            if isinstance(value, bool) or not isinstance(value, int) or value < now or name in LARGER:
                yield replace(shape, **{name: value})  # type: ignore[arg-type]  # by name
