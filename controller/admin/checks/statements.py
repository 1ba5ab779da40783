"""What a sound cluster holds. Pure: a check takes what was seen and returns one line, right or wrong."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller.admin.checks.truth import EpochHistory, Truth
from controller.wire.types import BrokerId, TopicPartition

#: How many offenders a line names.
_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One statement, whether it holds, and the numbers behind it or what breaks it."""

    statement: str
    holds: bool
    detail: str


def check_records(
    acknowledged: Mapping[TopicPartition, Mapping[int, int]],
    consumed: Mapping[TopicPartition, Sequence[tuple[int, int]]],
) -> list[Check]:
    """Nothing that was acknowledged is missing, and each partition holds its numbers in order.

    `acknowledged` is number -> offset, `consumed` (offset, number) in log order. Duplicates are counted: without
    idempotence a retry may leave one. Order is that of first appearances.
    """
    missing: list[str] = []
    disordered: list[str] = []
    duplicates = 0
    for tp, promised in sorted(acknowledged.items()):
        found = consumed.get(tp, ())
        at_offset = dict(found)
        missing += [f"{tp} record {number}" for number, at in promised.items() if at_offset.get(at) != number]
        firsts = list(dict.fromkeys(number for _, number in found))
        duplicates += len(found) - len(firsts)
        if firsts != sorted(firsts):
            disordered.append(str(tp))
    total = sum(len(promised) for promised in acknowledged.values())
    return [
        Check(
            statement="no acknowledged record is missing",
            holds=not missing and total > 0,
            detail=_named(missing) or f"{total} acknowledged, each read back at the offset it was acknowledged with",
        ),
        Check(
            statement="records are in order in every partition",
            holds=not disordered and total > 0,
            detail=_named(disordered) or f"{len(acknowledged)} partitions, {duplicates} duplicates (no idempotence)",
        ),
    ]


def check_controller(*, answers: bool) -> Check:
    """A controller is active: what only it answers was answered."""
    return Check(
        statement="a controller is active",
        holds=answers,
        detail="it answers" if answers else "what only a controller answers is not answered",
    )


def check_partitions(truth: Truth, names: Collection[str] = (), *, may_be_empty: bool = False) -> Check:
    """Every partition has a leader in its ISR, and a full ISR; these topics are there."""
    broken = [f"there is no topic {topic}" for topic in sorted(set(names) - truth.topics)]
    broken += [str(tp) for tp in truth.not_whole()]
    return Check(
        statement="every partition has a leader in its ISR and a full ISR",
        holds=not broken and (may_be_empty or bool(truth.partitions)),
        detail=_named(broken) or f"{len(truth.partitions)} partitions of {len(truth.topics)} topics",
    )


def check_epochs(history: EpochHistory, truth: Truth, *, controller_epoch_at_start: int) -> Check:
    """No epoch fell, and the controller's rose: another one took over."""
    rose = truth.controller_epoch > controller_epoch_at_start
    epochs = f"controller epoch {controller_epoch_at_start} -> {truth.controller_epoch}"
    return Check(
        statement="epochs never fell",
        holds=not history.falls and rose and history.looks > 0,
        detail=_named(history.falls) or f"{epochs}; {history.looks} looks at all leader epochs",
    )


def check_falls(history: EpochHistory) -> Check:
    """No epoch fell between the looks."""
    return Check(
        statement="epochs never fell",
        holds=not history.falls,
        detail=_named(history.falls) or f"{history.looks} looks at all leader epochs",
    )


def check_moves(moving: Collection[TopicPartition] | None) -> Check:
    """No partition is being reassigned; None: nobody could tell."""
    return Check(
        statement="no partition is being reassigned",
        holds=moving is not None and not moving,
        detail="no controller tells"
        if moving is None
        else _named([str(tp) for tp in moving]) or "no reassignment is under way",
    )


def check_admin(leftovers: Iterable[str]) -> Check:
    """Nothing is left to do in /admin, where moves that brokers were asked for (KIP-455) do not stand."""
    paths = sorted(leftovers)
    return Check(
        statement="no znode is left in /admin",
        holds=not paths,
        detail=_named(paths) or "no move, election or deletion is asked for there",
    )


def check_views(truth: Truth, answers: Mapping[BrokerId, Any], source: str = "ZooKeeper") -> Check:
    """Every broker's metadata agrees with the truth, which has it from `source`. `answers` are Metadata responses
    (version 7 or later)."""
    differences: list[str] = []
    for broker_id in sorted(truth.brokers):
        if broker_id not in answers:
            differences.append(f"broker {broker_id} gave no answer")
        else:
            differences += [f"broker {broker_id}: {text}" for text in metadata_differences(truth, answers[broker_id])]
    return Check(
        statement=f"all brokers' metadata agrees with {source}",
        holds=not differences and bool(answers),
        detail=_named(differences) or f"{len(answers)} brokers, {len(truth.partitions)} partitions each",
    )


def metadata_differences(truth: Truth, answer: Any) -> list[str]:
    """Where one broker's Metadata answer differs from ZooKeeper, as sentences."""
    differences: list[str] = []
    listed = {node.node_id for node in answer.brokers}
    if answer.controller_id not in truth.brokers:
        differences.append(f"requests for the controller go to {answer.controller_id}, which is no broker")
    if listed != truth.brokers.keys():
        differences.append(f"brokers {sorted(listed)}, not {sorted(truth.brokers)}")
    seen = {
        TopicPartition(topic.name, partition.partition_index): _view(partition)
        for topic in answer.topics
        for partition in topic.partitions
    }
    expected = {tp: _expected_of(truth, tp) for tp in truth.partitions}
    for tp in sorted(seen.keys() | expected.keys()):
        if seen.get(tp) != expected.get(tp):
            differences.append(f"{tp} {seen.get(tp)}, not {expected.get(tp)}")
    return differences


def _view(partition: Any) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    return (
        partition.leader_id,
        partition.leader_epoch,
        tuple(partition.replica_nodes),
        tuple(sorted(partition.isr_nodes)),
    )


def _expected_of(truth: Truth, tp: TopicPartition) -> tuple[int, int, tuple[int, ...], tuple[int, ...]] | None:
    partition = truth.partitions[tp]
    if partition.state is None:
        return None
    leader = -1 if partition.leader is None else partition.leader
    return leader, partition.state.leader_epoch, partition.assignment.replicas, tuple(sorted(partition.isr))


def _named(offenders: Sequence[str]) -> str:
    more = f" and {len(offenders) - _NAMED} more" if len(offenders) > _NAMED else ""
    return "; ".join(offenders[:_NAMED]) + more
