"""The group state machine on its own: requests and time in, answers and writes out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_sim.groups.values import GroupState, Join, JoinAnswer, Store
from controller.rules.hashing import group_partition
from controller.wire.errors import ErrorCode
from tests.worlds.groups import REBALANCE_MS, SESSION_MS, Play, join_request, static


@pytest.mark.feature("004-12", "004-19", "004-21", "004-22")
def test_the_timeline_of_the_specification() -> None:
    play = Play()
    first = play.join_twice("A")
    assert (play.group.state, play.group.next_deadline_ms) == (GroupState.PREPARING_REBALANCE, 3000)
    play.until(1000)
    second = play.join_twice("B")
    play.until(3000)
    assert first not in play.answers
    play.until(6000)
    assert play.answers[first].generation == play.answers[second].generation == 1
    assert play.answers[first].leader == "A"
    assert [m.member_id for m in play.answers[first].members] == ["A", "B"]
    assert play.answers[second].members == ()
    waiting = play.sync("B")
    assert waiting not in play.answers
    play.sync("A", A=b"0", B=b"1")
    assert play.answers[waiting].assignment == b"1"
    assert play.group.state is GroupState.STABLE

    play.now = 20_000
    play.beat("A"), play.beat("B")
    third = play.join_twice("C")
    assert (play.beat("A"), play.beat("B")) == (ErrorCode.REBALANCE_IN_PROGRESS,) * 2
    play.join(join_request("A"))
    play.join(join_request("B"))
    assert play.answers[third].generation == 2
    for member in ("A", "B", "C"):
        play.sync(member)

    for second_ in range(21, 86):
        play.until(second_ * 1000)
        if second_ <= 40:
            play.beat("B")
        play.beat("A"), play.beat("C")
    assert play.group.state is GroupState.PREPARING_REBALANCE
    assert sorted(play.group.members) == ["A", "C"]


def test_a_brand_new_group_waits_the_full_initial_delay_even_if_all_have_joined() -> None:
    play = Play()
    ticket = play.join_twice("A")
    play.until(2999)
    assert ticket not in play.answers
    play.until(3000)
    assert play.answers[ticket].generation == 1


def test_a_member_that_never_syncs_is_removed() -> None:
    play = Play()
    for member in ("A", "B"):
        play.join_twice(member)
    play.until(6000)
    waiting = play.sync("B")
    for second in range(7, 67):
        play.until(second * 1000)
        if "A" in play.group.members:
            play.beat("A")
    assert "A" not in play.group.members
    assert play.answers[waiting].error is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_last_member_that_leaves_makes_the_group_empty_and_stored() -> None:
    play = Play()
    play.stable("A")
    error, effects = play.group.leave("A", None, play.now)
    play.perform(effects)
    assert (error, play.group.state, play.group.generation) == (ErrorCode.NONE, GroupState.EMPTY, 2)
    assert play.stores[-1] == Store(2, None)


def test_a_failed_write_of_the_assignments_rebalances() -> None:
    play = Play()
    play.join_twice("A")
    play.until(6000)
    play.log_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    ticket = play.sync("A", A=b"x")
    assert play.answers[ticket].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert play.group.state is GroupState.PREPARING_REBALANCE


def test_a_static_member_that_returns_without_its_id_does_not_rebalance() -> None:
    play = Play()
    ticket = play.join(join_request("", "i-1", group_instance_id="i"))
    play.until(6000)
    assert play.answers[ticket].leader == "i-1"
    play.sync("i-1", **{"i-1": b"x"})
    again = play.join(join_request("", "i-2", group_instance_id="i"))
    answer = play.answers[again]
    assert (answer.error, answer.generation, answer.member_id, answer.leader) == (ErrorCode.NONE, 1, "i-2", "i-1")
    assert answer.members == ()
    assert play.group.leader == "i-2"
    assert play.group.heartbeat("i-1", "i", 1, play.now) is ErrorCode.FENCED_INSTANCE_ID
    assert play.group.heartbeat("i-2", "i", 1, play.now) is ErrorCode.NONE


REFUSED_JOINS = [
    ("unknown id", join_request("x"), ErrorCode.UNKNOWN_MEMBER_ID),
    ("other protocol type", join_request("", protocol_type="connect"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ("no protocol in common", join_request("", protocols=(("z", b""),)), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ("no protocols", join_request("", protocols=()), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ("unknown instance with an id", join_request("A", group_instance_id="i"), ErrorCode.UNKNOWN_MEMBER_ID),
]


@pytest.mark.parametrize(("_", "request_", "error"), REFUSED_JOINS, ids=[row[0] for row in REFUSED_JOINS])
def test_joins_that_are_refused(_: str, request_: Join, error: ErrorCode) -> None:
    play = Play()
    play.stable("A")
    assert play.answers[play.join(request_)].error is error


COMMITS = [
    ("a member of the generation", "A", 1, ErrorCode.NONE),
    ("another generation", "A", 7, ErrorCode.ILLEGAL_GENERATION),
    ("a stranger", "Z", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ("a simple consumer in a group with members", "", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ("a member without generation", "A", -1, ErrorCode.ILLEGAL_GENERATION),
]


@pytest.mark.parametrize(("_", "member", "generation", "error"), COMMITS, ids=[row[0] for row in COMMITS])
def test_who_may_commit(_: str, member: str, generation: int, error: ErrorCode) -> None:
    play = Play()
    play.stable("A")
    assert play.group.commit_error(member, None, generation, play.now) is error


def test_a_simple_consumer_may_commit_to_an_empty_group() -> None:
    assert Play().group.commit_error("", None, -1, 0) is ErrorCode.NONE


def test_the_group_size_is_limited() -> None:
    play = Play(max_size=1)
    play.stable("A")
    assert play.answers[play.join(join_request("", "B"))].error is ErrorCode.GROUP_MAX_SIZE_REACHED


PARTITIONS = [("my-group", 12), ("test", 48), ("group", 47), ("console-consumer", 40), ("g1", 42), ("", 0)]


@pytest.mark.parametrize(("group_id", "partition"), [*PARTITIONS, ("connect-cluster", 13)])
def test_a_group_lives_where_java_puts_it(group_id: str, partition: int) -> None:
    assert group_partition(group_id, 50) == partition


STEPS = st.lists(
    st.tuples(st.sampled_from(["join", "rejoin", "sync", "leave", "beat", "wait"]), st.integers(0, 3)), max_size=40
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_whatever_happens_every_request_is_answered_once_in_the_end(steps: list[tuple[str, int]]) -> None:
    play = Play()
    for step, number in steps:
        member = f"m{number}"
        match step:
            case "join" if member not in play.group.members:  # ids that are given out are new
                play.join(join_request("", member))
            case "rejoin":
                play.join(join_request(member))
            case "sync":
                play.sync(member, **dict.fromkeys(play.group.members, b"x"))
            case "leave":
                play.perform(play.group.leave(member, None, play.now)[1])
            case "beat":
                play.beat(member)
            case "wait":
                play.until(play.now + 1000 * (number + 1))
        assert play.group.state is not GroupState.EMPTY or not play.group.members
        if play.group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert play.group.leader in play.group.members
    play.until(play.now + 10 * 600_000)
    assert set(play.answers) == set(range(1, play.ticket + 1))


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR])
def test_a_returning_static_member_is_told_of_its_new_id_once_that_is_stored(error: ErrorCode) -> None:
    """Else it has its old id, and its old timeouts. Source: Kafka 3.9 `updateStaticMemberAndRebalance`."""
    play = Play()
    play.join(join_request("", "i-1", group_instance_id="i"))
    play.until(6000)
    play.sync("i-1", **{"i-1": b"x"})
    play.log_is_slow = True
    back = play.join(join_request("", "i-2", group_instance_id="i", session_timeout_ms=7, rebalance_timeout_ms=9))
    assert (play.stores[-1], back in play.answers) == (Store(1, {"i-2": b"x"}, back), False)
    play.now += 100
    play.answer_store(play.stores[-1], error)
    is_stored = error is ErrorCode.NONE
    answer, (member,) = play.answers[back], play.group.members.values()
    assert isinstance(answer, JoinAnswer)
    assert (answer.error, answer.member_id, answer.generation) == (error, "i-2" if is_stored else "", 1)
    assert (answer.leader, answer.members, play.group.state) == ("i-1", (), GroupState.STABLE)
    assert member.member_id == play.group.leader == ("i-2" if is_stored else "i-1")
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (
        (7, 9) if is_stored else (SESSION_MS, REBALANCE_MS)
    )
    assert member.expires_at_ms == 6_000 + SESSION_MS + (0 if is_stored else 100)
    play.answer_store(play.stores[-1], error)
    assert list(play.group.members) == [member.member_id], "once is enough"


@pytest.mark.parametrize("then", ["it leaves", "it comes again", "the group dies"])
def test_who_waits_for_its_new_id_no_more_is_told_nothing_of_it(then: str) -> None:
    play = Play()
    play.join(join_request("", "i-1", group_instance_id="i"))
    play.until(6000)
    play.sync("i-1", **{"i-1": b"x"})
    play.log_is_slow = True
    back = play.join(join_request("", "i-2", group_instance_id="i"))
    match then:
        case "it leaves":
            play.perform(play.group.leave("", "i", play.now)[1])
        case "it comes again":
            static(play, "i", 3)
        case _:
            play.perform(play.group.die())
    told, members = dict(play.answers), list(play.group.members)
    assert back in told
    play.answer_store(next(store for store in play.stores if store.ticket == back), ErrorCode.NOT_COORDINATOR)
    assert (play.answers, list(play.group.members)) == (told, members)


# -- static members ---------------------------------------------------------------------------------------------------


def test_a_static_member_that_returns_before_the_assignment_fences_its_old_self() -> None:
    play = Play()
    play.join_twice("A")
    static(play, "i", 1)
    play.until(6000)
    assert (play.group.state, play.group.leader) == (GroupState.COMPLETING_REBALANCE, "A")
    parked = play.sync("i-1")
    again = static(play, "i", 2)
    assert play.answers[parked].error is ErrorCode.FENCED_INSTANCE_ID
    assert again not in play.answers, "it waits in the rebalance that its return began"
    assert play.group.state is GroupState.PREPARING_REBALANCE
    assert sorted(play.group.members) == ["A", "i-2"]


def test_a_static_member_that_returned_under_another_id_is_awaited_for_its_assignment_as_before() -> None:
    play = Play()
    play.join_twice("A")
    static(play, "i", 1)
    play.until(6000)
    play.sync("A", **{"A": b"x", "i-1": b"y"})
    static(play, "i", 2)
    assert play.group.state is GroupState.STABLE
    for now_ms in range(20_000, 80_000, 20_000):
        play.beat("A"), play.group.heartbeat("i-2", "i", play.group.generation, play.now)
        play.until(now_ms)
    play.until(6_000 + REBALANCE_MS)
    assert "i-2" not in play.group.members


def test_a_static_member_that_does_not_rejoin_stays_until_its_session_ends() -> None:
    play = Play()
    static(play, "i", 1)
    play.join_twice("A")
    play.until(6000)
    for member in ("i-1", "A"):
        play.sync(member, **{"i-1": b"x", "A": b"y"})
    assert play.group.state is GroupState.STABLE
    play.join(join_request("A", protocols=(("range", b"other"),)))
    play.beat("i-1")
    play.until(play.now + 44_000)
    assert "i-1" in play.group.members
    play.until(play.now + 2_000)
    assert "i-1" not in play.group.members


LEAVES = [
    ("by its instance alone", "", "i", ErrorCode.NONE),
    ("by both", "i-1", "i", ErrorCode.NONE),
    ("by an id that is not its own", "A", "i", ErrorCode.FENCED_INSTANCE_ID),
    ("by an instance that nobody has", "", "j", ErrorCode.UNKNOWN_MEMBER_ID),
]


@pytest.mark.parametrize(("_", "member", "instance", "error"), LEAVES, ids=[row[0] for row in LEAVES])
def test_a_static_member_leaves(_: str, member: str, instance: str, error: ErrorCode) -> None:
    play = Play()
    static(play, "i", 1)
    play.until(6000)
    play.sync("i-1", **{"i-1": b"x"})
    found, effects = play.group.leave(member, instance, play.now)
    play.perform(effects)
    assert found is error
    assert ("i-1" in play.group.members) is (error is not ErrorCode.NONE)


def test_a_member_does_not_speak_for_the_instance_of_another() -> None:
    """Two are members: the one has no instance, the other is of another. The third has forgotten its id, as members of
    librdkafka have once their coordinator was away for a session; what they commit then is the end of them."""
    play = Play()
    static(play, "i", 1)
    static(play, "k", 1)
    play.join_twice("A")
    play.until(6000)
    for member in ("i-1", "k-1", "A"):
        play.sync(member, **{"i-1": b"x", "k-1": b"z", "A": b"y"})
    for member in ("A", "k-1", ""):
        assert play.group.heartbeat(member, "i", 1, play.now) is ErrorCode.FENCED_INSTANCE_ID
        assert play.group.commit_error(member, "i", 1, play.now) is ErrorCode.FENCED_INSTANCE_ID
    assert play.group.heartbeat("i-1", "i", 1, play.now) is ErrorCode.NONE


def test_while_the_assignment_is_awaited_members_beat_and_may_not_commit() -> None:
    play = Play()
    for member in ("A", "B"):
        play.join_twice(member)
    play.until(6000)
    assert play.group.state is GroupState.COMPLETING_REBALANCE
    assert play.beat("A") is ErrorCode.NONE
    assert play.group.commit_error("A", None, 1, play.now) is ErrorCode.REBALANCE_IN_PROGRESS
    for member in ("A", "B"):
        play.sync(member, A=b"", B=b"")
    play.join_twice("C")
    assert play.group.state is GroupState.PREPARING_REBALANCE
    assert play.beat("A") is ErrorCode.REBALANCE_IN_PROGRESS
    assert play.group.commit_error("A", None, 1, play.now) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("other", b""),)}, ErrorCode.MEMBER_ID_REQUIRED),
    ],
    ids=["another protocol type", "no protocols", "another protocol"],
)
def test_a_group_whose_last_member_left_keeps_its_type_until_it_is_empty(changes: Any, error: ErrorCode) -> None:
    """It waits for an id that it gave. Source: Kafka 3.9 `GroupMetadata.supportsProtocols`, which asks the state."""
    play = Play()
    play.stable("A")
    play.join(join_request("", "B"))
    play.perform(play.group.leave("A", None, play.now)[1])
    assert (play.group.state, len(play.group.members)) == (GroupState.PREPARING_REBALANCE, 0)
    assert play.answers[play.join(join_request("", "C", **changes))].error is error


def test_an_id_that_was_given_to_a_member_is_not_that_of_a_static_one() -> None:
    """Source: Kafka 3.9 `GroupCoordinator.doCurrentMemberJoinGroup`, which throws."""
    play = Play()
    first = static(play, "i", 1)
    play.join(join_request("", "B"))
    refused = play.join(join_request("B", group_instance_id="i"))
    assert play.answers[refused] == JoinAnswer(error=ErrorCode.UNKNOWN_SERVER_ERROR, member_id="")
    assert list(play.group.members) == ["i-1"]
    joined = play.join(join_request("B"))
    play.until(6_000)
    assert {play.answers[ticket].error for ticket in (first, joined)} == {ErrorCode.NONE}
    assert list(play.group.members) == ["i-1", "B"]
