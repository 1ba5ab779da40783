"""The coordinator of one broker: what it tells of offsets is what its log says, whatever is under way meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from broker_sim.groups.values import GroupState, Sync
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.types import TopicPartition
from controller.world.simulated.world import World, run_world
from tests.worlds.group_logs import NOT_WRITTEN, Coordinated

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ALL = (T0, T1, U0)
NONE, TIMED_OUT = ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT


class Model:
    """What one group has committed as clients are told, and as its log says, by the rules of Kafka."""

    def __init__(self) -> None:
        self.told: dict[TopicPartition, int] = {}
        self.logged: dict[TopicPartition, int] = {}
        #: commits that wait, oldest first: what each still counts for
        self.under_way: list[dict[TopicPartition, int]] = []
        self.is_there = False

    def begin(self, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        self.logged |= offsets
        self.is_there = True
        self.under_way.append(staged := dict(offsets))
        return staged

    def end(self, staged: dict[TopicPartition, int], asked: dict[TopicPartition, int], error: ErrorCode) -> None:
        at = next((n for n, each in enumerate(self.under_way) if each is staged), 0)
        older = self.under_way[:at]
        self.under_way = [each for each in self.under_way if each is not staged]
        if error is NONE:
            self.told |= staged
            for each in older:
                for tp in staged.keys() & each.keys():
                    del each[tp]
        for tp in asked.keys() - staged.keys() - self.told.keys():
            if not any(tp in each for each in self.under_way):
                self.logged.pop(tp, None)

    def delete(self, partitions: set[TopicPartition]) -> None:
        for staged in self.under_way:
            for tp in staged.keys() & partitions:
                del staged[tp]
        is_last = bool(partitions) and self.told.keys() <= partitions and not self.under_way
        for tp in self.told.keys() & partitions:
            del self.told[tp], self.logged[tp]
        if is_last:
            self.is_there = False

    def drop(self) -> None:
        """What is being committed counts no more, and is undone when it ends."""
        for tp in self.told:
            del self.logged[tp]
        for staged in self.under_way:
            staged.clear()
        self.told, self.is_there, self.under_way = {}, False, []

    def load(self) -> None:
        self.told, self.is_there = dict(self.logged), bool(self.logged)


GROUPS = ("a", "b", "c")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["commit", "commit", "begin", "begin", "end", "end", "late", "offsets", "topic", "group", "move"]
        ),
        st.sampled_from(GROUPS),
        st.sets(st.sampled_from(ALL), min_size=1),
    ),
    max_size=25,
)


@settings(max_examples=120, deadline=None)
@given(STEPS)
def test_offsets_are_what_was_committed_and_not_deleted_and_so_is_the_log(
    steps: list[tuple[str, str, set[Any]]],
) -> None:
    """Commits end in any order, some too late; offsets, topics and groups are deleted while they are under way."""

    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        models = {group: Model() for group in GROUPS}
        waiting: list[tuple[asyncio.Task[ErrorCode], str, Any, dict[TopicPartition, int]]] = []
        for number, (step, group, partitions) in enumerate(steps):
            model, entry, asked = models[group], at.groups.entry(group), dict.fromkeys(partitions, number)
            at.log.is_slow = step == "begin"
            match step:
                case "commit":
                    staged = model.begin(asked)
                    assert await at.commit(group, asked) is NONE
                    model.end(staged, asked, NONE)
                case "begin":
                    task = asyncio.ensure_future(at.commit(group, asked))
                    await asyncio.sleep(0)
                    waiting.append((task, group, model.begin(asked), asked))
                case "end" | "late" if waiting:
                    which, error = number % len(waiting), TIMED_OUT if step == "late" else NONE
                    task, of, staged, asked = waiting.pop(which)
                    at.log.answer(error, which=which)
                    assert await task is error
                    models[of].end(staged, asked, error)
                case "offsets" if entry is not None:
                    at.groups.delete_offsets(entry, partitions)
                    model.delete(partitions)
                case "topic":
                    at.groups.partitions_deleted(partitions)
                    for each in models.values():
                        each.delete(partitions)
                case "group":
                    expected = NONE if model.is_there else ErrorCode.GROUP_ID_NOT_FOUND
                    assert at.groups.delete_group(group) is expected
                    model.drop()
                case "move" if not waiting:
                    at.follow(0, 1)
                    assert at.groups.entry(group) is None
                    await at.lead(0, 1)
                    for each in models.values():
                        each.load()
            for name, each in models.items():
                assert at.offsets(name) == (each.told if each.is_there else None), (number, name)
                assert at.logged(name) == each.logged, (number, name)
        for future in at.log.waiting:
            future.set_result(NONE)
        await at.groups.stop()

    run_world(1, scenario)


def test_a_commit_after_a_deletion_is_not_deleted_by_one_before_it() -> None:
    """The first commit must not outlive its topic, and has nothing to say of what was committed after that."""

    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        at.log.is_slow = True
        before = asyncio.ensure_future(at.commit("a", {T0: 1, T1: 1}))
        await asyncio.sleep(0)
        at.groups.partitions_deleted([T0, T1])
        after = asyncio.ensure_future(at.commit("a", {T0: 2}))
        await asyncio.sleep(0)
        at.log.answer()
        assert await before is NONE
        at.log.answer()
        assert await after is NONE
        assert (at.offsets("a"), at.logged("a")) == ({T0: 2}, {T0: 2})

    run_world(1, scenario)


def test_of_two_commits_the_later_counts_whichever_ends_first() -> None:
    """Source: Kafka 3.9 `GroupMetadata.onOffsetCommitAppend`: what is older by its place in the log is left out."""

    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        at.log.is_slow = True
        first = asyncio.ensure_future(at.commit("a", {T0: 1, T1: 1}))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(at.commit("a", {T0: 2, U0: 2}))
        await asyncio.sleep(0)
        at.log.answer(which=1)
        assert await second is NONE and at.offsets("a") == {T0: 2, U0: 2}
        at.log.answer()
        assert await first is NONE
        assert at.offsets("a") == at.logged("a") == {T0: 2, T1: 1, U0: 2}

    run_world(1, scenario)


#: error of the log -> that of a commit, that of a SyncGroup whose assignments were to be written
ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (ErrorCode.COORDINATOR_NOT_AVAILABLE,) * 2,
    ErrorCode.NOT_ENOUGH_REPLICAS: (ErrorCode.COORDINATOR_NOT_AVAILABLE,) * 2,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (ErrorCode.COORDINATOR_NOT_AVAILABLE,) * 2,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: (ErrorCode.NOT_COORDINATOR,) * 2,
    ErrorCode.KAFKA_STORAGE_ERROR: (ErrorCode.NOT_COORDINATOR,) * 2,
    ErrorCode.MESSAGE_TOO_LARGE: (ErrorCode.INVALID_COMMIT_OFFSET_SIZE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ErrorCode.RECORD_LIST_TOO_LARGE: (ErrorCode.INVALID_COMMIT_OFFSET_SIZE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ErrorCode.INVALID_FETCH_SIZE: (ErrorCode.INVALID_COMMIT_OFFSET_SIZE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ErrorCode.REQUEST_TIMED_OUT: (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
    ErrorCode.UNKNOWN_SERVER_ERROR: (ErrorCode.UNKNOWN_SERVER_ERROR,) * 2,
}


@pytest.mark.parametrize("error", ERRORS, ids=[each.name for each in ERRORS])
def test_what_cannot_be_written_is_told_in_other_words_and_does_not_count(error: ErrorCode) -> None:
    async def scenario(world: World) -> None:
        at = await Coordinated(world, offsets_commit_timeout_ms=77).start()
        assert await at.commit("a", {T0: 1}) is NONE
        at.log.error = error
        with capture_logs() as lines:
            assert await at.commit("a", {T0: 2, T1: 2}) is ERRORS[error][0]
        failed = [line for line in lines if line["event"] == ev.GROUP_WRITE_FAILED]
        assert [(line["group_id"], line["error"], line["tombstones"]) for line in failed] == [("a", error.name, 0)]
        assert at.offsets("a") == {T0: 1}
        assert at.logged("a") == ({T0: 1} if error in NOT_WRITTEN else {T0: 2, T1: 2})
        assert at.groups.entry("a").commits_under_way == []
        assert await at.commit("b", {}) is NONE, "nothing is written"
        at.log.error = NONE
        joined = await at.join("b")
        at.log.error = error
        synced = await at.sync("b", joined.member_id, 1, **{joined.member_id: b"x"})
        assert (synced.error, synced.assignment) == (ERRORS[error][1], b"")
        assert at.groups.entry("b").group.state is GroupState.PREPARING_REBALANCE
        assert at.log.timeouts == [77, 77, 77]
        with capture_logs() as lines:
            at.groups.delete_offsets(at.groups.entry("a"), [T0])
        assert at.groups.entry("a") is None, "it is gone whatever becomes of its tombstones"
        assert [line["tombstones"] for line in lines if line["event"] == ev.GROUP_WRITE_FAILED] == [1]

    run_world(1, scenario)


@pytest.mark.parametrize("size", [32_767, 32_768])
def test_names_that_cannot_be_written_are_told_and_nobody_waits_for_them(size: int) -> None:
    """Requests with compact texts carry longer ones than the records of groups. Source: Kafka 3.9
    `GroupMetadataManager.storeGroup`, which throws before anything is written."""

    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        error = NONE if size <= 32_767 else ErrorCode.UNKNOWN_SERVER_ERROR
        name = "x" * size
        assert await at.commit(name, {T0: 1}) is error
        joined = await at.join("a", protocols=((name, b""),))
        assert joined.error is NONE
        synced = await asyncio.wait_for(at.sync("a", joined.member_id, 1), timeout=1)
        assert synced.error is error
        assert at.groups.entry("a").group.state is (
            GroupState.STABLE if error is NONE else GroupState.PREPARING_REBALANCE
        )
        assert not at.supervisor.failures

    run_world(1, scenario)


def test_what_is_deleted_has_its_tombstones_and_nothing_else() -> None:
    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        member = await at.member("a")
        assert await at.commit("a", {T0: 1, T1: 1, U0: 1}, member=member, generation=1) is NONE
        written = len(at.log.batches[1])
        at.groups.partitions_deleted([TopicPartition("v", 0)])
        assert len(at.log.batches[1]) == written, "nobody has it"
        at.groups.partitions_deleted([T1, TopicPartition("v", 0)])
        assert at.offsets("a") == at.logged("a") == {T0: 1, U0: 1}
        assert len(at.log.batches[1]) == written + 1
        assert at.groups.delete_group("a") is ErrorCode.NON_EMPTY_GROUP
        at.groups.delete_offsets(at.groups.entry("a"), list(ALL))
        assert at.offsets("a") == at.logged("a") == {}, "its members keep it"
        assert at.groups.leave("a", [(member, None)]) == (NONE, [NONE])
        assert at.groups.entry("a").group.state is GroupState.EMPTY
        assert at.groups.delete_group("a") is NONE and at.groups.entry("a") is None
        assert at.groups.delete_group("a") is ErrorCode.GROUP_ID_NOT_FOUND
        assert at.groups.delete_group("") is ErrorCode.GROUP_ID_NOT_FOUND
        assert at.log.read(1).groups == {}
        asked = asyncio.ensure_future(at.join("b", needs_known_member_id=True))
        told = await asked
        assert told.error is ErrorCode.MEMBER_ID_REQUIRED
        assert at.groups.delete_group("b") is NONE, "who was only told its id keeps no group"
        assert (await at.join("b", told.member_id)).error is ErrorCode.UNKNOWN_MEMBER_ID

    run_world(1, scenario)


def test_who_commits_to_a_group_that_is_not_there() -> None:
    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        assert await at.commit("a", {T0: 1}, generation=0) is ErrorCode.ILLEGAL_GENERATION
        assert await at.commit("a", {T0: 1}, generation=3) is ErrorCode.ILLEGAL_GENERATION
        assert at.groups.entry("a") is None
        assert await at.commit("", {T0: 1}) is NONE, "the empty name is a group's, for offsets"
        member = await at.member("a")
        for wrong, code in ((2, ErrorCode.ILLEGAL_GENERATION), (-1, ErrorCode.ILLEGAL_GENERATION)):
            assert await at.commit("a", {T0: 1}, member=member, generation=wrong) is code
        assert await at.commit("a", {T0: 1}, member="z", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert at.offsets("a") == {}
        at.follow(1)
        assert await at.commit("a", {T0: 1}) is ErrorCode.NOT_COORDINATOR
        assert at.groups.delete_group("a") is ErrorCode.NOT_COORDINATOR

    run_world(1, scenario)


@pytest.mark.parametrize("what", ["the last member left", "an offset is committed"])
def test_what_a_busy_disk_takes_after_the_tombstones_of_its_group_is_undone(what: str) -> None:
    """Tombstones wait for nobody; what was to be written before them comes later, or is not written any more."""

    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        assert await at.commit("a", {T0: 1}) is NONE
        member = await at.member("a")
        if what == "an offset is committed":
            assert at.groups.leave("a", [(member, None)]) == (NONE, [NONE])
            await world.sleep(0.1)
        at.log.disk.clear()
        if what == "an offset is committed":
            asked: Any = asyncio.ensure_future(at.commit("a", {T0: 2, T1: 2}))
        else:
            asked = asyncio.sleep(0, at.groups.leave("a", [(member, None)])[0])
        await world.sleep(0.1)
        assert at.groups.delete_group("a") is NONE
        later = asyncio.ensure_future(at.commit("a", {T1: 3}))
        await world.sleep(0.1)
        at.log.disk.set()
        assert (await asked, await later) == (NONE, NONE)
        await world.sleep(0.1)
        assert at.offsets("a") == at.logged("a") == {T1: 3} and at.log.read(1).groups == {}

    run_world(1, scenario)


def test_a_group_that_is_deleted_in_the_turn_in_which_it_became_empty_leaves_nothing_in_its_log() -> None:
    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        member = await at.member("a")
        assert at.groups.leave("a", [(member, None)]) == (NONE, [NONE])
        assert at.groups.delete_group("a") is NONE
        await world.sleep(1)
        assert at.log.read(1).groups == {} and not at.supervisor.failures

    run_world(1, scenario)


def test_what_is_stored_is_what_the_group_was_when_it_asked_for_it() -> None:
    """A coordinator that ends then must not leave a generation with the assignments of the one before: its members
    would go on with these. Source: Kafka 3.9 `GroupCoordinator.doSyncGroup`, which builds the record under the group's
    lock."""

    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        leader, other = [answer.member_id for answer in await asyncio.gather(at.join("a"), at.join("a"))]
        assigned = Sync(member_id=leader, generation=1, assignments={leader: b"half", other: b"rest"})
        requests: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(at.groups.sync("a", assigned)),
            asyncio.ensure_future(at.join("a", leader, protocols=(("range", b"other"),))),
        ]
        asyncio.get_running_loop().call_soon(at.groups.leave, "a", [(other, None)])  # all of it in one turn
        await world.sleep(0.1)
        assert [(await request).error for request in requests] == [ErrorCode.REBALANCE_IN_PROGRESS, NONE]
        assert at.groups.entry("a").group.generation == 2
        stored = at.log.read(1).groups["a"]
        found = (stored.generation, {each.member_id: each.assignment for each in stored.members})
        assert found == (1, {leader: b"half", other: b"rest"})

    run_world(1, scenario)


def test_of_a_group_that_has_moved_away_nothing_is_written_any_more() -> None:
    """Its next coordinator says what its log has, and may have the same offset committed again."""

    async def scenario(world: World) -> None:
        at = await Coordinated(world).start()
        at.log.is_slow = True
        committing = asyncio.ensure_future(at.commit("a", {T0: 1}))
        await asyncio.sleep(0)
        at.groups.partitions_deleted([T0])
        at.follow(1)
        written = list(at.log.batches[1])
        at.log.answer()
        assert await committing is NONE and at.log.batches[1] == written
        assert at.groups.entry("a") is None, "it is no group of this broker any more"

    run_world(1, scenario)
