"""What an operator must know before anything else, the worst first: what each loss takes, and what never ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from controller.rehearse.clock import clock
from controller.rehearse.ledger import Trouble, Window
from controller.rehearse.operator import Happening, Operator
from controller.rehearse.recorder import Recorder, stuck
from controller.rehearse.stage import Stage
from controller.wire.types import BrokerId, TopicPartition

#: Partitions that one warning names.
_NAMED: Final = 3
NEVER_ENDS: Final = "never ends: "
_WORDS: Final = {Trouble.OFFLINE: "offline", Trouble.UNDER_MIN_ISR: "under their min ISR"}


def warnings_of(
    stage: Stage, operator: Operator, recorder: Recorder, windows: Sequence[Window], end_ms: int, *, is_over: bool
) -> list[str]:
    """All warnings of a rehearsal that ended then. `is_over`: and not because it never would."""
    found = [
        *_taken(Trouble.OFFLINE, windows, operator.story, end_ms),
        *_lost(stage),
        *_never_ends(stage),
    ]
    for broker, at_ms in sorted(recorder.disk_full_ms.items()):
        found.append(f"broker {broker}: its disks are over their capacity at {clock(at_ms)}")
    moving = {w.topic_partition for w in windows if w.trouble is Trouble.MOVING}
    both = {w.topic_partition for w in windows if w.trouble is Trouble.UNDER_MIN_ISR} & moving
    if both:
        found.append(
            f"{_partitions(both)} under min ISR while {'it moves' if len(both) == 1 else 'they move'}: {_some(both)}"
        )
    found += _taken(Trouble.UNDER_MIN_ISR, windows, operator.story, end_ms)
    found += _at_risk(stage)
    flaps = _flaps(windows)
    if flaps:
        without_end = "" if is_over or any(text.startswith(NEVER_ENDS) for text in found) else NEVER_ENDS
        verbs = "loses and regains" if len(flaps) == 1 else "lose and regain"
        found.append(f"{without_end}{_partitions(flaps)} {verbs} in-sync replicas three times or more: {_some(flaps)}")
    return found + [f"refused: {reason}" for reason in operator.refused[:5]]


def _taken(trouble: Trouble, windows: Sequence[Window], story: Sequence[Happening], end_ms: int) -> Iterator[str]:
    """What each loss of brokers takes, by the last one before; what began otherwise comes last."""
    losses = [happening for happening in story if happening.takes_brokers]
    by_loss: dict[Happening | None, list[Window]] = {}
    for window in windows:
        if window.trouble is trouble:
            loss = next((h for h in reversed(losses) if h.at_ms <= window.from_ms), None)
            by_loss.setdefault(loss, []).append(window)
    for loss, taken in sorted(by_loss.items(), key=lambda row: -len({w.topic_partition for w in row[1]})):
        partitions = {w.topic_partition for w in taken}
        longest_ms = max(w.length_ms(end_ms) for w in taken)
        begin_ms = min(w.from_ms for w in taken)
        without = f"from {clock(begin_ms)} on" if begin_ms else "from the begin"
        what = without if loss is None else f"{loss.what} at {clock(loss.at_ms)}"
        yield (
            f"{what}: {_partitions(partitions)} {_WORDS[trouble]}, the longest for {clock(longest_ms)}"
            + (", still at the end" if any(w.to_ms is None for w in taken) else "")
            + f": {_some(partitions)}"
        )


def _lost(stage: Stage) -> Iterator[str]:
    lost, unclean = stage.plane.losses.lost, {c.topic_partition for c in stage.ledger.elections if c.is_unclean}
    if lost:
        size = sum(lost.values())
        yield f"{size / 1e6:,.1f} MB of acknowledged records of {_partitions(lost)} are lost: {_some(lost)}"
    if unclean:
        yield f"unclean elections of {_partitions(unclean)}: {_some(unclean)}"


def _at_risk(stage: Stage) -> Iterator[str]:
    risk = stage.risk
    if risk.partitions and risk.most_bytes:
        verb = "is" if len(risk.partitions) == 1 else "are"
        yield (
            f"{risk.most_bytes / 1e6:,.1f} MB of records are at risk at {clock(risk.most_ms)}: one replica alone has "
            f"them; {_partitions(risk.partitions)} {verb} so at some time: {_some(risk.partitions)}"
        )


def _never_ends(stage: Stage) -> Iterator[str]:
    yield from _waits_for_the_dead(stage)
    copies = stuck(stage)
    if not copies:
        return
    topic_partition, follower = copies[0]
    copy = next(c for c in stage.plane.behind() if (c.topic_partition, c.follower) == copies[0])
    limits = stage.plane.limits(follower), stage.plane.limits(copy.leader)
    throttled = limits[0].follower_throttle is not None or limits[1].leader_throttle is not None
    why = "the throttle leaves less than producers write" if throttled else "links or disks are full"
    which = f"{topic_partition} to broker {follower}"
    yield f"{NEVER_ENDS}{'' if len(copies) == 1 else f'{len(copies):,} copies, among them '}{which}: {why}"


def _waits_for_the_dead(stage: Stage) -> Iterator[str]:
    """Moves to brokers that are down, where the rehearsal ended because nothing moved any more."""
    if stage.scenario.end_ms is not None:
        return
    waiting: dict[BrokerId, set[TopicPartition]] = {}
    for topic_partition in stage.ledger.troubled(Trouble.MOVING):
        for broker in stage.ledger.partition(topic_partition)[1].adding_replicas:
            if broker not in stage.brokers:
                waiting.setdefault(broker, set()).add(topic_partition)
    for broker, moving in sorted(waiting.items()):
        verb = "moves" if len(moving) == 1 else "move"
        yield f"{NEVER_ENDS}broker {broker} is down, and {_partitions(moving)} {verb} to it: {_some(moving)}"


def _flaps(windows: Sequence[Window]) -> set[TopicPartition]:
    counts: dict[TopicPartition, int] = {}
    for window in windows:
        if window.trouble is Trouble.UNDER_REPLICATED:
            counts[window.topic_partition] = counts.get(window.topic_partition, 0) + 1
    return {topic_partition for topic_partition, count in counts.items() if count >= 3}


def _partitions(found: Mapping[TopicPartition, Any] | set[TopicPartition]) -> str:
    return f"{len(found):,} partition{'' if len(found) == 1 else 's'}"


def _some(found: Mapping[TopicPartition, Any] | set[TopicPartition]) -> str:
    names = ", ".join(str(topic_partition) for topic_partition in sorted(found)[:_NAMED])
    return names + (f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else "")
