"""The search of `kwob plan`: the fastest throttle and batch size that a cluster stands. Pure, given who rehearses.

A throttle is too high where a link is over the limit, or where more goes offline, under its min ISR or is lost than
without the move; it is too low where the move does not end. Between the two each batch size has a highest throttle,
found by halving; of these the one whose move ends first is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from controller.rehearse.clock import clock
from controller.rehearse.scenario import AddBroker, Reassign, Scenario, ScenarioError, targets_of
from controller.rehearse.warnings import NEVER_ENDS
from controller.wire.sizes import parse_bytes

#: Throttles that are tried lie so far apart, and over so many steps below what the narrowest link lets through.
_STEP: Final = 10**0.1
_STEPS: Final = 21


class Verdict(StrEnum):
    """What a rehearsal says of a throttle."""

    HOLDS = "holds"
    TOO_HIGH = "too high"
    TOO_LOW = "too low"


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """Bytes per second, and partitions at a time; 0: all at once."""

    throttle: float
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One rehearsal, and what it says."""

    throttle: float
    batch: int
    verdict: Verdict
    why: str
    moves_end_ms: int | None
    peak_link: float
    peak_link_broker: int | None
    peak_link_ms: int
    harm: Mapping[str, int]
    refused_bytes: float
    warnings: tuple[str, ...]

    def row(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


#: Rehearses settings, some at a time; a summary for each, in their order.
Rehearse = Callable[[Sequence[Setting]], Sequence[Mapping[str, Any]]]


#: What a move must not make worse: how it is said, and where a summary has it.
HARM: Final[Mapping[str, Callable[[Mapping[str, Any]], int]]] = {
    "offline": lambda summary: int(summary["troubles"]["offline"]["partitions"]),
    "under min ISR": lambda summary: int(summary["troubles"]["under_min_isr"]["partitions"]),
    "lost records": lambda summary: int(summary["lost_partitions"]),
    "unclean": lambda summary: int(summary["unclean_elections"]),
}


def harm_of(summary: Mapping[str, Any]) -> dict[str, int]:
    """Partitions that came to each harm."""
    return {name: count(summary) for name, count in HARM.items()}


def judge(setting: Setting, summary: Mapping[str, Any], *, max_link: float, before: Mapping[str, int]) -> Try:
    """`before`: the harm without the move."""
    harm = harm_of(summary)
    more = [f"{count - before[name]} more partitions {name}" for name, count in harm.items() if count > before[name]]
    verdict, why = Verdict.HOLDS, ""
    if summary["peak_link"] > max_link:
        broker, at = summary["peak_link_broker"], clock(summary["peak_link_ms"])
        verdict, why = Verdict.TOO_HIGH, f"broker {broker}'s link at {summary['peak_link']:.0%} at {at}"
    elif more:
        verdict, why = Verdict.TOO_HIGH, ", ".join(more)
    elif summary["moves_end_ms"] is None:
        reasons = (w.removeprefix(NEVER_ENDS) for w in summary["warnings"] if w.startswith(NEVER_ENDS))
        verdict, why = Verdict.TOO_LOW, f"never ends: {next(reasons, 'not within the rehearsal')}"
    return Try(
        throttle=setting.throttle,
        batch=setting.batch,
        verdict=verdict,
        why=why,
        moves_end_ms=summary["moves_end_ms"],
        peak_link=summary["peak_link"],
        peak_link_broker=summary["peak_link_broker"],
        peak_link_ms=summary["peak_link_ms"],
        harm=harm,
        refused_bytes=summary["refused_bytes"],
        warnings=tuple(summary["warnings"]),
    )


def search(
    rehearse: Rehearse,
    throttles: Sequence[float],
    batches: Sequence[int],
    *,
    max_link: float,
    before: Mapping[str, int],
) -> Iterator[Try]:
    """Halves the steps for all batch sizes side by side; every rehearsal as it is judged."""
    ladder = sorted(throttles)
    ranges = {batch: (0, len(ladder)) for batch in batches}
    while open_ := {batch: steps for batch, steps in ranges.items() if steps[0] < steps[1]}:
        middles = {batch: (low + high) // 2 for batch, (low, high) in open_.items()}
        settings = [Setting(ladder[middle], batch) for batch, middle in middles.items()]
        for setting, summary in zip(settings, rehearse(settings), strict=True):
            tried = judge(setting, summary, max_link=max_link, before=before)
            low, high = ranges[setting.batch]
            middle = middles[setting.batch]
            ranges[setting.batch] = (low, middle) if tried.verdict is Verdict.TOO_HIGH else (middle + 1, high)
            yield tried


def best(tries: Sequence[Try]) -> Try | None:
    """The one that ends first of those that hold; of equal ones that with the lower throttle, then the larger batch."""

    def rank(tried: Try) -> tuple[float, ...]:
        assert tried.moves_end_ms is not None
        return tried.moves_end_ms, tried.throttle, -tried.batch if tried.batch else float("-inf")

    return min((t for t in tries if t.verdict is Verdict.HOLDS), key=rank, default=None)


def default_throttles(scenario: Scenario) -> list[float]:
    """From what the narrowest link lets through downwards. Raises ScenarioError where no link is known."""
    links = [broker.link_bytes_per_s or scenario.limits.link for broker in scenario.cluster.brokers]
    links_given = [link for link in links if link is not None]
    if not links_given:
        raise ScenarioError(
            "no broker's link is known: give `limits: {link: 125MB}` in the scenario, link_bytes_per_s in the cluster "
            "file, or --throttles"
        )
    return [_rounded(min(links_given) / _STEP**step) for step in range(_STEPS)]


def _rounded(rate: float) -> float:
    """To two digits, as a person would give it."""
    return float(f"{rate:.1e}")


def _moves(scenario: Scenario) -> list[Reassign | AddBroker]:
    """The events that may move partitions: a broker that joins and gets none is not one."""
    return [e for e in scenario.events if isinstance(e, Reassign) or (isinstance(e, AddBroker) and e.spread)]


def check_moves(scenario: Scenario) -> None:
    """Raises ScenarioError where nothing moves."""
    moves = _moves(scenario)
    if not moves:
        raise ScenarioError(
            "nothing moves: the scenario needs an event `reassign`, or `add_broker` with `spread: true`"
        )
    replicas = {topic_partition: shape.replicas for topic_partition, shape in scenario.cluster.partitions()}
    if not replicas:
        raise ScenarioError("nothing moves: the cluster has no partitions")
    if all(
        isinstance(event, Reassign) and all(replicas[tp] == target for tp, target in targets_of(event).items())
        for event in moves
    ):
        raise ScenarioError("nothing moves: every partition of the plan is where the plan puts it")


def default_batches(scenario: Scenario) -> list[int]:
    """All at once, a quarter and a sixteenth of what moves."""
    moves = _moves(scenario)
    count = sum(len(targets_of(event)) for event in moves if isinstance(event, Reassign))
    if any(isinstance(event, AddBroker) for event in moves):
        count += sum(1 for _ in scenario.cluster.partitions())
    return list(dict.fromkeys((0, count // 4, count // 16)))


def what_is_in_the_way(tries: Sequence[Try]) -> str:
    """Why nothing holds: the highest throttle that is too low, the lowest that is too high, and what may help."""
    low = max((t for t in tries if t.verdict is Verdict.TOO_LOW), key=lambda t: t.throttle, default=None)
    high = min((t for t in tries if t.verdict is Verdict.TOO_HIGH), key=lambda t: t.throttle, default=None)
    reasons = [f"{size(low.throttle)}/s is too low ({low.why})"] if low is not None else []
    reasons += [f"{size(high.throttle)}/s is too high ({high.why})"] if high is not None else []
    advice = "another --max-link or plan" if high is not None else "higher --throttles or another plan"
    return f"no throttle holds: {', '.join(reasons)}; {advice} may help"


def size(rate: float) -> str:
    """`25MB`, as a scenario takes it: that rate again, to the last byte."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        text = _plain(rate / factor) + unit
        if rate >= factor and parse_bytes(text) == rate:
            return text
    return _plain(rate)


def _plain(number: float) -> str:
    """As a person writes it: to six places, without zeros at the end."""
    return f"{number:.6f}".rstrip("0").rstrip(".")


def without_moves(scenario: Scenario) -> Scenario:
    """The same, but nothing is reassigned: what happens anyway."""
    kept = [
        event.model_copy(update={"spread": False}) if isinstance(event, AddBroker) else event
        for event in scenario.events
        if not isinstance(event, Reassign)
    ]
    return scenario.model_copy(update={"events": tuple(kept)})
