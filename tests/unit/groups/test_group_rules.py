"""What a group answers in each of its states, in the order of Kafka's checks; who has a place; which protocol wins.

Source: Kafka 3.9 `GroupCoordinator`, `GroupMetadata`; spec clients.md §7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_sim.groups.members import Member, Members
from broker_sim.groups.values import GroupState, JoinAnswer, Sync, SyncAnswer
from controller.wire.errors import ErrorCode
from tests.worlds.groups import SESSION_MS, Play, join_request, static

NONE, UNKNOWN, FENCED, GENERATION, REBALANCING, GONE, FULL, PROTOCOL, NOT_HERE = (
    ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.NOT_COORDINATOR,
)  # fmt: skip
OTHER = (("range", b"other"),)


def new(**options: Any) -> Play:
    return Play(**options)


def completing(**options: Any) -> Play:
    """`A` leads, `i-1` is a static member; generation 1."""
    play = new(**options)
    play.join_twice("A")
    static(play, "i", 1)
    play.until(6_000)
    assert play.group.state is GroupState.COMPLETING_REBALANCE
    return play


def stable(**options: Any) -> Play:
    play = completing(**options)
    play.sync("i-1")
    play.sync("A", **{"A": b"a", "i-1": b"i"})
    assert play.group.state is GroupState.STABLE
    return play


def preparing(**options: Any) -> Play:
    play = stable(**options)
    play.join_twice("C")
    assert play.group.state is GroupState.PREPARING_REBALANCE
    return play


def emptied(**options: Any) -> Play:
    play = stable(**options)
    for member in ("A", "i-1"):
        play.perform(play.group.leave(member, None, play.now)[1])
    assert play.group.state is GroupState.EMPTY
    return play


def dead(**options: Any) -> Play:
    play = stable(**options)
    play.perform(play.group.die())
    assert play.group.state is GroupState.DEAD
    return play


STATES = (new, emptied, preparing, completing, stable, dead)
#: who asks: member, instance, generation -> the answer of a group that has members and one that has none
ASKERS: list[tuple[str, str | None, int, ErrorCode | None]] = [
    ("A", None, 1, None),
    ("i-1", "i", 1, None),
    ("i-1", None, 1, None),
    ("A", None, 0, GENERATION),
    ("A", None, 2, GENERATION),
    ("Z", None, 1, UNKNOWN),
    ("A", "i", 1, FENCED),
    ("Z", "i", 7, FENCED),
    ("i-1", "j", 1, UNKNOWN),
]
#: state -> what who may ask is told: SyncGroup (None: it waits), Heartbeat, OffsetCommit
ANSWERS: dict[Callable[..., Play], tuple[ErrorCode | None, ErrorCode, ErrorCode]] = {
    preparing: (REBALANCING, REBALANCING, NONE),
    completing: (None, NONE, REBALANCING),
    stable: (NONE, NONE, NONE),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(("member", "instance", "generation", "refusal"), ASKERS)
def test_who_may_ask(
    state: Callable[..., Play], member: str, instance: str | None, generation: int, refusal: ErrorCode | None
) -> None:
    def asked(what: int) -> ErrorCode | None:
        play = state()
        play.log_is_slow = True
        if what == 0:
            sync = Sync(member_id=member, generation=generation, group_instance_id=instance)
            play.perform(play.group.sync(sync, 99, play.now))
            return play.answers[99].error if 99 in play.answers else None
        ask = play.group.heartbeat if what == 1 else play.group.commit_error
        return ask(member, instance, generation, play.now)

    if state is dead:
        expected: tuple[ErrorCode | None, ...] = (GONE,) * 3
    elif state in (new, emptied):
        expected = (UNKNOWN,) * 3
    else:
        expected = ANSWERS[state] if refusal is None else (refusal,) * 3
    assert tuple(asked(what) for what in range(3)) == expected


@pytest.mark.parametrize("state", STATES)
def test_who_has_no_generation_may_commit_while_nobody_is_there(state: Callable[..., Play]) -> None:
    expected = {new: NONE, emptied: NONE, dead: GONE}.get(state, UNKNOWN)
    assert state().group.commit_error("", None, -1, 0) is expected


@pytest.mark.parametrize("state", [preparing, completing, stable])
def test_which_requests_begin_a_session_anew(state: Callable[..., Play]) -> None:
    for what in ("heartbeat", "commit_error", "refused"):
        play = state()
        member = play.group.members["A"]
        member.join = member.sync = None
        before, play.now = member.expires_at_ms, play.now + 100
        if what == "refused":
            assert play.group.heartbeat("A", None, 7, play.now) is GENERATION
            assert play.group.commit_error("A", None, 7, play.now) is GENERATION
        else:
            getattr(play.group, what)("A", None, 1, play.now)
        is_begun = what == "heartbeat" or (what == "commit_error" and state is not completing)
        assert member.expires_at_ms == (play.now + SESSION_MS if is_begun else before)


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [(None, None, NONE), ("consumer", "range", NONE), ("connect", None, PROTOCOL), (None, "x", PROTOCOL),
     ("consumer", "x", PROTOCOL), ("connect", "range", PROTOCOL)],
)  # fmt: skip
def test_who_syncs_in_another_protocol_is_refused(kind: str | None, name: str | None, error: ErrorCode) -> None:
    play = stable()
    play.perform(
        play.group.sync(Sync(member_id="A", generation=1, protocol_type=kind, protocol_name=name), 99, play.now)
    )
    answer = play.answers[99]
    assert isinstance(answer, SyncAnswer) and answer.error is error
    if error is NONE:
        assert (answer.assignment, answer.protocol_type, answer.protocol_name) == (b"a", "consumer", "range")


def test_a_second_sync_of_a_member_takes_the_place_of_its_first() -> None:
    play = completing()
    first, second = play.sync("i-1"), play.sync("i-1")
    assert play.answers[first].error is REBALANCING and second not in play.answers
    play.sync("A", **{"i-1": b"i", "Z": b"z"})
    assert play.answers[second].assignment == b"i"
    assert play.stores[-1].assignments == {"A": b"", "i-1": b"i"}, "who has none gets nothing; strangers neither"


# -- joining ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_who_may_join(state: Callable[..., Play]) -> None:
    def error(**changes: Any) -> ErrorCode | None:
        play = state()
        play.perform(play.group.join(join_request(**changes), 99, play.now))
        return play.answers[99].error if 99 in play.answers else NONE

    is_dead, is_empty = state is dead, state in (new, emptied)
    assert error(new="n") is (GONE if is_dead else ErrorCode.MEMBER_ID_REQUIRED)
    assert error(new="n", needs_known_member_id=False) is (GONE if is_dead else NONE)
    for nothing in ({"protocols": ()}, {"protocol_type": ""}):
        assert error(new="n", **nothing) is (GONE if is_dead else PROTOCOL)
    for other in ({"protocol_type": "connect"}, {"protocols": (("x", b""),)}):
        assert error(new="n", needs_known_member_id=False, **other) is (
            GONE if is_dead else NONE if is_empty else PROTOCOL
        )
    assert error(member_id="Z") is (GONE if is_dead else UNKNOWN)
    assert error(member_id="A", group_instance_id="i") is (GONE if is_dead else UNKNOWN if is_empty else FENCED)
    assert error(member_id="A", group_instance_id="j") is (GONE if is_dead else UNKNOWN)
    assert error(member_id="A") is (GONE if is_dead else UNKNOWN if is_empty else NONE)


#: state, who joins -> whether it is told of its generation at once, and of the members
AGAIN = [
    (completing, "A", {}, True, ["A", "i-1"]),
    (completing, "i-1", {}, True, []),
    (completing, "i-1", {"protocols": OTHER}, False, []),
    (stable, "A", {}, False, []),
    (stable, "i-1", {}, True, []),
    (stable, "i-1", {"protocols": OTHER}, False, []),
]


@pytest.mark.parametrize(("state", "member", "changes", "at_once", "members"), AGAIN)
def test_who_joins_again_begins_a_rebalance_where_something_is_new_or_it_leads(
    state: Callable[..., Play], member: str, changes: dict[str, Any], at_once: bool, members: list[str]
) -> None:
    play = state()
    found = play.group.members[member]
    over_ms = found.expires_at_ms
    play.now += 100
    ticket = play.join(join_request(member, session_timeout_ms=7, rebalance_timeout_ms=9, **changes))
    assert (ticket in play.answers) is at_once
    if at_once:
        answer = play.answers[ticket]
        assert isinstance(answer, JoinAnswer)
        assert (answer.generation, answer.leader, answer.member_id) == (1, "A", member)
        assert [each.member_id for each in answer.members] == members
        assert (found.expires_at_ms, found.session_timeout_ms) == (over_ms, SESSION_MS), "its session goes on"
    else:
        assert play.group.state is GroupState.PREPARING_REBALANCE
        assert (found.session_timeout_ms, found.rebalance_timeout_ms, found.join) == (7, 9, ticket)
        again = play.join(join_request(member, **changes))
        gave_up = play.answers[ticket]
        assert (gave_up.error, gave_up.member_id, again in play.answers) == (REBALANCING, member, False)


def test_places_are_for_those_that_wait_then_for_others_as_they_come() -> None:
    """Source: Kafka 3.9 `GroupCoordinator.acceptJoiningMember`, `handleJoinGroup`."""
    play = stable(max_size=2)
    assert play.answers[play.join(join_request("", "C"))].error is FULL
    back = play.join(join_request("", "i-2", group_instance_id="i"))
    assert play.answers[back].error is FULL and "i-1" in play.group.members, "without its id it is one more"
    waiting = play.join(join_request("A"))
    assert play.group.state is GroupState.PREPARING_REBALANCE and waiting not in play.answers
    assert play.answers[play.join(join_request("", "C"))].error is ErrorCode.MEMBER_ID_REQUIRED, "one of two waits"
    play.join(join_request("C"))
    assert play.answers[play.join(join_request("", "D"))].error is FULL
    again = play.join(join_request("A"))
    assert play.answers[waiting].error is REBALANCING and again not in play.answers, "who waits has a place"
    late = play.join(join_request("i-1", group_instance_id="i"))
    assert play.answers[late] == JoinAnswer(error=FULL), "two wait: it has come too late"
    assert (play.group.state, list(play.group.members)) == (GroupState.COMPLETING_REBALANCE, ["A", "C"])
    assert play.answers[again].error is NONE, "nobody else is waited for"


def test_who_was_given_an_id_and_finds_no_place_is_waited_for_no_more() -> None:
    play = stable(max_size=3)
    for member in ("C", "D"):
        assert play.answers[play.join(join_request("", member))].error is ErrorCode.MEMBER_ID_REQUIRED
    play.join(join_request("C"))
    for member in ("A", "i-1"):
        play.join(join_request(member))
    assert play.group.state is GroupState.PREPARING_REBALANCE
    assert play.answers[play.join(join_request("D"))].error is FULL
    assert (play.group.state, list(play.group.members)) == (GroupState.COMPLETING_REBALANCE, ["A", "i-1", "C"])


@pytest.mark.parametrize(("size", "state"), [(1, GroupState.PREPARING_REBALANCE), (2, GroupState.STABLE)])
def test_a_group_that_is_read_with_more_members_than_may_be_sheds_the_last_that_come(
    size: int, state: GroupState
) -> None:
    """Source: Kafka 3.9 `GroupCoordinator.onGroupLoaded`."""
    members, play = list(stable().group.members.values()), new(max_size=size)
    play.now = 100
    play.group.restore(
        generation=1, protocol_type="consumer", protocol_name="range", leader="A", members=members,
        state_changed_ms=7, now_ms=play.now,
    )  # fmt: skip
    assert (play.group.state, play.beat("A")) == (state, NONE if size > 1 else REBALANCING)
    if size == 1:
        joins = [play.join(join_request(member)) for member in ("i-1", "A")]
        assert [play.answers[ticket].error for ticket in joins] == [NONE, FULL]
        assert (list(play.group.members), play.group.leader) == (["i-1"], "i-1")


def test_a_static_member_comes_back_with_what_it_says_now() -> None:
    play = stable()
    ticket = play.join(join_request("", "i-2", group_instance_id="i", session_timeout_ms=7, rebalance_timeout_ms=9))
    member = play.group.members["i-2"]
    assert play.answers[ticket].error is NONE and (member.session_timeout_ms, member.rebalance_timeout_ms) == (7, 9)
    over_ms = play.now + SESSION_MS
    assert (member.expires_at_ms, member.join, member.assignment) == (over_ms, None, b"i"), "as its old self had asked"
    ticket = play.join(join_request("", "i-3", group_instance_id="i", protocols=(("x", b""), ("range", b"r"))))
    assert play.answers[ticket].error is NONE, "the protocol stays"
    play = preparing()
    first = play.join(join_request("i-1", group_instance_id="i"))
    second = play.join(join_request("", "i-2", group_instance_id="i", session_timeout_ms=7))
    assert play.answers[first].error is FENCED and second not in play.answers
    assert (play.group.members["i-2"].join, play.group.members["i-2"].session_timeout_ms) == (second, 7)
    play.join(join_request("A"))
    assert (play.group.state, play.answers[second].generation) == (GroupState.COMPLETING_REBALANCE, 2)


def test_a_static_member_that_changes_the_protocol_begins_a_rebalance() -> None:
    both = (("range", b"r"), ("sticky", b"s"))
    play = new()
    static_keys = {"group_instance_id": "i", "protocols": both}
    play.join(join_request("", "i-1", **static_keys))
    play.until(6_000)
    play.sync("i-1", **{"i-1": b"x"})
    assert (play.group.state, play.group.protocol_name) == (GroupState.STABLE, "range")
    ticket = play.join(join_request("", "i-2", **{**static_keys, "protocols": both[::-1]}))
    assert (play.group.protocol_name, play.group.generation, play.answers[ticket].generation) == ("sticky", 2, 2)


def test_a_new_member_that_waits_in_its_first_join_is_given_up_after_five_minutes_and_others_are_not() -> None:
    play = new()
    slow = {"rebalance_timeout_ms": 10**6, "session_timeout_ms": 10**6}
    play.join_twice("A", **slow)
    play.join_twice("B", **slow)
    play.until(6_000)
    for member in ("B", "A"):
        play.sync(member)
    began = play.now
    again, first = play.join(join_request("B", protocols=OTHER, **slow)), play.join_twice("C", **slow)
    play.until(began + 299_999)
    assert list(play.group.members) == ["A", "B", "C"] and first not in play.answers
    play.until(began + 300_000)
    assert list(play.group.members) == ["A", "B"] and play.answers[first].error is UNKNOWN
    assert again not in play.answers, "who was a member waits on"


def test_who_leaves_before_it_has_joined_is_waited_for_no_more() -> None:
    play = preparing()
    asked = play.join(join_request("", "D"))
    assert play.answers[asked].error is ErrorCode.MEMBER_ID_REQUIRED
    for member in ("A", "i-1"):
        play.join(join_request(member))
    assert play.group.state is GroupState.PREPARING_REBALANCE
    error, effects = play.group.leave("D", None, play.now)
    play.perform(effects)
    assert (error, play.group.state) == (NONE, GroupState.COMPLETING_REBALANCE)
    assert play.group.leave("D", None, play.now) == (UNKNOWN, [])
    play.join(join_request("", "E"))
    assert play.group.leave("E", "i", play.now) == (NONE, []), "whatever instance it names"
    assert dead().group.leave("A", None, 0) == (GONE, [])


@pytest.mark.parametrize("state", STATES[:5])
def test_all_that_wait_are_told_when_it_dies(state: Callable[..., Play]) -> None:
    play = state()
    if state is completing:
        play.sync("i-1")
    play.join(join_request("", "P"))
    changed_ms, waiting = play.group.state_changed_ms, set(range(1, play.ticket + 1)) - set(play.answers)
    play.perform(play.group.die())
    assert all(play.answers[ticket].error is NOT_HERE for ticket in waiting) and waiting == (
        set() if state in (new, emptied, stable) else waiting
    )
    assert set(play.answers) >= set(range(1, play.ticket + 1))
    assert (play.group.state, play.group.state_changed_ms) == (GroupState.DEAD, changed_ms)
    assert (play.group.next_deadline_ms, list(play.group.members)) == (None, [])
    assert play.group.tick(10**9) == []


# -- protocols --------------------------------------------------------------------------------------------------------

#: what each member supports, most wanted first -> what all support, which is chosen
VOTES = [
    (["ab", "ab"], "ab", "a"),
    (["ab", "ba", "ba"], "ab", "b"),
    (["ba", "ab"], "ab", "a"),
    (["cab", "cab", "ba"], "ab", "a"),
    (["abc", "cba", "bca"], "abc", "a"),
    (["aab", "ab"], "ab", "a"),
    (["ba", "ab", "ba", "ab"], "ab", "a"),
]


@pytest.mark.parametrize(("supported", "common", "chosen"), VOTES)
def test_each_member_votes_for_the_first_that_all_support(supported: list[str], common: str, chosen: str) -> None:
    members = Members()
    for number, names in enumerate(supported):
        members[f"m{number}"] = Member(
            member_id=f"m{number}", group_instance_id=None, client_id="", client_host="", session_timeout_ms=number,
            rebalance_timeout_ms=10 - number, protocols=tuple((name, f"{number}{name}".encode()) for name in names),
        )  # fmt: skip
    assert members.common_protocols() == set(common) and members.selected_protocol() == chosen
    assert members.rebalance_timeout_ms() == 10 and Members().rebalance_timeout_ms() == 0
    assert [entry.metadata for entry in members.entries(chosen)] == [
        f"{number}{chosen}".encode() for number in range(len(supported))
    ]
    assert members["m0"].metadata(None) == members["m0"].metadata("z") == b""
