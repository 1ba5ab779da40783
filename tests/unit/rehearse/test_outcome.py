"""What is counted of the windows, elections and losses of a rehearsal, and which of them are warned of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker_sim.fluid.limits import UNLIMITED, Limits
from controller.rehearse.ledger import Change, Trouble, Window
from controller.rehearse.operator import Happening
from controller.rehearse.outcome import Outcome, outcome_of
from controller.wire.types import BrokerId, ReplicaAssignment, TopicPartition, settled

ONE, TWO = BrokerId(1), BrokerId(2)
END_MS = 100
#: partition, from when, until when (None: still so at the end)
Span = tuple[int, int, int | None]


def partition(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def of(trouble: Trouble, *spans: Span) -> list[Window]:
    return [Window(topic_partition=partition(p), trouble=trouble, from_ms=begin, to_ms=end) for p, begin, end in spans]


def outcome(*windows: Window, story: tuple[Happening, ...] = (), link: float = UNLIMITED, **found: Any) -> Outcome:
    """Of a rehearsal that found these. `found`: the rest of what its parts counted."""
    elections = found.get("elections", ())
    ledger = SimpleNamespace(
        finish=lambda: windows, elections=elections, isr_changes=5,
        troubled=lambda trouble: [w.topic_partition for w in windows if w.trouble is trouble and w.to_ms is None],
        partition=lambda tp: (None, found["assignments"][tp] if "assignments" in found else settled((ONE, TWO))),
    )  # fmt: skip
    plane = SimpleNamespace(
        copied_bytes=lambda: 70.0, losses=SimpleNamespace(lost=found.get("lost", {})), behind=lambda: (), now_s=0.0
    )
    stage: Any = SimpleNamespace(
        now_ms=lambda: END_MS, ledger=ledger, plane=plane, brokers=dict.fromkeys(found.get("up", ())),
        clients=SimpleNamespace(refused=lambda: found.get("refused", {})),
        scenario=SimpleNamespace(name="n", cluster=SimpleNamespace(mode="kraft"), seed=3, end_ms=found.get("until")),
        risk=SimpleNamespace(most_bytes=9e6, partitions=found.get("at_risk", set()), most_ms=40),
        machine_limits={ONE: Limits(), TWO: Limits(link=link)},
        exposure=SimpleNamespace(worst=lambda end_ms: (end_ms,)),
    )  # fmt: skip
    operator: Any = SimpleNamespace(story=list(story), refused=found.get("refusals", []))
    recorder: Any = SimpleNamespace(
        peaks=SimpleNamespace(link=(0.5, TWO, 30)), samples=[], disk_full_ms=found.get("full", {})
    )
    return outcome_of(stage, operator, recorder, is_over=True)


spans = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.none() | st.integers(0, 30)).map(
        lambda s: (s[0], s[1], None if s[2] is None else s[1] + s[2])
    ),
    max_size=7,
)


@given(spans, st.sampled_from(Trouble))
@example([(0, 0, 10), (0, 10, 20), (1, 10, None)], Trouble.OFFLINE)
@example([(0, 5, 5)], Trouble.OFFLINE)
@example([(0, 5, 9), (0, 12, 14), (1, 1, 6), (2, 12, 30)], Trouble.MOVING)
def test_troubles_are_counted_as_a_look_at_every_ms_would(rows: list[Span], trouble: Trouble) -> None:
    """Those of other kinds are none of it. One that ends as another begins does not overlap."""
    others = [w for other in Trouble if other is not trouble for w in of(other, (7, 3, 77))]
    totals = outcome(*of(trouble, *rows), *others).troubles[trouble.value]
    lasting = [(begin, END_MS if end is None else end) for _, begin, end in rows]
    at_once = [sum(begin <= ms < end for begin, end in lasting) for ms in range(END_MS)]
    assert totals.partitions == len({p for p, _, _ in rows})
    assert totals.partition_ms == sum(at_once)
    assert totals.longest_ms == max((end - begin for begin, end in lasting), default=0)
    if max(at_once):
        assert (totals.at_most, totals.at_most_ms) == (max(at_once), at_once.index(max(at_once)))


#: moves, what is under-replicated -> when the last move ends, the middle of the busiest stretch
MOMENTS: list[tuple[list[Span], list[Span], int | None, int]] = [
    ([], [], None, 0),
    ([(0, 10, 30)], [], 30, 20),
    ([(0, 10, 30), (1, 20, 50)], [], 50, 25),
    ([(0, 10, 30), (1, 20, None)], [], None, 25),
    ([(0, 10, None)], [], None, 55),
    ([(0, 10, 60)], [(1, 20, 30), (2, 40, 60)], 60, 25),
    ([], [(1, 20, 30), (2, 22, 60)], None, 26),
    ([(0, 10, 20), (1, 20, 40)], [], 40, 15),
    ([(0, 0, 0)], [], 0, 0),
]


@pytest.mark.parametrize(("moves", "under", "ends", "busiest"), MOMENTS)
def test_when_moves_end_and_when_most_is_under_way(
    moves: list[Span], under: list[Span], ends: int | None, busiest: int
) -> None:
    offline = of(Trouble.OFFLINE, *[(number, 70, 90) for number in range(9)])
    found = outcome(*of(Trouble.MOVING, *moves), *of(Trouble.UNDER_REPLICATED, *under), *offline)
    assert (found.moves_end_ms, found.busiest_ms) == (ends, busiest)
    assert [(m.partition, m.from_ms, m.to_ms) for m in found.moves] == moves
    assert sum(m.length_ms(END_MS) for m in found.moves) == found.troubles["moving"].partition_ms


def test_the_rest_is_what_each_part_of_the_rehearsal_counted() -> None:
    changes = tuple(
        Change(topic_partition=partition(n), at_ms=n, leader_before=ONE, leader=TWO, is_unclean=n == 1)
        for n in range(3)
    )
    found = outcome(
        elections=changes, refused={partition(0): (10.0, 1.0), partition(1): (5.0, 2.0)},
        lost={partition(2): 8.0, partition(3): 1.0}, at_risk={partition(4)},
    )  # fmt: skip
    assert (found.elections, found.unclean_elections, found.isr_changes) == (3, 1, 5)
    assert (found.refused_bytes, found.refused_partitions) == (15.0, 2)
    assert (found.lost_bytes, found.lost_partitions) == (9.0, 2)
    assert (found.at_risk_bytes, found.at_risk_partitions, found.at_risk_ms) == (9e6, 1, 40)
    assert (found.peak_link, found.peak_link_broker, found.peak_link_ms) == (0.5, TWO, 30)
    assert (found.moved_bytes, found.changes, found.end_ms, found.seed) == (70.0, changes, END_MS, 3)
    assert found.rules.startswith("KRaft")


@pytest.mark.parametrize(("link", "knows"), [(UNLIMITED, False), (7e6, True)])
def test_links_are_known_where_any_broker_has_a_limit(link: float, knows: bool) -> None:
    assert outcome(link=link).knows_links is knows


# -- warnings ---------------------------------------------------------------------------------------------------------


def warned(*windows: Window, **found: Any) -> str:
    """All warnings, those that one partition alone flaps or is at risk aside."""
    return "\n".join(outcome(*windows, **found).warnings)


LOSSES = (
    Happening(at_ms=10, what="first", takes_brokers=True),
    Happening(at_ms=15, what="no loss"),
    Happening(at_ms=20, what="second", takes_brokers=True),
)


@pytest.mark.parametrize("trouble", [Trouble.OFFLINE, Trouble.UNDER_MIN_ISR])
def test_what_goes_offline_is_laid_to_the_loss_before_it_the_largest_first(trouble: Trouble) -> None:
    windows = of(trouble, (0, 0, 5), (1, 10, 12), (1, 16, None), (2, 20, 90), (3, 20, 30), (3, 50, 55), (4, 21, 22))
    said = outcome(*windows, story=LOSSES).warnings
    assert [line.partition(" at ")[0].partition(":")[0] for line in said] == ["second", "from the begin", "first"]
    words = "offline" if trouble is Trouble.OFFLINE else "under their min ISR"
    assert all(f" {words}, the longest for " in line for line in said)
    assert "3 partitions" in said[0] and "still at the end" not in said[0]
    assert "1 partition " in said[1] and "1 partition " in said[2] and "still at the end" in said[2]


@pytest.mark.parametrize(("until", "longest"), [(9_000, "9.0 s"), (None, "0.1 s"), (61_000, "00:01:01")])
def test_the_longest_of_what_a_loss_takes_is_told_those_that_last_until_the_end_included(
    until: int | None, longest: str
) -> None:
    (line,) = outcome(*of(Trouble.OFFLINE, (0, 0, until), (1, 0, 5), (2, 90, None))).warnings
    assert f"the longest for {longest}, still at the end" in line


@pytest.mark.parametrize(("since", "when"), [(0, "from the begin: "), (44_500, "from 44.5 s on: ")])
def test_what_no_loss_comes_before_is_told_with_its_begin(since: int, when: str) -> None:
    (line,) = outcome(*of(Trouble.UNDER_MIN_ISR, (0, since, None), (1, 50_000, 60_000))).warnings
    assert line.startswith(when + "2 partitions under their min ISR")


def test_what_moves_and_is_under_its_min_isr_is_named_whenever_either_was() -> None:
    moving, under = of(Trouble.MOVING, (0, 0, 5), (1, 0, 5)), of(Trouble.UNDER_MIN_ISR, (1, 50, 60), (2, 50, 60))
    assert "1 partition under min ISR while it moves: t-1" in warned(*moving, *under)
    assert " while " not in warned(*moving, *under[1:]) + warned(*under)
    assert "2 partitions under min ISR while they move: t-0, t-1" in warned(
        *moving, *of(Trouble.UNDER_MIN_ISR, (0, 0, 5)), *under
    )


@pytest.mark.parametrize(("times", "flaps"), [(2, False), (3, True), (4, True)])
def test_who_loses_members_three_times_flaps(times: int, flaps: bool) -> None:
    again = of(Trouble.UNDER_REPLICATED, *((0, 10 * n, 10 * n + 5) for n in range(times)), (1, 0, 5), (2, 0, 5))
    others = of(Trouble.MOVING, *((1, 10 * n, 10 * n + 5) for n in range(5)))
    said = warned(*again, *others)
    assert ("1 partition loses and regains in-sync replicas three times or more: t-0" in said) is flaps
    assert "t-1" not in said


def test_of_each_loss_of_records_there_is_a_warning_and_of_none_where_nothing_is_lost() -> None:
    assert warned() == ""
    unclean = Change(topic_partition=partition(5), at_ms=1, leader_before=None, leader=ONE, is_unclean=True)
    clean = Change(topic_partition=partition(6), at_ms=1, leader_before=None, leader=ONE, is_unclean=False)
    found = {"lost": {partition(2): 8e6}, "elections": (unclean, clean), "at_risk": {partition(3)}, "full": {TWO: 7},
             "refusals": [f"no {n}" for n in range(9)]}  # fmt: skip
    lines = outcome(**found).warnings
    assert [word for word in ("t-2", "t-5", "t-6", "t-3", "broker 2") if any(word in line for line in lines)] == [
        "t-2", "t-5", "t-3", "broker 2"]  # fmt: skip
    assert lines[-5:] == tuple(f"refused: no {n}" for n in range(5))


@pytest.mark.parametrize("until", [None, 50])
def test_moves_to_brokers_that_are_down_never_end_unless_the_rehearsal_was_cut_short(until: int | None) -> None:
    adds = {partition(n): ReplicaAssignment(replicas=(ONE, *new), adding_replicas=new)
            for n, new in enumerate([(TWO,), (BrokerId(3),), (TWO, BrokerId(4)), ()])}  # fmt: skip
    moving = of(Trouble.MOVING, *((n, 0, None) for n in range(4)))
    lines = outcome(*moving, assignments=adds, up=[ONE, BrokerId(3)], until=until).warnings
    assert [line.rpartition(": ")[2] for line in lines] == ([] if until else ["t-0, t-2", "t-2"])
    assert [line[:22] for line in lines] == ([] if until else ["never ends: broker 2 i", "never ends: broker 4 i"])


@pytest.mark.parametrize(("partitions", "named"), [(1, "t-0"), (3, "t-0, t-1, t-2"), (5, "t-0, t-1, t-2 and 2 more")])
def test_a_warning_names_a_few(partitions: int, named: str) -> None:
    said = warned(lost={partition(n): 1.0 for n in reversed(range(partitions))})
    assert said.endswith(f" lost: {named}".replace(" lost", " are lost"))
