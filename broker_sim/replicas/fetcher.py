"""Followers: one task per leader and fetcher id, which truncates, fetches and appends for its partitions, for ever.

Source: spec broker.md §13, §15; Kafka 3.9 `AbstractFetcherManager`, `AbstractFetcherThread`, `ReplicaFetcherThread`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from broker_sim.log.errors import StorageFailure
from broker_sim.log.log import UnexpectedOffset
from broker_sim.replicas.fetch_client import FetchClient
from broker_sim.replicas.fetch_progress import FetchProgress
from broker_sim.replicas.partition import Partition
from broker_sim.replicas.table import ReplicaTable
from broker_sim.replicas.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, EpochEnd, FetchPartition, FetchResult
from controller.rules.hashing import java_hash, positive
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.types import BrokerId, TopicPartition
from controller.world.ports import Network


def fetcher_id(topic_partition: TopicPartition, num_replica_fetchers: int) -> int:
    """Which fetcher of a leader serves a partition. Source: `AbstractFetcherManager.getFetcherId`."""
    hashed = 31 * java_hash(topic_partition.topic) + topic_partition.partition
    return positive(hashed) % num_replica_fetchers


#: Kafka's `replica.fetch.wait.max.ms`: a follower waits no longer while its leader may have something to tell. Where
#: the setting allows more, it waits twice as long each time that there was nothing new, and at once as long as it may
#: when nothing is left to learn: else most of what many brokers ask while they start tells nothing (docs/scale.md).
FIRST_WAIT_MS: Final = 500
#: A fetch that may wait for longer than that is given up so long after the follower was given another partition.
GIVE_UP_S: Final = 3.0


class ReplicaFetcher:
    """All partitions that one fetcher follows from one leader. `add` and `remove` take effect at once."""

    def __init__(
        self, table: ReplicaTable, client: FetchClient, is_paused: Callable[[TopicPartition], bool], leader: BrokerId
    ) -> None:
        self._table, self._client, self._is_paused, self._leader = table, client, is_paused, leader
        self._states: dict[TopicPartition, FetchProgress] = {}
        self._changed = asyncio.Event()
        self._wait_max_ms = table.settings.replica_fetch_wait_max_ms
        self._wait_ms = min(FIRST_WAIT_MS, self._wait_max_ms)
        self._is_given_up = False
        self._impatience: asyncio.TimerHandle | None = None
        self._backoff_s = table.settings.replica_fetch_backoff_ms / 1000
        self._task = table.supervisor.keep(f"fetcher-{leader}", self._run)

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._states

    def add(self, partition: Partition, *, epoch: int, offset: int) -> None:
        """Follows a partition from `offset` (the high watermark) on, after truncation."""
        self._states[partition.topic_partition] = FetchProgress(partition=partition, epoch=epoch, offset=offset)
        self._changed.set()
        if self._wait_ms > FIRST_WAIT_MS and self._impatience is None:
            # The fetch under way does not have it. A leader that leads it answers that fetch (see `first_fetches`); one
            # that does not do so may let it wait for very long.
            self._impatience = asyncio.get_running_loop().call_later(GIVE_UP_S, self._give_up)

    def _give_up(self) -> None:
        self._impatience, self._is_given_up = None, True
        self._client.close()

    def _answered(self) -> None:
        if self._impatience is not None:
            self._impatience.cancel()
            self._impatience = None

    def remove(self, topic_partition: TopicPartition) -> None:
        """No longer follows it; an answer under way is ignored."""
        self._states.pop(topic_partition, None)

    async def stop(self) -> None:
        """Ends the task and closes the connection. Idempotent."""
        self._answered()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._client.close()

    @property
    def lags(self) -> Iterator[tuple[TopicPartition, int]]:
        """How many records each partition lacks of its leader's high watermark, once it has fetched; of one that is out
        of service nothing is known. Source: Kafka 3.9 `AbstractFetcherThread.markPartitionFailed`."""
        return ((tp, s.lag) for tp, s in self._states.items() if s.lag is not None and not s.is_failed)

    @property
    def failed_partitions(self) -> int:
        """Those that are out of service until the next LeaderAndIsr."""
        return sum(state.is_failed for state in self._states.values())

    # -- the loop --------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            try:
                if any(state.is_truncating for state in self._states.values()):
                    await self._truncate_all()
                due = self._due()
                if due:
                    await self._fetch_round(due)
                else:
                    await self._rest()
            except OSError as error:
                self._answered()
                self._client.close()
                if not self._is_given_up:
                    self._unanswered(error, self._states.values())
            if self._is_given_up:
                self._is_given_up, self._wait_ms = False, min(FIRST_WAIT_MS, self._wait_max_ms)

    async def _rest(self) -> None:
        """Nothing to fetch: for the backoff, or until a partition is added."""
        try:
            async with asyncio.timeout(self._backoff_s):
                await self._changed.wait()
        except TimeoutError:
            return

    def _delay(self, states: Iterable[FetchProgress]) -> None:
        until = asyncio.get_running_loop().time() + self._backoff_s
        for state in states:
            state.not_before = until

    def _unanswered(self, error: OSError, states: Iterable[FetchProgress]) -> None:
        self._table.log.debug(ev.REQUEST_FAILED, leader=self._leader, reason=repr(error))
        self._delay(states)

    def _is_ready(self, topic_partition: TopicPartition, state: FetchProgress, now_s: float) -> bool:
        return state.not_before <= now_s and not state.is_failed and not self._is_paused(topic_partition)

    def _fail(self, topic_partition: TopicPartition, state: FetchProgress, reason: str) -> None:
        """Out of service until the next LeaderAndIsr."""
        state.is_failed = True
        self._log(ev.FETCHER_FAILED, topic_partition, reason=reason)

    def _log(self, event: str, topic_partition: TopicPartition, **keys: object) -> None:
        topic, partition = topic_partition
        self._table.log.info(event, topic=topic, partition=partition, leader=self._leader, **keys)

    # -- fetching ----------------------------------------------------------------------------------------------------

    def _due(self) -> dict[TopicPartition, FetchPartition]:
        quota, max_bytes = self._table.follower_quota, self._table.settings.replica_fetch_max_bytes
        is_exceeded, now_s = quota.is_exceeded(self._table.now_ms()), asyncio.get_running_loop().time()
        due: dict[TopicPartition, FetchPartition] = {}
        for topic_partition, state in self._states.items():
            log = state.partition.log
            if log is None or state.is_truncating or not self._is_ready(topic_partition, state, now_s):
                continue
            if is_exceeded and state.lag != 0 and quota.is_throttled(topic_partition):
                continue
            due[topic_partition] = state.ask(max_bytes=max_bytes, log_start_offset=log.log_start_offset)
        return due

    async def _fetch_round(self, due: dict[TopicPartition, FetchPartition]) -> None:
        if len(due) == len(self._states) and all(state.is_settled for state in self._states.values()):
            self._wait_ms = self._wait_max_ms
        results = await self._client.exchange(due, max_wait_ms=self._wait_ms)
        has_another = self._impatience is not None  # a partition was added while this fetch waited
        self._answered()
        is_idle = not has_another and not any(
            result.records or result.error is not ErrorCode.NONE for result in results.values()
        )
        self._wait_ms = min(self._wait_max_ms, 2 * self._wait_ms if is_idle else FIRST_WAIT_MS)
        if not results:
            return
        await self._table.wait_for_disks((tp, len(result.records)) for tp, result in results.items())
        throttled_bytes = 0
        for topic_partition, result in results.items():
            state = self._states.get(topic_partition)
            if state is None or state.asked is not due.get(topic_partition):
                continue  # it was given up, or begun anew, while the answer was under way; or was never asked for
            if self._table.follower_quota.is_throttled(topic_partition):
                throttled_bytes += len(result.records)
            await self._handle(topic_partition, state, result)
        self._table.follower_quota.record(throttled_bytes, self._table.now_ms())

    async def _handle(self, topic_partition: TopicPartition, state: FetchProgress, result: FetchResult) -> None:
        match result.error:
            case ErrorCode.NONE:
                self._process(topic_partition, state, result)
            case ErrorCode.OFFSET_OUT_OF_RANGE:
                try:
                    await self._reset_offset(topic_partition, state)
                except OSError as error:  # the other partitions of this answer have theirs
                    self._client.close()
                    self._unanswered(error, [state])
            case error:
                self._refused(topic_partition, state, error)

    def _refused(self, topic_partition: TopicPartition, state: FetchProgress, error: ErrorCode) -> None:
        if error is ErrorCode.FENCED_LEADER_EPOCH:  # the controller will tell us too, and then the state is another
            self._fail(topic_partition, state, error.name)
        else:
            self._delay([state])

    def _process(self, topic_partition: TopicPartition, state: FetchProgress, result: FetchResult) -> None:
        partition = state.partition
        log = partition.log
        if log is None or log.leo != state.offset:
            self._fail(topic_partition, state, "the log does not end at the fetch offset")
            return
        try:
            log.append_as_follower(result.records, now_ms=self._table.now_ms())
            partition.follow_watermark(result.high_watermark)
            if result.log_start_offset > log.log_start_offset and result.log_start_offset <= log.leo:
                log.raise_log_start(result.log_start_offset)
        except UnexpectedOffset as error:
            self._fail(topic_partition, state, str(error))
        except StorageFailure as error:
            self._table.note_failure(error)
            self._fail(topic_partition, state, str(error))
        except KafkaError as error:
            self._log(ev.REQUEST_FAILED, topic_partition, reason=repr(error))
            self._delay([state])
        else:
            is_added = self._table.broker_id in partition.assignment.adding_replicas
            self._table.meters.copied_in(len(result.records), is_reassigned=is_added)
            state.offset = log.leo
            state.lag = max(0, result.high_watermark - log.leo)
            if result.records:  # who got some is last in the next fetch: answers may have no room for all
                self._states[topic_partition] = self._states.pop(topic_partition)

    async def _reset_offset(self, topic_partition: TopicPartition, state: FetchProgress) -> None:
        """The leader's log does not have our offset: take its end, or go on at its start (§13)."""
        error, end = await self._client.list_offset(
            topic_partition, current_leader_epoch=state.epoch, timestamp=LATEST_TIMESTAMP
        )
        log = state.partition.log
        if error is ErrorCode.NONE and log is not None and end >= log.leo:
            error, start = await self._client.list_offset(
                topic_partition, current_leader_epoch=state.epoch, timestamp=EARLIEST_TIMESTAMP
            )
        else:
            start = -1
        if self._states.get(topic_partition) is not state or log is None:
            return
        if error is not ErrorCode.NONE:
            self._refused(topic_partition, state, error)
            return
        if end < log.leo:
            self._truncate(topic_partition, state, end)
        elif start > log.leo:
            self._guarded(topic_partition, state, lambda: state.partition.truncate_fully(start))
            state.offset = start
        else:
            state.offset = log.leo
        state.lag = max(0, end - state.offset)

    # -- truncation --------------------------------------------------------------------------------------------------

    async def _truncate_all(self) -> None:
        """Brings the partitions that have just begun into the state of the leader's log (§13.1)."""
        asked: dict[TopicPartition, tuple[int, int]] = {}
        states: dict[TopicPartition, FetchProgress] = {}
        now_s = asyncio.get_running_loop().time()
        for topic_partition, state in list(self._states.items()):
            log = state.partition.log
            if log is None or not state.is_truncating or not self._is_ready(topic_partition, state, now_s):
                continue
            if log.epochs.latest < 0:
                self._truncate(topic_partition, state, state.offset)
                state.is_truncating = False
                continue
            asked[topic_partition], states[topic_partition] = (state.epoch, log.epochs.latest), state
        if not asked:
            return
        answers = await self._client.epoch_ends(asked)
        for topic_partition, state in states.items():
            if self._states.get(topic_partition) is state:
                answer = answers.get(topic_partition, EpochEnd(error=ErrorCode.UNKNOWN_SERVER_ERROR))
                self._truncate_by(topic_partition, state, answer)

    def _truncate_by(self, topic_partition: TopicPartition, state: FetchProgress, end: EpochEnd) -> None:
        log = state.partition.log
        if log is None:
            return
        if end.error is not ErrorCode.NONE:
            self._refused(topic_partition, state, end.error)
        else:
            offset, is_done = truncation_point(
                end, initial_offset=state.offset, leo=log.leo, local=log.end_offset_for_epoch(end.leader_epoch)
            )
            self._truncate(topic_partition, state, offset)
            # Asked again, but with no epoch left, there is nothing to ask for: the next round truncates to the offset.
            state.is_truncating = not is_done

    def _truncate(self, topic_partition: TopicPartition, state: FetchProgress, offset: int) -> None:
        log = state.partition.log
        if log is None:
            return
        if offset < 0:
            self._fail(topic_partition, state, f"the leader says that its log ends at {offset}")
            return
        leo, removed = log.leo, 0

        def cut() -> None:
            nonlocal removed
            removed = state.partition.truncate(offset)

        self._guarded(topic_partition, state, cut)
        state.offset = log.leo
        if log.leo < leo:
            self._log(ev.LOG_TRUNCATED, topic_partition, offset=log.leo, from_offset=leo, removed_bytes=removed)

    def _guarded(self, topic_partition: TopicPartition, state: FetchProgress, work: Callable[[], None]) -> None:
        try:
            work()
        except StorageFailure as error:
            self._table.note_failure(error)
            self._fail(topic_partition, state, str(error))


