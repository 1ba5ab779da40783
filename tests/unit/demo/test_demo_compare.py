"""The replay is held against the brokers' own logs: equal multisets, and not empty."""

from __future__ import annotations

from typing import Any

from controller.demo.compare import Live, compare, live_changes, replayed_changes


def live(event: str = "isr.shrink_decided", **changes: Any) -> dict[str, Any]:
    return {"event": event, "topic": "t", "partition": 0, "leader_epoch": 3, "isr_old": [1, 2], "isr": [1], **changes}


def replayed(event: str = "isr_shrink", source: str = "replayed", **changes: Any) -> dict[str, Any]:
    return {**live(**changes), "event": event, "source": source}


def test_the_same_changes_agree_in_any_order() -> None:
    expand = {"isr_old": [1], "isr": [1, 2]}
    left = live_changes([live(), live("isr.expand_decided", **expand), {"event": "leader.started"}])
    right = replayed_changes([replayed("isr_expand", isr_old=[1], isr=[2, 1]), replayed()])
    found = compare(left, right)
    assert found.holds
    assert (found.agreed, found.shrinks, found.expands) == (2, 1, 1)


def test_what_the_emitter_said_is_not_taken_for_derived() -> None:
    assert replayed_changes([replayed(source="trace"), replayed(event="leader")]) == []


def test_a_change_that_only_one_side_has_breaks_it() -> None:
    both = live_changes([live()])
    assert compare(both, []).only_live == both.changes
    assert compare(Live(changes=()), both.changes).only_replayed == both.changes
    assert not compare(live_changes([live(), live()]), both.changes).holds, "twice live, once replayed"
    assert not compare(both, replayed_changes([replayed(leader_epoch=4)])).holds


def test_nothing_compared_with_nothing_proves_nothing() -> None:
    assert not compare(Live(changes=()), []).holds


def test_what_the_replay_derives_after_a_refused_write_is_counted_apart() -> None:
    refused = live_changes([live(), live("isr.write_refused"), {"event": "isr.write_refused", "path": "/x"}])
    more = replayed("isr_expand", isr_old=[1], isr=[1, 2])
    found = compare(refused, replayed_changes([replayed(), more]))
    assert found.holds
    assert (found.agreed, found.after_refusal) == (1, 1)
    assert not compare(refused, replayed_changes([replayed(), {**more, "leader_epoch": 4}])).holds, "another epoch"
