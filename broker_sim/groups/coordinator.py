"""The group coordinator of one broker: gives the pure groups time, waiting connections and their log.

It owns the groups of the `__consumer_offsets` partitions that this broker leads, loads them when it becomes leader and
lets go of them when it no longer is. Source: Kafka 3.9 `GroupCoordinator`; spec clients.md §7, §8.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from broker_sim.config import BrokerSettings
from broker_sim.groups.group import Group
from broker_sim.groups.log import (
    COMMIT_ERRORS,
    GROUP_STORE_ERRORS,
    GroupLog,
    Pairs,
    Replicas,
    group_pairs,
)
from broker_sim.groups.records import (
    CommittedOffset,
    OffsetKey,
    RecordError,
    encode_group_key,
    encode_offset_key,
    encode_offset_value,
)
from broker_sim.groups.registry import GroupEntry, GroupRegistry, Offsets, let_others_run
from broker_sim.groups.retention import expired_offsets, may_die
from broker_sim.groups.values import Effect, GroupSettings, GroupState, Join, JoinAnswer, Reply, Store, Sync, SyncAnswer
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.types import TopicPartition
from controller.world.ports import Clock
from controller.world.steady_clock import SteadyClock
from controller.world.supervisor import Supervisor
from controller.world.tasks import Tasks


class GroupCoordinator:
    """All groups that this broker coordinates."""

    def __init__(
        self,
        settings: BrokerSettings,
        replicas: Replicas,
        *,
        clock: Clock,
        chance: random.Random,
        supervisor: Supervisor,
        log: Any,
        make_group: Callable[[str, GroupSettings], Group] = Group,
        between_batches: Callable[[int], Awaitable[None]] = let_others_run,
    ) -> None:
        self._settings, self._clock, self._chance, self._log = settings, clock, chance, log
        #: for sessions and rebalances: no clock that is set ends them, or lengthens them
        self._steady = SteadyClock(clock)
        self._supervisor = supervisor
        self._group_log = GroupLog(replicas, clock, timeout_ms=settings.offsets_commit_timeout_ms)
        self.registry = GroupRegistry(
            settings,
            self._group_log,
            clock=self._steady,
            supervisor=supervisor,
            log=log,
            make_group=make_group,
            between_batches=between_batches,
            on_loaded=self._reschedule,
            on_dropped=self._dropped,
        )
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tickets = itertools.count(1)
        self._tasks = Tasks()

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self, partition_count: int | None = None) -> None:
        """Serves from now on, and drops expired offsets from time to time. `partition_count`: of
        `__consumer_offsets`, where it is there already; else it is what the setting says."""
        if partition_count:
            self.registry.partition_count = partition_count
        self.registry.is_active = True
        self._tasks.add(self._supervisor.keep("offsets-retention", self._expire_offsets))

    async def stop(self) -> None:
        """Ends timers and tasks; requests that wait are told to look elsewhere. Idempotent."""
        await self.registry.close()
        await self._tasks.cancel()

    def leadership_changed(
        self, became_leader: Collection[TopicPartition], became_follower: Collection[TopicPartition]
    ) -> None:
        """See `GroupRegistry.leadership_changed`."""
        self.registry.leadership_changed(became_leader, became_follower)

    def _dropped(self, entry: GroupEntry) -> None:
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None
        for effect in entry.group.die():
            if isinstance(effect, Reply):
                self._reply(effect)

    # -- which group is where ------------------------------------------------------------------------------------

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that the group lives in."""
        return self.registry.partition_of(group_id)

    def error_for(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode | None:
        """See `GroupRegistry.error_for`."""
        return self.registry.error_for(group_id, may_be_empty=may_be_empty)

    def entry(self, group_id: str) -> GroupEntry | None:
        """The group, if this broker has it."""
        return self.registry.entry(group_id)

    def entries(self) -> Iterable[GroupEntry]:
        """All groups of this broker, by id."""
        return self.registry.entries()

    @property
    def is_loading(self) -> bool:
        """Whether some partition is still being read."""
        return self.registry.is_loading

    # -- membership ----------------------------------------------------------------------------------------------

    def new_member_id(self, prefix: str) -> str:
        """`<client id or instance id>-<uuid>`."""
        return f"{prefix}-{uuid.UUID(int=self._chance.getrandbits(128), version=4)}"

    async def join(self, group_id: str, request: Join) -> JoinAnswer:
        """Waits for the rebalance to complete."""
        error = self.error_for(group_id)
        settings = self._settings
        low, high = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
        if error is None and not low <= request.session_timeout_ms <= high:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if error is None and request.member_id and self.entry(group_id) is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not None:
            return JoinAnswer(error=error, member_id=request.member_id)
        entry = self.registry.make(group_id)
        ticket, answer = self._park()
        self._perform(entry, entry.group.join(request, ticket, self._now_ms(entry)))
        joined: JoinAnswer = await self._answer(ticket, answer)
        return joined

    async def sync(self, group_id: str, request: Sync) -> SyncAnswer:
        """Waits for the leader's assignments, and for them to be stored."""
        error = self.error_for(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            error = ErrorCode.REBALANCE_IN_PROGRESS  # so that clients join again once it is loaded
        entry = self.entry(group_id)
        if error is not None or entry is None:
            return SyncAnswer(error=error or ErrorCode.UNKNOWN_MEMBER_ID)
        ticket, answer = self._park()
        self._perform(entry, entry.group.sync(request, ticket, self._now_ms(entry)))
        synced: SyncAnswer = await self._answer(ticket, answer)
        return synced

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """Keeps a member alive."""
        error = self.error_for(group_id)
        if error is not None:
            return ErrorCode.NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error
        entry = self.entry(group_id)
        if entry is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        result = entry.group.heartbeat(member_id, group_instance_id, generation, self._now_ms(entry))
        self._reschedule(entry)
        return result

    def leave(self, group_id: str, members: Iterable[tuple[str, str | None]]) -> tuple[ErrorCode, list[ErrorCode]]:
        """(error of the group, error of each member)."""
        error = self.error_for(group_id)
        if error is not None:
            return error, []
        entry = self.entry(group_id)
        results = []
        for member_id, group_instance_id in members:
            if entry is None:
                results.append(ErrorCode.UNKNOWN_MEMBER_ID)
                continue
            result, effects = entry.group.leave(member_id, group_instance_id, self._now_ms(entry))
            self._perform(entry, effects)
            results.append(result)
        return ErrorCode.NONE, results

    # -- offsets -------------------------------------------------------------------------------------------------

    async def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
    ) -> ErrorCode:
        """Stores offsets; they count once all in-sync replicas have them."""
        error = self.error_for(group_id, may_be_empty=True)
        if error is not None:
            return error
        if self.entry(group_id) is None and generation >= 0:
            return ErrorCode.ILLEGAL_GENERATION
        entry = self.registry.make(group_id)
        error = entry.group.commit_error(member_id, group_instance_id, generation, self._now_ms(entry))
        self._reschedule(entry)
        if error is not ErrorCode.NONE or not offsets:
            return error
        try:
            pairs = [(encode_offset_key(OffsetKey(group_id, tp)), encode_offset_value(o)) for tp, o in offsets.items()]
        except RecordError:  # Kafka's coordinator throws
            return ErrorCode.UNKNOWN_SERVER_ERROR
        entry.commits_under_way.append(staged := dict(offsets))
        try:
            error = await self._append(group_id, pairs)
        finally:
            older, later = _around(staged, entry.commits_under_way)
            entry.commits_under_way = older + later
        if error is ErrorCode.NONE:
            entry.offsets.update(staged)
            for tp, commit in itertools.product(staged, older):
                commit.pop(tp, None)  # what is older and ends later counts no more
        self._undo_commit(entry, offsets.keys() - staged.keys())
        return COMMIT_ERRORS.get(error, error)

    def _undo_commit(self, entry: GroupEntry, deleted: Collection[TopicPartition]) -> None:
        """These were deleted while they were being committed; what a slow disk took after their tombstones has others.
        Of a group that has moved away or been read again the log says what there is."""
        group_id = entry.group.group_id
        now = self.entry(group_id)
        if now is entry or entry.is_deleted:
            again = now.offsets.keys() | set().union(*now.commits_under_way) if now is not None else set()
            self._append_tombstones(group_id, set(deleted) - again)

    def delete_offsets(self, entry: GroupEntry, partitions: Collection[TopicPartition]) -> None:
        """Removes committed offsets of a group, and those that it is committing. An empty group dies with its last one.

        They are gone whatever becomes of their tombstones, which wait for nobody. Source: Kafka 3.9
        `GroupMetadataManager.cleanupGroupMetadata`, `GroupMetadata.removeOffsets`.
        """
        for commit in entry.commits_under_way:
            for tp in commit.keys() & partitions:
                del commit[tp]
        stored_partitions = entry.offsets.keys() & partitions
        if partitions and len(stored_partitions) == len(entry.offsets) and may_die(entry):
            self._delete(entry)
            return
        for tp in stored_partitions:
            del entry.offsets[tp]
        self._append_tombstones(entry.group.group_id, stored_partitions)

    def partitions_deleted(self, partitions: Collection[TopicPartition]) -> None:
        """Topics are gone: so are the offsets committed for them."""
        for entry in self.entries():
            self.delete_offsets(entry, partitions)

    def delete_group(self, group_id: str) -> ErrorCode:
        """Deletes an empty group with its offsets."""
        error = self.error_for(group_id, may_be_empty=True)
        entry = self.entry(group_id)
        if error is not None or entry is None:
            return error or ErrorCode.GROUP_ID_NOT_FOUND
        if entry.group.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        self._delete(entry)
        return ErrorCode.NONE

    def _delete(self, entry: GroupEntry) -> None:
        """The group is gone whatever becomes of its tombstones, and with it what it is committing."""
        group_id, generation = entry.group.group_id, entry.group.generation
        entry.is_deleted = True
        for commit in entry.commits_under_way:
            commit.clear()
        self.registry.remove(group_id)
        self._append_tombstones(group_id, entry.offsets.keys(), [encode_group_key(group_id)] if generation > 0 else [])

    def _append_tombstones(self, group_id: str, offsets: Iterable[TopicPartition], more: Sequence[bytes] = ()) -> None:
        keys = [*(encode_offset_key(OffsetKey(group_id, tp)) for tp in sorted(offsets)), *more]
        if keys:
            error = self._group_log.append_own(self.partition_of(group_id), [(key, None) for key in keys])
            self._checked(group_id, error, tombstones=len(keys))

    async def _append(self, group_id: str, pairs: Pairs) -> ErrorCode:
        """Returns the log's error. What timed out, or what too few replicas have, is in the log all the same."""
        return self._checked(group_id, await self._group_log.append(self.partition_of(group_id), pairs))

    def _checked(self, group_id: str, error: ErrorCode, *, tombstones: int = 0) -> ErrorCode:
        if error is not ErrorCode.NONE:
            self._log.info(ev.GROUP_WRITE_FAILED, group_id=group_id, error=error.name, tombstones=tombstones)
        return error

    async def _expire_offsets(self) -> None:
        """Every `offsets.retention.check.interval.ms`: drops what nobody has used for `offsets.retention.minutes`, and
        empty groups that have nothing left."""
        while True:
            await asyncio.sleep(self._settings.offsets_retention_check_interval_ms / 1000)
            now_ms = self._clock.now_ms()
            before_ms = now_ms - self._settings.offsets_retention_minutes * 60_000
            for entry in self.entries():
                expired = expired_offsets(entry, before_ms, now_ms)
                if may_die(entry) and expired == entry.offsets.keys():
                    self._delete(entry)
                elif expired:
                    self.delete_offsets(entry, expired)

    # -- effects and time ----------------------------------------------------------------------------------------

    def _park(self) -> tuple[int, asyncio.Future[Any]]:
        ticket = next(self._tickets)
        self._waiting[ticket] = future = asyncio.get_running_loop().create_future()
        return ticket, future

    async def _answer(self, ticket: int, answer: asyncio.Future[Any]) -> Any:
        try:
            return await answer
        finally:
            self._waiting.pop(ticket, None)

    def _reply(self, effect: Reply) -> None:
        future = self._waiting.get(effect.ticket)
        if future is not None and not future.done():
            future.set_result(effect.answer)

    def _now_ms(self, entry: GroupEntry) -> int:
        """The time of the group's sessions. It learns what time of day that is: its log and retention count by that."""
        now_ms = self._steady.now_ms()
        entry.group.ahead_ms = self._clock.now_ms() - now_ms
        return now_ms

    def _perform(self, entry: GroupEntry, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                self._reply(effect)
            else:
                pairs = group_pairs(entry.group, effect.assignments)  # now: it may have moved on when they are written
                self._tasks.add(self._supervisor.once("group-store", partial(self._store, entry, effect, pairs)))
        self._reschedule(entry)

    async def _store(self, entry: GroupEntry, store: Store, pairs: Pairs | None) -> None:
        group = entry.group
        error = await self._group_log.append_group(self.partition_of(group.group_id), pairs)
        self._checked(group.group_id, error)
        self._log.info(
            ev.GROUP_REBALANCED,
            group_id=group.group_id,
            generation=store.generation,
            members=len(store.assignments or ()),
            error=error.name,
        )
        self._perform(entry, group.stored(store, GROUP_STORE_ERRORS.get(error, error), self._now_ms(entry)))
        now = self.entry(group.group_id)
        if entry.is_deleted and (now is None or now.group.generation == 0):  # it came after its tombstones
            self._append_tombstones(group.group_id, (), [encode_group_key(group.group_id)])

    def _reschedule(self, entry: GroupEntry) -> None:
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None
        deadline_ms = entry.group.next_deadline_ms
        if deadline_ms is not None and entry.group.state is not GroupState.DEAD:
            delay_ms = max(deadline_ms - self._steady.now_ms(), 1)
            entry.timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._tick, entry)

    def _tick(self, entry: GroupEntry) -> None:
        self._perform(entry, entry.group.tick(self._now_ms(entry)))


def _around(commit: Offsets, commits: Sequence[Offsets]) -> tuple[list[Offsets], list[Offsets]]:
    """Those before it, and those after it."""
    at = next(n for n, each in enumerate(commits) if each is commit)
    return list(commits[:at]), list(commits[at + 1 :])