def truncation_point(end: EpochEnd, *, initial_offset: int, leo: int, local: tuple[int, int]) -> tuple[int, bool]:
    """(offset to truncate to, whether that settles it), from the leader's answer and the local lookup of its epoch.

    Source: spec broker.md §13.1, Kafka 3.9 `AbstractFetcherThread.getOffsetTruncationState`.
    """
    local_epoch, local_end = local
    if end.end_offset == -1:
        return min(initial_offset, leo), True
    if end.leader_epoch == -1 or local_end == -1:
        return min(end.end_offset, leo), True
    if local_epoch != end.leader_epoch:
        return min(local_end, leo), False
    return min(local_end, end.end_offset, leo), True


class FetcherManager:
    """The fetchers of one broker."""

    def __init__(self, table: ReplicaTable, network: Network, is_paused: Callable[[TopicPartition], bool]) -> None:
        self._table, self._network, self._is_paused = table, network, is_paused
        self._fetchers: dict[tuple[BrokerId, int], ReplicaFetcher] = {}
        self._following: dict[TopicPartition, ReplicaFetcher] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    @property
    def fetchers(self) -> Mapping[tuple[BrokerId, int], ReplicaFetcher]:
        """By leader and fetcher id."""
        return self._fetchers

    def add(self, partition: Partition, leader: BrokerId) -> None:
        """Follows `leader` from the partition's high watermark on, in its leader epoch."""
        number = fetcher_id(partition.topic_partition, self._table.settings.num_replica_fetchers)
        fetcher = self._fetchers.get((leader, number))
        if fetcher is None:
            fetcher = self._fetchers[leader, number] = ReplicaFetcher(
                self._table, self._client(leader, number), self._is_paused, leader
            )
            self._table.log.info(ev.FETCHER_ADDED, leader=leader, fetcher_id=number)
        if self._following.get(partition.topic_partition) is not fetcher:
            self.remove([partition.topic_partition])
        self._following[partition.topic_partition] = fetcher
        fetcher.add(partition, epoch=partition.leader_epoch, offset=partition.hw)

    def follows(self, topic_partition: TopicPartition) -> bool:
        """Whether a fetcher has it, be it out of service."""
        return topic_partition in self._following

    def _client(self, leader: BrokerId, number: int) -> FetchClient:
        return FetchClient(
            self._table.broker_id,
            leader,
            f"broker-{self._table.broker_id}-fetcher-{number}",
            network=self._network,
            metadata=self._table.metadata,
            settings=self._table.settings,
        )

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        """Follows these no longer, from any leader."""
        for topic_partition in partitions:
            if (fetcher := self._following.pop(topic_partition, None)) is not None:
                fetcher.remove(topic_partition)

    def stop_idle(self) -> None:
        """Ends the fetchers that have nothing to follow."""
        for key in [key for key, fetcher in self._fetchers.items() if not len(fetcher)]:
            task = self._table.supervisor.once(f"fetcher-{key[0]}-stop", self._fetchers.pop(key).stop)
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)
            self._table.log.info(ev.FETCHER_REMOVED, leader=key[0], fetcher_id=key[1])

    async def stop(self) -> None:
        """Ends all fetchers. Idempotent."""
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        await asyncio.gather(*(fetcher.stop() for fetcher in fetchers), *self._stopping)
