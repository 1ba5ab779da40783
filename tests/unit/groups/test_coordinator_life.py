"""A coordinator from its start to its end: sessions on time, partitions that come and go, what their logs say."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from typing import Any

import pytest

from broker_sim.groups.records import (
    CommittedOffset,
    OffsetKey,
    StoredGroup,
    StoredMember,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from broker_sim.groups.registry import LOAD_BATCHES_PER_TURN
from broker_sim.groups.values import GroupState, JoinAnswer
from controller.wire.errors import ErrorCode
from controller.wire.records import build_values, iterate
from controller.wire.types import GROUP_METADATA_TOPIC, TopicPartition
from controller.world.simulated.world import World, run_world
from tests.worlds.group_logs import Coordinated

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NONE, NOT_HERE, UNKNOWN = ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_MEMBER_ID


def play(scenario: Any) -> None:
    run_world(1, scenario)


# -- sessions ---------------------------------------------------------------------------------------------------------


def test_a_session_ends_on_time_and_whatever_a_member_does_begins_it_anew() -> None:
    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        began = world.clock.now_ms()
        member = await at.member("a")
        assert world.clock.now_ms() - began == 3_000, "the initial delay"
        group = at.groups.entry("a").group
        for does in (
            lambda: at.beat("a", member),
            lambda: at.commit("a", {T0: 1}, member=member, generation=1),
            lambda: at.sync("a", member, 1),
        ):
            await world.sleep(9.999)
            assert member in group.members
            result: Any = does()
            await asyncio.sleep(0)
            if not isinstance(result, ErrorCode):
                result = await result
            assert getattr(result, "error", result) is NONE
        await world.sleep(9.998)
        assert member in group.members
        await world.sleep(0.003)
        assert (group.state, list(group.members), group.generation) == (GroupState.EMPTY, [], 2)
        assert at.beat("a", member) is UNKNOWN
        assert at.log.read(1).groups["a"].members == () and at.log.read(1).groups["a"].generation == 2

    play(scenario)


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_a_session_ends_on_time_whatever_the_clock_says(jump_ms: int) -> None:
    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        member = await at.member("a")
        world.clock.skew_ms += jump_ms
        assert at.beat("a", member) is NONE
        await world.sleep(9.999)
        assert at.groups.entry("a").group.members
        await world.sleep(0.002)
        assert not at.groups.entry("a").group.members

    play(scenario)


@pytest.mark.parametrize("error", [NONE, ErrorCode.REQUEST_TIMED_OUT])
def test_a_session_begins_when_its_member_is_answered_however_long_its_assignment_took(error: ErrorCode) -> None:
    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        joined = await at.join("a")
        at.log.is_slow = True
        syncing = asyncio.ensure_future(at.sync("a", joined.member_id, 1))
        await world.sleep(9)
        at.log.answer(error)
        assert (await syncing).error is (NONE if error is NONE else ErrorCode.REBALANCE_IN_PROGRESS)
        await world.sleep(9.9)
        assert joined.member_id in at.groups.entry("a").group.members
        await world.sleep(0.2 if error is NONE else 20)
        assert joined.member_id not in at.groups.entry("a").group.members

    play(scenario)


def test_who_was_given_an_id_and_does_not_use_it_is_forgotten() -> None:
    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        asked = await at.join("a", needs_known_member_id=True)
        assert asked.error is ErrorCode.MEMBER_ID_REQUIRED and asked.member_id.startswith("c-")
        group = at.groups.entry("a").group
        await world.sleep(9.999)
        assert group.next_deadline_ms is not None
        await world.sleep(0.002)
        assert group.next_deadline_ms is None and at.groups.entry("a").timer is None

    play(scenario)


def test_an_id_has_a_word_and_all_the_bits_of_a_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        monkeypatch.setattr(at.chance, "getrandbits", lambda bits: (1 << bits) - 1)
        assert at.groups.new_member_id("c") == "c-ffffffff-ffff-4fff-bfff-ffffffffffff"
        assert at.groups.error_for("") is ErrorCode.INVALID_GROUP_ID
        assert at.groups.error_for("", may_be_empty=True) is None

    play(scenario)


def test_a_timer_is_set_for_when_the_next_thing_is_due_and_no_sooner_than_in_a_millisecond() -> None:
    async def scenario(world: World) -> None:
        at, loop = await Coordinated(world).start(), asyncio.get_running_loop()

        def waits_ms() -> float:
            timer = at.groups.entry("a").timer
            assert timer is not None
            return round((timer.when() - loop.time()) * 1000, 6)

        joining = asyncio.ensure_future(at.join("a"))
        await asyncio.sleep(0)
        assert waits_ms() == 3_000, "the initial delay"
        first = (await joining).member_id
        assert waits_ms() == 10_000, "its session"
        await world.sleep(0.25)
        assert waits_ms() == 9_750
        group = at.groups.entry("a").group
        group.members["late"] = replace(group.members[first], member_id="late", expires_at_ms=1)
        assert at.beat("a", first) is NONE and waits_ms() == 1, "that is overdue"
        await world.sleep(0.001)
        assert list(group.members) == [first] and waits_ms() == 9_999

    play(scenario)


def test_a_group_has_one_timer_at_a_time() -> None:
    """Else each heartbeat of each member would leave one, until the session that it began is over."""

    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        member, timers = await at.member("a"), []
        for _ in range(4):
            await world.sleep(1)
            assert at.beat("a", member) is NONE
            timers.append(at.groups.entry("a").timer)
        assert [timer.cancelled() for timer in timers] == [True, True, True, False]
        await at.groups.stop()
        assert timers[-1].cancelled()

    play(scenario)


def test_a_new_group_waits_as_long_and_takes_as_many_as_its_broker_says() -> None:
    async def scenario(world: World) -> None:
        at = await Coordinated(world, group_initial_rebalance_delay_ms=700, group_max_size=2).start()
        began = world.loop.time()
        answers = await asyncio.gather(*(at.join("a") for _ in range(3)))
        assert [answer.error for answer in answers] == [NONE, NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]
        # once for those that came meanwhile, as any new group does
        assert world.loop.time() - began == pytest.approx(1.4, abs=0.01)

    play(scenario)


@pytest.mark.parametrize("timeout_ms", [99, 100, 200, 201])
def test_sessions_are_within_bounds_and_an_unknown_member_makes_no_group(timeout_ms: int) -> None:
    async def scenario(world: World) -> None:
        bounds = {"group_min_session_timeout_ms": 100, "group_max_session_timeout_ms": 200}
        at = await Coordinated(world, **bounds, group_initial_rebalance_delay_ms=0).start()
        joined = await at.join("a", session_timeout_ms=timeout_ms)
        is_fine = 100 <= timeout_ms <= 200
        assert joined.error is (NONE if is_fine else ErrorCode.INVALID_SESSION_TIMEOUT)
        assert (at.groups.entry("a") is not None) is is_fine
        again = await at.join("b", "who", session_timeout_ms=150)
        assert (again.error, again.member_id, at.groups.entry("b")) == (UNKNOWN, "who", None)
        assert (await at.join("", session_timeout_ms=150)).error is ErrorCode.INVALID_GROUP_ID

    play(scenario)


def test_of_a_group_that_is_not_there_nobody_is_a_member() -> None:
    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        assert (await at.sync("a", "m", 1)).error is UNKNOWN and at.beat("a", "m") is UNKNOWN
        assert at.groups.leave("a", [("m", None), ("", "i")]) == (NONE, [UNKNOWN, UNKNOWN])
        assert await at.commit("a", {T0: 1}, member="m", generation=0) is ErrorCode.ILLEGAL_GENERATION
        assert at.groups.delete_group("a") is ErrorCode.GROUP_ID_NOT_FOUND
        assert (await at.join("a", "m")).error is UNKNOWN
        assert list(at.groups.entries()) == [] and not any(at.log.batches.values())

    play(scenario)


LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
#: why a group is not served here -> what JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetCommit, DeleteGroups say
NOT_SERVED = {
    "nothing has begun": (ErrorCode.COORDINATOR_NOT_AVAILABLE,) * 6,
    "another broker has it": (NOT_HERE,) * 6,
    "it is being read": (LOADING, ErrorCode.REBALANCE_IN_PROGRESS, NONE, LOADING, LOADING, LOADING),
    "it has no name": (*[ErrorCode.INVALID_GROUP_ID] * 4, UNKNOWN, NONE),
}


@pytest.mark.parametrize("why", NOT_SERVED)
def test_that_a_group_is_not_served_here_is_told_whatever_else_is_wrong(why: str) -> None:
    """Source: Kafka 3.9 `GroupCoordinator`, whose `validateGroupStatus` comes first."""

    async def scenario(world: World) -> None:
        at = Coordinated(world)
        if why != "nothing has begun":
            await at.start()
            assert await at.commit("", {T0: 1}) is NONE, "for offsets, there is a group without a name"
            at.follow(1)
        if why == "it is being read":
            at.log.batches[1] = [a_batch(("a", T0, n)) for n in range(2 * LOAD_BATCHES_PER_TURN)]
            at.groups.leadership_changed([TopicPartition(GROUP_METADATA_TOPIC, 1)], ())
        group = "" if why == "it has no name" else "a"
        leaving = at.groups.leave(group, [("m", None)])
        answers = (
            (await at.join(group, "m", session_timeout_ms=0)).error,
            (await at.sync(group, "m", 7)).error,
            at.beat(group, "m", 7),
            leaving[0],
            await at.commit(group, {T0: 2}, member="m", generation=7),
            at.groups.delete_group(group),
        )
        assert (answers, leaving[1]) == (NOT_SERVED[why], [])
        await at.groups.stop()

    play(scenario)


def test_members_that_leave_are_told_of_one_by_one() -> None:
    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        one, other = await asyncio.gather(at.join("a"), at.join("a", group_instance_id="i"))
        members = [("z", None), (one.member_id, None), ("", "i"), (other.member_id, "i")]
        assert at.groups.leave("a", members) == (NONE, [UNKNOWN, NONE, NONE, UNKNOWN])
        assert at.groups.entry("a").group.state is GroupState.EMPTY
        assert at.groups.leave("b", members[:2]) == (NONE, [UNKNOWN, UNKNOWN]) and at.groups.entry("b") is None
        at.follow(0)
        assert at.groups.leave("b", members) == (NOT_HERE, [])

    play(scenario)


FATES = {"U": UNKNOWN, "R": ErrorCode.REBALANCE_IN_PROGRESS, "N": NONE}
#: who leaves, in one request (`a` leads, `z` is nobody) -> what `b` and `c` are told where they wait for assignments,
#: and where they wait in JoinGroup for `a`, which has not come; `-`: they wait on
TOGETHER = {
    "z": ("--", "--"),
    "bz": ("UR", "U-"),
    "abz": ("RR", "NN"),
    "zba": ("UR", "UN"),
    "abcz": ("RR", "NN"),
    "zcba": ("RU", "UU"),
}


@pytest.mark.parametrize("waits_in", ["SyncGroup", "JoinGroup", "nothing"])
@pytest.mark.parametrize("leavers", TOGETHER)
def test_what_each_of_those_that_leave_together_causes_is_done(leavers: str, waits_in: str) -> None:
    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        joined = await asyncio.gather(*(at.join("a") for _ in "abc"))
        ids = {name: answer.member_id for name, answer in zip("abc", joined, strict=True)}
        asked: list[asyncio.Future[Any]] = []
        if waits_in == "SyncGroup":
            asked = [asyncio.ensure_future(at.sync("a", ids[name], 1)) for name in "bc"]
        else:
            await at.sync("a", ids["a"], 1)
        if waits_in == "JoinGroup":
            other = (("range", b"other"),)
            asked = [asyncio.ensure_future(at.join("a", ids[name], protocols=other)) for name in "bc"]
        await world.sleep(0.1)
        found = at.groups.leave("a", [(ids.get(name, "nobody"), None) for name in leavers])
        assert found == (NONE, [UNKNOWN if name == "z" else NONE for name in leavers])
        await world.sleep(0.1)
        fates = TOGETHER[leavers][waits_in == "JoinGroup"]
        told = [request.result().error if request.done() else None for request in asked]
        assert told == [FATES.get(fate) for fate in fates][: len(asked)]
        stored = at.log.read(1).groups.get("a")
        is_stored_empty = stored is not None and not stored.members
        assert is_stored_empty == (at.groups.entry("a").group.state is GroupState.EMPTY) == (len(leavers) == 4)

    play(scenario)


# -- partitions that come and go --------------------------------------------------------------------------------------


def test_a_group_goes_on_where_its_log_is_read_with_sessions_that_begin_then() -> None:
    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        member = await at.member("a", group_instance_id="i", protocols=(("p", b"p"), ("range", b"r")))
        other = await at.member("b")
        changed_ms = at.groups.entry("a").group.state_changed_ms
        stored = at.log.read(1).groups["a"]
        assert replace(stored, state_changed_ms=0) == StoredGroup(
            protocol_type="consumer", generation=1, protocol="p", leader=member, state_changed_ms=0,
            members=(StoredMember(
                member_id=member, group_instance_id="i", client_id="c", client_host="/h", rebalance_timeout_ms=20_000,
                session_timeout_ms=10_000, subscription=b"p", assignment=b"x",
            ),),
        )  # fmt: skip
        assert changed_ms - 100 < stored.state_changed_ms <= changed_ms, "it is written before it is stable"
        await world.sleep(6)
        assert at.beat("b", other) is NONE
        rejoining = asyncio.ensure_future(at.join("a", member, group_instance_id="i", protocols=(("q", b""),)))
        await asyncio.sleep(0)
        at.follow(1)
        assert (await rejoining).error in (NOT_HERE, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        assert at.groups.entry("a") is None and at.groups.entry("b") is not None
        assert at.beat("a", member) is NOT_HERE and at.beat("b", other) is NONE
        assert (await at.join("a", member)).error is NOT_HERE
        assert (await at.sync("a", member, 1)).error is NOT_HERE
        await at.lead(1)
        group = at.groups.entry("a").group
        assert (group.state, group.generation, group.protocol_type, group.protocol_name, group.leader) == (
            GroupState.STABLE, 1, "consumer", "p", member,
        )  # fmt: skip
        assert group.state_changed_ms == stored.state_changed_ms
        assert group.members.assignments() == {member: b"x"}
        (restored,) = group.members.values()
        assert (restored.client_id, restored.client_host, restored.group_instance_id) == ("c", "/h", "i")
        assert (restored.session_timeout_ms, restored.rebalance_timeout_ms) == (10_000, 20_000)
        assert restored.protocols == (("p", b"p"),)
        await world.sleep(9.99)
        assert at.groups.heartbeat("a", member, "i", 1) is NONE
        await world.sleep(10.01)
        assert (group.state, group.generation) == (GroupState.EMPTY, 2)
        at.follow(1)
        await at.lead(1)
        group = at.groups.entry("a").group
        assert (group.state, group.generation, group.leader, list(group.members)) == (GroupState.EMPTY, 2, None, [])

    play(scenario)


def test_a_rebalance_that_moves_begins_again_among_those_who_are_stored_as_long_as_their_sessions_last() -> None:
    """Who left before it was stored is waited for, who came is nobody: of Kafka 3.9.1 the same was seen."""

    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        stays, leaves = (each.member_id for each in await asyncio.gather(at.join("a"), at.join("a")))
        await asyncio.gather(at.sync("a", stays, 1, **{stays: b"x", leaves: b"y"}), at.sync("a", leaves, 1))
        assert at.groups.leave("a", [(leaves, None)]) == (NONE, [NONE])
        coming = asyncio.ensure_future(at.join("a"))
        await asyncio.sleep(0)
        new = next(member for member in at.groups.entry("a").group.members if member != stays)
        at.follow(1)
        assert (await coming).error is NOT_HERE
        await at.lead(1)
        assert (await at.join("a", new)).error is UNKNOWN
        assert await at.commit("a", {T0: 1}, member=stays, generation=1) is NONE
        waiting = [asyncio.ensure_future(at.join("a", member)) for member in (stays, "")]
        await world.sleep(9.99)
        assert not any(each.done() for each in waiting)
        await world.sleep(0.02)
        assert [(each.result().error, each.result().generation) for each in waiting] == [(NONE, 2)] * 2
        assert leaves not in at.groups.entry("a").group.members

    play(scenario)


def test_who_waits_is_told_to_look_elsewhere_when_the_partition_goes_and_when_all_ends() -> None:
    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        one = await at.join("b")
        in_a = asyncio.ensure_future(at.join("a"))
        two = asyncio.ensure_future(at.join("b"))
        await asyncio.sleep(0)
        at.follow(1)
        assert (await in_a).error is NOT_HERE
        assert not two.done()
        timers = [entry.timer for entry in at.groups.entries()]
        assert len(timers) == 1 and timers[0] is not None
        await at.groups.stop()
        assert (await two).error is NOT_HERE and timers[0].cancelled()
        assert list(at.groups.entries()) == [] and at.supervisor.running == []
        for error in (at.beat("b", one.member_id), await at.commit("b", {T0: 1}), at.groups.delete_group("b")):
            assert error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await at.groups.stop()

    play(scenario)


@pytest.mark.parametrize("turns", range(3))
def test_who_goes_away_while_it_waits_keeps_nobody_else_from_its_answer(turns: int) -> None:
    """Its connection closed: its request is cancelled, in the same turn or before."""

    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        gone, stays = (asyncio.ensure_future(at.join("a")) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
        at.follow(1)
        assert (await stays).error is NOT_HERE and gone.cancelled()

    play(scenario)


def test_a_commit_whose_client_goes_away_keeps_its_group_from_nothing() -> None:
    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        assert await at.commit("a", {T0: 1}) is NONE
        at.log.is_slow = True
        gone = asyncio.ensure_future(at.commit("a", {T0: 2, T1: 2}))
        await asyncio.sleep(0.1)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        entry = at.groups.entry("a")
        assert not entry.commits_under_way
        at.groups.delete_offsets(entry, [T0])
        assert at.groups.entry("a") is None, "it was its last one"

    play(scenario)


def a_batch(*offsets: tuple[str, TopicPartition, int | None]) -> bytes:
    pairs = [
        (encode_offset_key(OffsetKey(group, tp)), None if n is None else encode_offset_value(CommittedOffset(offset=n)))
        for group, tp, n in offsets
    ]
    return build_values(pairs, timestamp=1)


def test_while_a_partition_is_read_others_have_their_turn_and_are_told_so() -> None:
    async def scenario(world: World) -> None:
        at = Coordinated(world)
        assert at.groups.error_for("a") is ErrorCode.COORDINATOR_NOT_AVAILABLE, "before its start"
        at.groups.start()
        assert at.groups.error_for("a") is NOT_HERE
        at.log.batches[1] = [a_batch(("a", T0, n)) for n in range(3 * LOAD_BATCHES_PER_TURN)]
        in_one = TopicPartition(GROUP_METADATA_TOPIC, 1)
        at.groups.leadership_changed([in_one, TopicPartition("t", 0)], [TopicPartition("t", 1)])
        (task,) = at.groups.registry.loading.values()
        turns = 0
        while not task.done():
            assert at.groups.is_loading
            assert at.groups.error_for("a") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert at.groups.error_for("b") is NOT_HERE
            assert at.beat("a", "m") is NONE, "it shall not join again for that"
            assert (await at.sync("a", "m", 1)).error is ErrorCode.REBALANCE_IN_PROGRESS
            assert (await at.join("a")).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            at.groups.leadership_changed([in_one], [])
            assert list(at.groups.registry.loading.values()) == [task], "it is read once"
            turns += 1
            await asyncio.sleep(0)
        assert turns == 4 and not at.groups.is_loading
        assert at.offsets("a") == {T0: 3 * LOAD_BATCHES_PER_TURN - 1}
        assert await at.commit("a", {T1: 1}) is NONE
        entry = at.groups.entry("a")
        await at.lead(1)
        assert at.groups.entry("a") is entry, "it is led already"
        at.follow(1)
        at.groups.leadership_changed([in_one], ())
        at.follow(1)
        await world.sleep(1)
        assert (at.groups.error_for("a"), at.groups.entry("a"), at.groups.is_loading) == (NOT_HERE, None, False)
        at.log.unreadable.add(1)
        at.groups.leadership_changed([in_one], ())
        await world.sleep(1)
        assert (at.groups.error_for("a"), at.groups.is_loading) == (NOT_HERE, False)
        assert at.supervisor.failures["group-load"] == 1
        at.log.unreadable.clear()
        await at.lead(1)
        assert at.offsets("a") == {T0: 3 * LOAD_BATCHES_PER_TURN - 1, T1: 1}

    play(scenario)


@pytest.mark.parametrize("turns", range(4))
def test_a_partition_that_is_led_again_is_read_again_whatever_was_being_read(turns: int) -> None:
    async def scenario(world: World) -> None:
        at = Coordinated(world)
        at.groups.start()
        at.log.batches[1] = [a_batch(("a", T0, n)) for n in range(3 * LOAD_BATCHES_PER_TURN)]
        in_one = TopicPartition(GROUP_METADATA_TOPIC, 1)
        at.groups.leadership_changed([in_one], ())
        for _ in range(turns):
            await asyncio.sleep(0)
        at.follow(1)
        at.log.batches[1].append(a_batch(("a", T0, 7)))
        at.groups.leadership_changed([in_one], ())
        (task,) = at.groups.registry.loading.values()
        while not task.done():
            assert at.groups.error_for("a") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (at.groups.error_for("a"), at.offsets("a")) == (None, {T0: 7})
        assert not at.supervisor.failures and not at.groups.is_loading

    play(scenario)


def test_what_a_log_leaves_of_groups() -> None:
    """The last record of each key; what is of no use is left out, and a group of which nothing is left is none."""
    member = StoredMember(
        member_id="m", group_instance_id=None, client_id="c", client_host="h", rebalance_timeout_ms=1,
        session_timeout_ms=10_000, subscription=b"s", assignment=b"x",
    )  # fmt: skip
    stored = StoredGroup(
        protocol_type="consumer", generation=4, protocol="p", leader="m", state_changed_ms=7, members=(member,)
    )
    empty = replace(stored, members=(), protocol_type="", protocol=None, leader=None, generation=5)

    async def scenario(world: World) -> None:
        at = Coordinated(world)
        groups = [("g1", stored), ("g2", stored), ("g2", empty), ("g3", stored), ("g3", None), ("g4", None)]
        at.groups.start(1)
        assert at.groups.partition_of("any") == 0, "there is one partition, whatever the setting says"
        for name, content in groups:
            value = None if content is None else encode_group_value(content)
            at.log.batches[0].append(build_values([(encode_group_key(name), value)], timestamp=1))
        at.log.batches[0] += [
            a_batch(("g1", T0, 1), ("g1", T1, 2), ("g1", T0, 3)),
            a_batch(("g5", T0, 1), ("g5", T0, None), ("g6", T0, 9)),
            build_values([(b"\x00\x09", b"v"), (None, None)], timestamp=1),
            build_values([(encode_group_key("g2"), b"\x00\x63"), (encode_group_key("g7"), b"")], timestamp=1),
        ]
        await at.lead(0)
        found = {entry.group.group_id: entry for entry in at.groups.entries()}
        assert list(found) == ["g1", "g2", "g6"]
        assert [at.offsets(name) for name in found] == [{T0: 3, T1: 2}, {}, {T0: 9}]
        group = found["g2"].group
        assert (group.state, group.generation, group.protocol_type) == (GroupState.EMPTY, 5, None)
        assert (found["g6"].group.state, found["g6"].group.generation) == (GroupState.EMPTY, 0)
        assert found["g1"].group.state is GroupState.STABLE and found["g1"].timer is not None

    play(scenario)


@pytest.mark.parametrize("generation", [0, 1, 2])
def test_a_group_that_had_a_generation_is_deleted_from_its_log_and_another_was_never_there(generation: int) -> None:
    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        assert await at.commit("a", {T0: 1}) is NONE
        at.groups.entry("a").group.generation = generation
        assert at.groups.delete_group("a") is NONE
        keys = [record.key for record in iterate(at.log.batches[1][-1])]
        assert keys == [encode_offset_key(OffsetKey("a", T0)), *[encode_group_key("a")] * (generation > 0)]

    play(scenario)


@pytest.mark.parametrize("rejoins", range(3))
def test_a_deleted_group_leaves_nothing_in_its_log_however_short_it_lived(rejoins: int) -> None:
    """One whose only member left while it was waited for has a first generation without members."""

    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        for _ in range(rejoins):
            at.groups.leave("a", [(await at.member("a"), None)])
            await world.sleep(1)
        joining = asyncio.ensure_future(at.join("a"))
        await asyncio.sleep(0)
        (member,) = at.groups.entry("a").group.members
        assert at.groups.leave("a", [(member, None)]) == (NONE, [NONE])
        await world.sleep(10)
        assert (await joining).error is UNKNOWN
        assert at.log.read(1).groups["a"].generation == 2 * rejoins + 1
        assert at.groups.delete_group("a") is NONE
        assert "a" not in at.log.read(1).groups

    play(scenario)


def test_what_was_answered_is_kept_by_nobody() -> None:
    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        await at.member("a")
        for _ in range(50):
            assert (await at.join("a", "nobody")).error is UNKNOWN
        gc.collect()
        assert sum(isinstance(each, JoinAnswer) for each in gc.get_objects()) < 10

    play(scenario)


# -- retention --------------------------------------------------------------------------------------------------------


def test_what_nobody_uses_goes_after_its_time_and_a_group_with_its_last_offset() -> None:
    """Of a group that had members, all counts from when it became empty; of others each offset from its commit."""

    async def scenario(world: World) -> None:
        minute = {"offsets_retention_minutes": 2, "offsets_retention_check_interval_ms": 10_000}
        at = await Coordinated(world, **minute).start()
        assert await at.commit("a", {T0: 1}) is NONE
        subscribed = (("range", b"\x00\x01\x00\x00\x00\x01\x00\x01t"),)
        kept = await at.member("b", session_timeout_ms=1_000_000, protocols=subscribed)
        left = await at.member("c")
        for group, member in (("b", kept), ("c", left)):
            assert await at.commit(group, {T0: 1}, member=member, generation=1) is NONE
        await world.sleep(60)
        assert await at.commit("a", {T1: 2}) is NONE
        assert at.groups.entry("c").group.state is GroupState.EMPTY, "its member has gone"
        await world.sleep(67)
        assert at.offsets("a") == at.logged("a") == {T1: 2}, "that is two minutes, and ten seconds more at most"
        assert at.offsets("c") == {T0: 1}, "it has been empty for less"
        at.log.is_slow = True
        committing = asyncio.ensure_future(at.commit("a", {T0: 3}))
        await world.sleep(73)
        assert at.offsets("a") == {} and at.logged("a") == {T0: 3}, "that is being committed keeps the group"
        at.log.answer()
        assert await committing is NONE and at.offsets("a") == {T0: 3}
        assert at.offsets("c") is None and at.logged("c") == {} and "c" not in at.log.read(1).groups
        assert at.offsets("b") == {T0: 1} and at.groups.entry("b").group.state is GroupState.STABLE
        await world.sleep(130)
        assert at.offsets("a") is None and at.logged("a") == {}

    play(scenario)


@pytest.mark.parametrize("jump_ms", [-3_600_000, 0, 3_600_000])
def test_retention_counts_from_the_time_of_day_when_the_last_member_left(jump_ms: int) -> None:
    """A machine that slept, or whose clock is set, has another time of day than the sessions, which nobody sets; what
    is written is read by other brokers. Source: Kafka 3.9 `GroupMetadata.transitionTo`, which asks the time of day."""

    async def scenario(world: World) -> None:
        at = await Coordinated(world, offsets_retention_minutes=1, offsets_retention_check_interval_ms=10_000).start()
        member = await at.member("a")
        world.clock.skew_ms += jump_ms
        assert await at.commit("a", {T0: 1}, member=member, generation=1) is NONE
        assert at.groups.leave("a", [(member, None)]) == (NONE, [NONE])
        await asyncio.sleep(0)
        assert at.log.read(1).groups["a"].state_changed_ms == world.clock.now_ms()
        await world.sleep(55)
        assert at.offsets("a") == {T0: 1}
        await world.sleep(15)
        assert at.offsets("a") is None

    play(scenario)


def test_retention_is_counted_and_looked_at_to_the_millisecond() -> None:
    async def scenario(world: World) -> None:
        at = await Coordinated(world, offsets_retention_minutes=1, offsets_retention_check_interval_ms=7_000).start()
        for wait_s, group in ((2.999, "a"), (0.001, "b"), (0.001, "c")):
            await world.sleep(wait_s)
            assert await at.commit(group, {T0: 1}) is NONE
        await world.sleep(7 * 9 - 3.002)
        assert [entry.group.group_id for entry in at.groups.entries()] == ["a", "b", "c"], "nobody has looked"
        await world.sleep(0.002)
        assert [entry.group.group_id for entry in at.groups.entries()] == ["c"], "a minute, and a bit less"

    play(scenario)


def test_what_is_committed_while_its_last_commit_grows_too_old_stays() -> None:
    """Source: Kafka 3.9 `GroupMetadata.removeExpiredOffsets`, which passes over what is being committed."""

    async def scenario(world: World) -> None:
        at = await Coordinated(world, offsets_retention_minutes=1, offsets_retention_check_interval_ms=7_000).start()
        assert await at.commit("a", {T0: 1, T1: 1}) is NONE
        await world.sleep(62)
        at.log.is_slow = True
        committing = asyncio.ensure_future(at.commit("a", {T0: 2}))
        await world.sleep(2)
        assert at.offsets("a") == {T0: 1}
        at.log.answer()
        assert await committing is NONE and at.offsets("a") == at.logged("a") == {T0: 2}

    play(scenario)


def test_a_group_without_offsets_goes_with_any_topic_and_one_with_members_does_not() -> None:
    """Source: Kafka 3.9 `GroupCoordinator.handleDeletedPartitions`, which looks at all groups."""

    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        member = await at.member("a")
        asked = await at.join("b", needs_known_member_id=True)
        assert await at.commit("c", {T0: 1}) is NONE
        at.groups.partitions_deleted([T1])
        assert [entry.group.group_id for entry in at.groups.entries()] == ["a", "c"]
        assert (await at.join("b", asked.member_id)).error is UNKNOWN
        assert at.groups.leave("a", [(member, None)]) == (NONE, [NONE])
        at.groups.partitions_deleted([])
        assert at.groups.entry("a") is not None
        at.groups.partitions_deleted([T1])
        assert [entry.group.group_id for entry in at.groups.entries()] == ["c"] and at.log.read(1).groups == {}

    play(scenario)
