"""The ISR rule on the worked example and the further cases of isr-replay.md §4."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_sim.isr import PROFILES, LedPartition, Profile
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
LAG_MS = 30_000


def led(
    profile: str = "P26", *, isr: tuple[BrokerId, ...] = (ONE, TWO, THREE), leo: int = 1000, min_isr: int = 1
) -> LedPartition:
    partition = LedPartition(
        leader=ONE, profile=PROFILES[profile], lag_time_max_ms=LAG_MS, min_insync_replicas=min_isr, high_watermark=leo
    )
    partition.lead(now_ms=0, epoch=0, log_end_offset=leo, isr=isr, replicas=(ONE, TWO, THREE), partition_epoch=0)
    return partition


def wrote(partition: LedPartition, now_ms: int) -> tuple[BrokerId, ...]:
    partition.write_succeeded(partition.partition_epoch + 1, now_ms)
    return partition.isr


def test_the_worked_example_of_the_specification_step_by_step() -> None:
    p = led()
    for follower in (TWO, THREE):
        p.fetch(follower, 1000, 10_000)
    assert not p.append(1100, 12_000)
    p.fetch(TWO, 1100, 12_010)
    assert p.high_watermark == 1000, "3 is at 1000"
    assert p.tick(15_000) is None and p.tick(30_000) is None
    assert (p.shrink_due_ms(), list(p.lag_headroom(30_000))) == (40_001, [(THREE, 10_000)])
    p.append(2000, 40_000)
    p.fetch(TWO, 2000, 40_010)

    shrink = p.tick(45_000)
    assert shrink is not None and (shrink.replicas, shrink.last_caught_up_time_ms) == ((THREE,), (10_000,))
    assert wrote(p, 45_000) == (ONE, TWO) and p.high_watermark == 2000

    assert p.fetch(THREE, 1000, 60_000) is None
    assert p.followers[THREE].last_caught_up_time_ms == 10_000, (
        "reaching the leader's old end counts as of the fetch before"
    )
    p.append(2020, 60_100)
    p.fetch(TWO, 2020, 60_110)
    assert p.fetch(THREE, 1600, 60_200) is None and p.followers[THREE].last_caught_up_time_ms == 10_000
    p.append(2040, 60_300)
    p.fetch(TWO, 2040, 60_310)
    assert p.fetch(THREE, 2020, 60_400) is None, "below the high watermark"
    assert p.followers[THREE].last_caught_up_time_ms == 60_200
    p.append(2060, 60_500)
    p.fetch(TWO, 2060, 60_500)
    assert p.high_watermark == 2040, "held by the outsider that is caught up"
    expand = p.fetch(THREE, 2060, 60_600)
    assert expand is not None and expand.isr == (ONE, TWO, THREE)
    assert wrote(p, 60_600) == (ONE, TWO, THREE) and p.high_watermark == 2060


@pytest.mark.known_failure("I3")
def test_a_silent_follower_at_the_end_stays_until_an_append() -> None:
    p = led()
    for follower in (TWO, THREE):
        p.fetch(follower, 1000, 10_000)
    assert p.tick(3_600_000) is None
    p.append(1001, 3_600_001)
    shrink = p.tick(3_600_002)
    assert shrink is not None and shrink.replicas == (TWO, THREE), "both in one write"


def test_who_is_at_the_end_of_an_empty_log_lags_behind_nothing() -> None:
    p = led(leo=0)
    for follower in (TWO, THREE):
        p.fetch(follower, 0, 1)
    assert list(p.lag_headroom(60_000)) == [] and p.shrink_due_ms() is None and p.tick(60_000) is None


@pytest.mark.parametrize("profile", PROFILES)
def test_a_shrink_lets_the_high_watermark_go_on_once_it_is_written(profile: str) -> None:
    p = led(profile)
    for follower in (TWO, THREE):
        p.fetch(follower, 1000, 1)
    p.append(2000, 10_000)
    p.fetch(TWO, 2000, 50_000)
    assert p.tick(50_001) is not None and p.pending is not None
    p.append(2100, 50_002)
    p.fetch(TWO, 2100, 50_003)
    assert p.high_watermark == 1000, "3 is in the ISR still"
    assert wrote(p, 50_004) == (ONE, TWO) and p.high_watermark == 2100


def test_who_never_fetched_is_not_at_the_end_of_an_empty_log() -> None:
    p = led(leo=0)
    p.fetch(TWO, 0, 10)
    assert p.tick(LAG_MS) is None and p.out_of_sync(LAG_MS + 1) == (THREE,)


#: profile, whether it is in sync -> when its last fetch counts as, after its leader got a new epoch at 7
BUMPS = [("P26", True, 7), ("P26", False, 7), ("P33", True, 7), ("P33", False, 0), ("P37", False, 0)]


@pytest.mark.parametrize(("profile", "in_isr", "fetched_ms"), BUMPS)
def test_a_new_epoch_of_a_sitting_leader_starts_its_followers_anew(profile: str, in_isr: bool, fetched_ms: int) -> None:
    """Who reaches the end that the epoch began with counts as caught up since the fetch before: that time."""
    p = led(profile, isr=(ONE, TWO))
    p.append(1500, 3)
    for follower in (TWO, THREE):
        p.fetch(follower, 900, 5)
    p.lead(now_ms=7, epoch=1, log_end_offset=1500, isr=p.isr, replicas=p.replicas, partition_epoch=1)
    state = p.followers[TWO if in_isr else THREE]
    assert (state.last_caught_up_time_ms, state.last_fetch_time_ms) == (7 if in_isr else 0, fetched_ms)
    assert (state.log_end_offset, state.last_fetch_leader_log_end_offset) == (900, 1500)
    p.append(1600, 8)
    p.fetch(TWO if in_isr else THREE, 1500, 20)
    assert state.last_caught_up_time_ms == fetched_ms


def test_below_min_insync_replicas_the_high_watermark_stands_still_since_37() -> None:
    old, new = led("P36", isr=(ONE,), min_isr=2), led("P37", isr=(ONE,), min_isr=2)
    for p in (old, new):
        # The others were never caught up, so they do not hold it either.
        p.append(1500, 50_000)
    assert (old.high_watermark, new.high_watermark) == (1500, 1000)
    assert new.is_under_min_isr


def test_after_an_epoch_bump_an_outsider_must_reach_the_start_of_the_epoch() -> None:
    p = led("P26", isr=(ONE, TWO))
    p.append(2000, 100)
    p.lead(now_ms=200, epoch=1, log_end_offset=2000, isr=(ONE, TWO), replicas=(ONE, TWO, THREE), partition_epoch=1)
    assert p.high_watermark < 1500
    assert p.fetch(THREE, 1500, 300) is None, "above the high watermark, below the start of the epoch"
    assert p.fetch(THREE, 2000, 400) is not None


def test_a_refused_write_is_tried_again_only_before_28() -> None:
    for profile, again in (("P26", True), ("P37", False)):
        p = led(profile)
        p.append(2000, 1)
        assert p.tick(LAG_MS + 2) is not None
        p.write_refused()
        assert (p.tick(LAG_MS + 3) is not None) is again, profile


DEAD_CASES = [
    ("joins before 3.3, dead or not", "P26", frozenset({ONE, TWO}), True),
    ("does not join since 3.3 when the leader takes it for dead", "P33", frozenset({ONE, TWO}), False),
    ("joins when it is alive", "P33", frozenset({ONE, TWO, THREE}), True),
    ("joins when nothing is known", "P37", None, True),
]


@pytest.mark.parametrize(("profile", "alive", "joins"), [c[1:] for c in DEAD_CASES], ids=[c[0] for c in DEAD_CASES])
def test_an_outsider_that_reached_the_end(profile: str, alive: frozenset[BrokerId] | None, joins: bool) -> None:
    p = led(profile, isr=(ONE, TWO))
    p.alive = alive
    assert (p.fetch(THREE, 1000, 5) is not None) is joins


FETCH_ERRORS = [
    ("a stranger with an epoch may be early", BrokerId(9), 1000, 5, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ("a stranger is no follower", BrokerId(9), 1000, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ("beyond the end is out of range", THREE, 1001, 5, ErrorCode.OFFSET_OUT_OF_RANGE),
    ("before the start is out of range", THREE, 9, 5, ErrorCode.OFFSET_OUT_OF_RANGE),
    ("at the end is fine", THREE, 1000, 5, ErrorCode.NONE),
]


@pytest.mark.parametrize(
    ("replica", "offset", "epoch", "error"), [c[1:] for c in FETCH_ERRORS], ids=[c[0] for c in FETCH_ERRORS]
)
def test_a_fetch(replica: BrokerId, offset: int, epoch: int, error: ErrorCode) -> None:
    p = led()
    p.lead(now_ms=0, epoch=5, log_end_offset=1000, isr=(ONE, TWO), replicas=(ONE, TWO, THREE), partition_epoch=1)
    assert p.fetch_error(replica, offset=offset, req_epoch=epoch, log_start=10) is error


EVENTS = st.lists(
    st.tuples(st.sampled_from(["append", "fetch", "tick"]), st.sampled_from([TWO, THREE]), st.integers(0, 400)),
    max_size=60,
)


def what_is_foretold_comes(p: LedPartition, now: int) -> None:
    """Nobody must leave before the time that is named, and somebody must then; who must leave has nothing left."""
    due = p.shrink_due_ms()
    if due is None:
        assert p.out_of_sync(now + 1_000_000) == ()
    else:
        assert p.out_of_sync(due) and not p.out_of_sync(due - 1)
    headroom = dict(p.lag_headroom(now))
    assert sorted(replica for replica, left in headroom.items() if left < 0) == list(p.out_of_sync(now))
    for replica, left in headroom.items():
        assert replica in p.out_of_sync(now + left + 1) and replica not in p.out_of_sync(now + left)


@settings(max_examples=60, deadline=None)
@given(events=EVENTS, profile=st.sampled_from(sorted(PROFILES)))
def test_whatever_happens_the_leader_stays_in_and_the_high_watermark_never_falls(
    events: list[tuple[str, BrokerId, int]], profile: str
) -> None:
    p = replace(led(profile), lag_time_max_ms=500)
    now = 0
    for kind, follower, amount in events:
        now += amount
        hw = p.high_watermark
        change = None
        if kind == "append":
            p.append(p.log_end_offset + amount % 7, now)
        elif kind == "fetch":
            change = p.fetch(follower, max(0, p.log_end_offset - amount % 9), now)
        else:
            change = p.tick(now)
        if change is not None:
            assert p.shrink_due_ms() is None, "one write at a time"
            wrote(p, now)
        what_is_foretold_comes(p, now)
        assert ONE in p.isr and set(p.isr) <= {ONE, TWO, THREE} and len(set(p.isr)) == len(p.isr)
        assert hw <= p.high_watermark <= p.log_end_offset
        assert not p.out_of_sync(now) or kind != "tick"


def test_profiles_differ_in_the_order_of_versions() -> None:
    flags = [f for f in Profile.__dataclass_fields__ if f != "name"]
    changes = [sum(getattr(PROFILES[name], flag) for flag in flags) for name in ("P26", "P33", "P36", "P37")]
    assert changes == sorted(set(changes)), "each profile adds rules to the one before"


@pytest.mark.parametrize("answer", ["granted", "refused"])
def test_the_high_watermark_waits_for_who_may_be_in_the_isr_already(answer: str) -> None:
    """The write of the expansion is unanswered for longer than the lag time, and who joins is silent."""
    p = led(isr=(ONE, TWO))
    assert p.fetch(THREE, 1000, 1_000) is not None
    p.append(1100, 2_000)
    p.fetch(TWO, 1100, 2_010)
    late = 2_010 + 2 * LAG_MS
    p.append(1200, late)
    p.fetch(TWO, 1200, late + 10)
    assert p.high_watermark == 1000
    if answer == "refused":
        p.write_refused()
        p.advance_hw(late + 20)
        assert p.high_watermark == 1200, "it is an outsider that lags"
    else:
        assert wrote(p, late + 20) == (ONE, TWO, THREE)
        assert p.high_watermark == 1000


def test_who_joins_does_not_count_for_min_isr_before_it_is_written() -> None:
    """The write may be refused, and then there was one copy fewer than acks=all promises."""
    p = led(isr=(ONE,), min_isr=2)
    assert p.is_under_min_isr
    assert p.fetch(TWO, 1000, 1_000) is not None and p.maximal_isr == (ONE, TWO)
    assert p.is_under_min_isr
    wrote(p, 1_010)
    assert not p.is_under_min_isr


def test_a_member_that_is_no_replica_must_leave_at_once() -> None:
    p, nine = led("P37"), BrokerId(9)
    p.lead(now_ms=5, epoch=1, log_end_offset=1000, isr=(ONE, nine, TWO), replicas=(ONE, TWO), partition_epoch=1)
    assert (p.shrink_due_ms(), p.out_of_sync(5), list(p.lag_headroom(5))) == (0, (nine,), [(TWO, LAG_MS)])
    change = p.tick(6)
    assert change is not None and (change.isr, change.replicas, change.last_caught_up_time_ms) == (
        (ONE, TWO),
        (nine,),
        (0,),
    )


def test_who_is_being_added_does_not_count_as_a_copy() -> None:
    p = led("P37")
    more = {"now_ms": 5, "epoch": 1, "log_end_offset": 1000, "isr": (ONE,), "partition_epoch": 1}
    assert p.replication_factor == 3
    p.lead(**more, replicas=(ONE, TWO, THREE), adding=(TWO, THREE), removing=(ONE,))
    assert p.replication_factor == 1


@pytest.mark.parametrize("adding", [(), (THREE,), (TWO, THREE)])
@pytest.mark.parametrize(("min_isr", "before_37", "since"), [(2, 2, 2), (3, 3, 3), (4, 4, 3)])
def test_min_isr_is_at_most_all_that_are_assigned_also_who_is_being_added(
    adding: tuple[BrokerId, ...], min_isr: int, before_37: int, since: int
) -> None:
    for profile, expected in (("P36", before_37), ("P37", since)):
        p = led(profile, min_isr=min_isr)
        p.adding = adding
        assert p.effective_min_isr == expected


@pytest.mark.parametrize("change", ["shrink", "expand"])
@pytest.mark.parametrize("profile", PROFILES)
def test_a_new_epoch_forgets_the_write_that_was_under_way(profile: str, change: str) -> None:
    """Its answer comes for nobody: the ISR is that of the request, and the next change is wanted again."""
    p = led(profile, isr=(ONE, TWO, THREE) if change == "shrink" else (ONE, TWO))
    p.fetch(TWO, 1000, 10)
    if change == "shrink":
        p.append(1001, 20)
        p.fetch(TWO, 1001, 30)
        assert p.tick(LAG_MS + 10) is not None
    else:
        assert p.fetch(THREE, 1000, 20) is not None
    p.lead(
        now_ms=LAG_MS + 20, epoch=1, log_end_offset=p.log_end_offset, isr=(ONE, TWO), replicas=(ONE, TWO, THREE),
        partition_epoch=1,
    )  # fmt: skip
    assert (p.pending, p.maximal_isr) == (None, (ONE, TWO))
    joins = p.fetch(THREE, p.log_end_offset, LAG_MS + 30)
    assert joins is not None and joins.isr == (ONE, TWO, THREE)
