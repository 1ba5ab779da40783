"""From one generation of a group to the next: who leads it, and which answers of the log still count."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker_sim.groups.values import GroupState, Store
from controller.wire.errors import ErrorCode
from tests.worlds.groups import REBALANCE_MS, SESSION_MS, Play, join_request, static

OTHER = (("range", b"other"),)
EMPTY, PREPARING, COMPLETING, STABLE = (
    GroupState.EMPTY,
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.STABLE,
)


def joined(*members: str) -> Play:
    """A stable group; `i` and `k` are static members, known as `i-1` and `k-1`."""
    play = Play()
    for member in members:
        static(play, member, 1) if member in "ik" else play.join_twice(member)
    play.until(play.now + 6000)
    for member in list(play.group.members):
        play.sync(member, **dict.fromkeys(play.group.members, b"x"))
    assert play.group.state is STABLE
    return play


def rejoin(play: Play, *members: str) -> dict[str, int]:
    """They join again, with something new to say; the others, if any, beat and do not join. The tickets, by member."""
    tickets = {}
    for member in members:
        instance = play.group.members[member].group_instance_id
        tickets[member] = play.join(join_request(member, protocols=OTHER, group_instance_id=instance))
    away = [member for member in play.group.members if member not in members]
    for wait_ms in [REBALANCE_MS // 2] * 2 if away else []:
        for member in away:
            assert play.beat(member) is ErrorCode.REBALANCE_IN_PROGRESS
        play.until(play.now + wait_ms)
    return tickets


#: what, members in the order in which they came, those that join again -> who leads, who is a member then
LEADERS = [
    ("the leader, however many come before it", ["A", "B", "C"], ["C", "B", "A"], "A", ["A", "B", "C"]),
    ("another one, where the leader did not", ["A", "B", "C"], ["C", "B"], "B", ["B", "C"]),
    ("not the static leader that stayed away, though it is a member", ["i", "A"], ["A"], "A", ["i-1", "A"]),
    ("nor a static member that follows a leader that did not", ["A", "i", "B"], ["B"], "B", ["i-1", "B"]),
    ("nor any of two static members", ["i", "k", "B"], ["B"], "B", ["i-1", "k-1", "B"]),
    ("a static leader that came", ["i", "A"], ["A", "i-1"], "i-1", ["i-1", "A"]),
]


@pytest.mark.parametrize(("_", "first", "again", "leader", "left"), LEADERS, ids=[row[0] for row in LEADERS])
def test_who_leads_is_one_of_those_that_joined(
    _: str, first: list[str], again: list[str], leader: str, left: list[str]
) -> None:
    """Source: Kafka 3.9 `GroupMetadata.maybeElectNewJoinedLeader`: else nobody would hand out the partitions."""
    play = joined(*first)
    tickets = rejoin(play, *again)
    assert (play.group.state, play.group.generation, list(play.group.members)) == (COMPLETING, 2, left)
    assert set(play.group.members.assignments().values()) == {b""}, "those of the generation before count no more"
    answers = {member: play.answers[ticket] for member, ticket in tickets.items()}
    assert {answer.leader for answer in answers.values()} == {leader}
    assert {member: [m.member_id for m in answer.members] for member, answer in answers.items()} == {
        member: left if member == leader else [] for member in again
    }
    play.sync(leader, **dict.fromkeys(left, b"y"))
    assert (play.group.state, play.group.members.assignments()) == (STABLE, dict.fromkeys(left, b"y"))


def test_a_static_leader_that_came_back_under_another_id_leads_on() -> None:
    play = joined("i", "A")
    static(play, "i", 2)
    assert (play.group.state, play.group.leader, list(play.group.members)) == (STABLE, "i-2", ["A", "i-2"])
    tickets = rejoin(play, "A", "i-2")
    assert [play.answers[ticket].leader for ticket in tickets.values()] == ["i-2", "i-2"]


def test_a_rebalance_to_which_nobody_came_waits_on_in_its_generation() -> None:
    play = joined("i", "A")
    play.perform(play.group.leave("A", None, play.now)[1])
    rejoin(play)
    assert (play.group.state, play.group.generation, list(play.group.members)) == (PREPARING, 1, ["i-1"])
    assert play.group.leader == "i-1"
    ticket = play.join(join_request("i-1", group_instance_id="i"))
    assert (play.answers[ticket].generation, play.answers[ticket].leader) == (2, "i-1")


def test_of_a_leader_that_left_the_next_is_the_first_that_was_there() -> None:
    play = joined("A", "B")
    play.perform(play.group.leave("A", None, play.now)[1])
    play.join_twice("C")
    ticket = play.join(join_request("B"))
    assert (play.group.state, play.answers[ticket].leader) == (COMPLETING, "B")


@pytest.mark.parametrize("then", ["it comes", "it leaves", "it stays away"])
def test_who_was_given_an_id_is_waited_for_until_its_session_ends_or_it_leaves(then: str) -> None:
    play = joined("A", "B")
    play.join(join_request("", "C"))
    tickets = rejoin(play, "A", "B")
    play.until(play.now + SESSION_MS - 1)
    assert (play.group.state, tickets["A"] in play.answers) == (PREPARING, False)
    match then:
        case "it comes":
            play.join(join_request("C"))
        case "it leaves":
            error, effects = play.group.leave("C", None, play.now)
            play.perform(effects)
            assert (error, play.group.state) == (ErrorCode.NONE, COMPLETING)
        case _:
            play.until(play.now + 1)
    assert play.group.state is COMPLETING
    there = ["A", "B", *("C" if then == "it comes" else "")]
    assert [m.member_id for m in play.answers[tickets["A"]].members] == there


#: when members come, each of which puts the first generation off -> when it begins; none waits above 7 s
FIRST = [([0], 3_000), ([0, 2_000], 6_000), ([0, 2_000, 5_000], 7_000), ([0, 2_000, 5_000, 6_500], 7_000)]


@pytest.mark.parametrize(("times", "begins"), FIRST)
def test_a_new_group_waits_for_more_members_as_long_as_they_come_but_not_for_ever(
    times: list[int], begins: int
) -> None:
    play = Play()
    for number, at in enumerate(times):
        play.until(at)
        play.join_twice(f"m{number}", rebalance_timeout_ms=7_000)
    play.until(begins - 1)
    assert play.group.state is PREPARING
    play.until(begins)
    assert (play.group.state, len(play.group.members)) == (COMPLETING, len(times))


@pytest.mark.parametrize("timeout_ms", [2_000, 3_000])
def test_a_new_group_waits_once_where_nobody_would_wait_for_longer(timeout_ms: int) -> None:
    play = Play()
    for at, member in enumerate(("A", "B")):
        play.until(1_000 * at)
        play.join_twice(member, rebalance_timeout_ms=timeout_ms)
    play.until(3_000)
    assert (play.group.state, play.group.generation) == (COMPLETING, 1)


def test_the_session_of_who_waited_for_its_assignment_begins_when_it_has_it() -> None:
    play = Play()
    for member in ("A", "B"):
        play.join_twice(member)
    play.until(6_000)
    waiting = play.sync("B")
    for now_ms in (36_000, 60_000):
        play.until(now_ms)
        assert play.beat("A") is ErrorCode.NONE
    play.sync("A", A=b"a", B=b"b")
    assert play.answers[waiting].assignment == b"b"
    play.until(60_000 + SESSION_MS - 1)
    assert "B" in play.group.members
    play.until(60_000 + SESSION_MS)
    assert "B" not in play.group.members


@pytest.mark.parametrize("late_ms", [0, 5_000])
@pytest.mark.parametrize("session_ms", [REBALANCE_MS - 1, REBALANCE_MS, REBALANCE_MS + 1])
@pytest.mark.parametrize(("away", "here"), [("A", "B"), ("B", "A")], ids=["the leader", "another"])
def test_who_neither_syncs_nor_beats_is_gone_once_and_the_others_go_on(
    away: str, here: str, session_ms: int, late_ms: int
) -> None:
    """Whether its session ends before the wait for its SyncGroup, at the same moment, or later; and whenever that is
    looked at."""
    play = Play()
    for member in ("A", "B"):
        play.join_twice(member, session_timeout_ms=session_ms)
    play.until(6_000)
    synced = play.sync(here, A=b"a", B=b"b")
    play.now = 6_000 + session_ms - 1
    play.beat(here)
    play.now += late_ms  # without a look at the group
    play.until(6_000 + REBALANCE_MS + late_ms)
    assert (play.group.state, list(play.group.members)) == (PREPARING, [here])
    assert play.answers[synced].error is (ErrorCode.NONE if here == "A" else ErrorCode.REBALANCE_IN_PROGRESS)
    assert play.beat(away) is ErrorCode.UNKNOWN_MEMBER_ID
    answer = play.answers[play.join(join_request(here))]
    assert (answer.generation, answer.leader, [m.member_id for m in answer.members]) == (2, here, [here])
    play.sync(here, **{here: b"x"})
    assert (play.group.state, play.group.members.assignments()) == (STABLE, {here: b"x"})
    assert set(play.answers) == set(range(1, play.ticket + 1))


@pytest.mark.parametrize("synced", ["", "A", "B", "AB"])
@pytest.mark.parametrize("is_left", [False, True], ids=["another joins", "one leaves"])
def test_the_wait_for_syncs_ends_with_their_generation(synced: str, *, is_left: bool) -> None:
    """Who had not synced then, and joins again in time, stays: also where the leader's sync had made the group stable.

    Source: Kafka 3.9 `GroupCoordinator.prepareRebalance`, which calls `removeSyncExpiration` in whatever state.
    """
    play, patient = Play(), {"session_timeout_ms": 10 * REBALANCE_MS}
    for member in "ABC":
        play.join_twice(member, **patient)
    play.until(6_000)
    for member in synced:
        play.sync(member, **dict.fromkeys("ABC", b"x"))
    play.until(6_000 + REBALANCE_MS // 2)
    if is_left:
        play.perform(play.group.leave("C", None, play.now)[1])
    else:
        play.join_twice("D", **patient)
    waiting = play.join(join_request("B", **patient))
    play.until(6_000 + REBALANCE_MS)
    assert (play.group.state, list(play.group.members)) == (PREPARING, ["A", "B", *("" if is_left else "CD")])
    play.until(6_000 + REBALANCE_MS * 3 // 2)
    assert [member.member_id for member in play.answers[waiting].members] == ["B", *("" if is_left else "D")]


# -- answers of the log -----------------------------------------------------------------------------------------------


def nothing(play: Play) -> None:
    """The log answers at once."""


def the_next_is_prepared(play: Play) -> None:
    play.join_twice("C")


def the_next_is_assigned(play: Play) -> None:
    play.join_twice("C")
    for member in ("A", "B"):
        play.join(join_request(member))
    play.sync("B")


def all_left(play: Play) -> None:
    for member in ("A", "B"):
        play.perform(play.group.leave(member, None, play.now)[1])


def the_leader_asked_twice(play: Play) -> None:
    play.sync("A", A=b"2", B=b"2")
    play.answer_store(play.stores[-1])


REBALANCING, FAILED = ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE
#: what happens before the log has answered the write of generation 1 -> the group's state and generation, what `B` is
#: assigned and what its SyncGroup was answered, where that write worked, and where it failed
LATE = [
    (nothing, (STABLE, 1, b"1", ErrorCode.NONE), (PREPARING, 1, b"", FAILED)),
    (the_next_is_prepared, (PREPARING, 1, b"", REBALANCING), (PREPARING, 1, b"", REBALANCING)),
    (the_next_is_assigned, (COMPLETING, 2, b"", REBALANCING), (COMPLETING, 2, b"", REBALANCING)),
    (the_leader_asked_twice, (STABLE, 1, b"2", ErrorCode.NONE), (STABLE, 1, b"2", ErrorCode.NONE)),
    (all_left, (EMPTY, 2, None, REBALANCING), (EMPTY, 2, None, REBALANCING)),
]


@pytest.mark.parametrize("error", [ErrorCode.NONE, FAILED])
@pytest.mark.parametrize(("happens", "worked", "failed"), LATE, ids=[row[0].__name__ for row in LATE])
def test_a_write_that_the_group_has_moved_past_means_nothing(
    happens: Callable[[Play], None],
    worked: tuple[GroupState, int, bytes | None, ErrorCode],
    failed: tuple[GroupState, int, bytes | None, ErrorCode],
    error: ErrorCode,
) -> None:
    play = Play()
    for member in ("A", "B"):
        play.join_twice(member)
    play.until(6000)
    play.log_is_slow = True
    asked = play.sync("B")
    play.sync("A", A=b"1", B=b"1")
    (store,) = play.stores
    assert (store, play.group.state) == (Store(1, {"A": b"1", "B": b"1"}), COMPLETING)
    happens(play)
    parked = set(range(1, play.ticket + 1)) - set(play.answers)
    before = play.group.next_deadline_ms
    play.answer_store(store, error)
    state, generation, assigned, said = worked if error is ErrorCode.NONE else failed
    assert (play.group.state, play.group.generation) == (state, generation)
    assert (play.group.members.assignments().get("B"), play.answers[asked].error) == (assigned, said)
    if happens is not nothing:
        assert set(range(1, play.ticket + 1)) - set(play.answers) == parked, "nobody is answered by it"
        assert play.group.next_deadline_ms == before
