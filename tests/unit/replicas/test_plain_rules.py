"""Fetch sessions and rates against plain ones, step by step; values and what they are where nothing is said."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import pkgutil
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

import broker_sim.replicas
from broker_sim.replicas import fetcher, first_fetches, isr_updates, produce_and_fetch, types
from broker_sim.replicas.fetch_session import FetchSessionCache
from broker_sim.replicas.offsets import OffsetQuestion
from broker_sim.replicas.partition import Waiters
from broker_sim.replicas.produce_and_fetch import FetchRequest
from broker_sim.replicas.quota import ReplicationQuota, SimpleRate, parse_throttled_replicas
from broker_sim.replicas.types import FetchPartition, FetchResult, ReplicaHooks
from broker_sim.replicas.waiting import wait_until, woken
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, TopicPartition
from controller.world.simulated.loop import run

# -- fetch sessions ---------------------------------------------------------------------------------------------------

PARTITIONS = [TopicPartition("t", number) for number in range(4)]
LAST = (1 << 31) - 1


@dataclass
class PlainSession:
    is_follower: bool
    used_ms: int
    epoch: int = 1
    wanted: dict[TopicPartition, FetchPartition] = field(default_factory=dict)
    sent: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)

    def takes(self, tp: TopicPartition, result: FetchResult) -> bool:
        """Whether the result is told; what was told is known from then on, unless it is an error."""
        state = result.high_watermark, result.log_start_offset
        is_error = result.error is not ErrorCode.NONE
        is_news = self.sent.get(tp) != state or result.preferred_read_replica >= 0
        if is_news or is_error or result.records:
            if tp in self.wanted:
                self.sent.pop(tp, None) if is_error else self.sent.update({tp: state})
            return True
        return False


class PlainCache:
    """Sessions by id, the least recently used first."""

    def __init__(self, slots: int, eviction_ms: int) -> None:
        self.sessions: dict[int, PlainSession] = {}
        self.slots, self.eviction_ms, self.evictions = slots, eviction_ms, 0

    def has_room(self, *, is_follower: bool, now_ms: int) -> bool:
        if len(self.sessions) < self.slots:
            return True
        for number, session in self.sessions.items():
            if now_ms - session.used_ms > self.eviction_ms or (is_follower and not session.is_follower):
                del self.sessions[number]
                self.evictions += 1
                return True
        return False


class Twins:
    """A cache and its plain twin."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.cache = FetchSessionCache(random.Random(seed), slots=2, eviction_ms=10)
        self.plain, self.now_ms, self.ids = PlainCache(2, 10), 0, [0, 5]

    def step(self) -> None:
        chance = self.chance
        self.now_ms += chance.choice([0, 1, 5, 10, 11])
        session_id, is_follower = chance.choice(self.ids), chance.random() < 0.4
        named = chance.sample(PARTITIONS, chance.choice([0, 1, 2, 3]))
        asked = {tp: FetchPartition(chance.randint(0, 3), 100) for tp in named}
        forgotten = chance.sample(PARTITIONS, chance.choice([0, 0, 1, 4]))
        known = self.plain.sessions.get(session_id)
        epoch = chance.choice([-1, 0, 0, *[known.epoch if known else 1] * 6, 2])
        context = self.cache.open(
            session_id=session_id, session_epoch=epoch, partitions=asked, forgotten=forgotten,
            is_from_follower=is_follower, now_ms=self.now_ms,
        )  # fmt: skip
        results = {tp: self.result() for tp in context.partitions}
        if epoch in (-1, 0):
            self.plain.sessions.pop(session_id, None)
            assert (context.error, list(context.partitions.items())) == (ErrorCode.NONE, list(asked.items()))
            self.answer_full(context.answer(results), results, asked, opens=epoch == 0, is_follower=is_follower)
        else:
            self.answer_next(context, results, session_id, epoch, asked, forgotten)
        assert (len(self.cache), self.cache.evictions) == (len(self.plain.sessions), self.plain.evictions)
        assert self.cache.partitions == sum(len(session.wanted) for session in self.plain.sessions.values())

    def result(self) -> FetchResult:
        chance = self.chance
        return FetchResult(
            error=chance.choice([ErrorCode.NONE] * 3 + [ErrorCode.KAFKA_STORAGE_ERROR]),
            high_watermark=chance.randint(0, 1), log_start_offset=chance.randint(0, 1),
            records=chance.choice([b"", b"", b"x"]), preferred_read_replica=chance.choice([-1, -1, -1, 0]),
        )  # fmt: skip

    def answer_full(self, answer: Any, results: Any, asked: Any, *, opens: bool, is_follower: bool) -> None:
        assert (answer.error, answer.partitions) == (ErrorCode.NONE, results)
        opens = opens and bool(asked) and self.plain.has_room(is_follower=is_follower, now_ms=self.now_ms)
        assert (answer.session_id != 0) is opens
        if opens:
            assert 0 < answer.session_id < LAST and answer.session_id not in self.plain.sessions
            self.ids.append(answer.session_id)
            session = PlainSession(is_follower, self.now_ms, wanted=dict(asked))
            self.plain.sessions[answer.session_id] = session
            for tp, result in results.items():
                session.takes(tp, result)

    def answer_next(self, context: Any, results: Any, number: int, epoch: int, asked: Any, forgotten: Any) -> None:
        session, answer = self.plain.sessions.get(number), context.answer(results)
        if session is None or session.epoch != epoch:
            error = ErrorCode.FETCH_SESSION_ID_NOT_FOUND if session is None else ErrorCode.INVALID_FETCH_SESSION_EPOCH
            assert (context.error, context.partitions, answer) == (error, {}, (error, 0, {}))
            return
        session.wanted |= asked
        for tp in forgotten:
            session.wanted.pop(tp, None)
            session.sent.pop(tp, None)
        assert (context.error, list(context.partitions.items())) == (ErrorCode.NONE, list(session.wanted.items()))
        if not session.wanted:
            del self.plain.sessions[number]
            assert answer == (ErrorCode.NONE, 0, {})
            return
        session.epoch, session.used_ms = epoch + 1, self.now_ms
        self.plain.sessions[number] = self.plain.sessions.pop(number)
        changed = {tp: result for tp, result in results.items() if session.takes(tp, result)}
        assert (answer.error, answer.session_id) == (ErrorCode.NONE, number)
        assert list(answer.partitions.items()) == list(changed.items())
        for tp, result in changed.items():
            if result.records:
                session.wanted[tp] = session.wanted.pop(tp)


@pytest.mark.parametrize("seed", range(6))
def test_sessions(seed: int) -> None:
    twins = Twins(seed)
    for _ in range(400):
        twins.step()
    assert twins.plain.evictions and len(twins.ids) > 10


def test_a_broker_keeps_a_thousand_sessions_two_minutes_at_least() -> None:
    cache, one = FetchSessionCache(random.Random(1)), {PARTITIONS[0]: FetchPartition(0, 1)}

    def opened(now_ms: int) -> bool:
        context = cache.open(
            session_id=0, session_epoch=0, partitions=one, forgotten=[], is_from_follower=False, now_ms=now_ms
        )
        return context.answer({PARTITIONS[0]: FetchResult()}).session_id != 0

    assert all(opened(7) for _ in range(1_000))
    assert [opened(at) for at in (7, 120_007, 120_008)] == [False, False, True]
    assert (len(cache), cache.evictions) == (1_000, 1)


# -- rates and throttles ----------------------------------------------------------------------------------------------


class PlainRate:
    """(begun, last event, bytes) of each sample, oldest first."""

    def __init__(self, samples: int, window_ms: int) -> None:
        self.samples, self.window_ms = samples, window_ms
        self.all: list[list[int]] = []

    def record(self, size: int, now_ms: int) -> None:
        if not self.all or now_ms - self.all[-1][0] >= self.window_ms:
            self.all = [*self.all, [now_ms, now_ms, 0]][-self.samples - 1 :]
        self.all[-1][1:] = [now_ms, self.all[-1][2] + size]

    def rate(self, now_ms: int) -> float:
        self.all = self.all or [[now_ms, now_ms, 0]]
        for sample in self.all:
            if now_ms - sample[1] >= self.samples * self.window_ms:
                sample[:] = [now_ms, now_ms, 0]
        took_ms = max(self.window_ms, now_ms - min(sample[0] for sample in self.all))
        return sum(sample[2] for sample in self.all) / took_ms * 1000


@pytest.mark.parametrize("seed", range(4))
def test_rates(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(30):
        samples, window_ms, now_ms = chance.randint(1, 4), chance.choice([1, 10]), chance.randint(0, 5)
        rate, plain = SimpleRate(samples=samples, window_ms=window_ms), PlainRate(samples, window_ms)
        for _ in range(40):
            now_ms += chance.choice([0, 1, window_ms - 1, window_ms, samples * window_ms, 3 * window_ms])
            if chance.random() < 0.6:
                size = chance.randint(0, 9)
                rate.record(size, now_ms)
                plain.record(size, now_ms)
            else:
                assert rate.rate(now_ms) == pytest.approx(plain.rate(now_ms))


def test_rates_are_over_eleven_seconds_where_nothing_else_is_said() -> None:
    rate, quota, plain = SimpleRate(), ReplicationQuota(BrokerId(1)), PlainRate(11, 1_000)
    for now_ms in range(0, 60_000, 333):
        for each in (rate, quota, plain):
            each.record(now_ms % 7 + 1, now_ms)
        assert rate.rate(now_ms) == quota.rate(now_ms) == pytest.approx(plain.rate(now_ms))


def test_a_throttle_without_bytes_begins_no_time_and_has_no_limit_unless_one_is_set() -> None:
    quota = ReplicationQuota(BrokerId(1), samples=2, window_ms=10)
    quota.record(0, 5)
    quota.record(100, 1_000)
    assert quota.rate(1_019) == pytest.approx(100 / 19 * 1000)
    assert not quota.is_exceeded(1_000)
    for bound, is_exceeded in ((0, True), (9_999, True), (10_000, False)):
        quota.bound = bound
        assert quota.is_exceeded(1_000) is is_exceeded
    for text, throttled in (("*", [0, 1, 2]), (" * ", [0, 1, 2]), ("1:1,2:2,0:1", [0, 1]), (" 2:1 ", [2]), ("", [])):
        quota.set_throttled("t", text)
        assert [p for p in range(3) if quota.is_throttled(TopicPartition("t", p))] == throttled
        assert not quota.is_throttled(TopicPartition("u", 0))
    assert parse_throttled_replicas("10:21,3:2,4:21", BrokerId(21)) == {10, 4}


# -- waiting ----------------------------------------------------------------------------------------------------------


def test_a_wait_is_asked_again_after_each_change_until_its_time_is_over() -> None:
    async def main() -> None:
        loop, waiters = asyncio.get_running_loop(), Waiters()
        asked, wanted = list[float](), [0]

        def is_ready() -> bool:
            asked.append(loop.time())
            return len(asked) >= wanted[0]

        for at in (1.0, 2.0):
            loop.call_at(at, waiters.wake)
        for enough, result, times in ((1, True, [0]), (3, True, [0, 1, 2]), (9, False, [2, 5])):
            asked.clear()
            wanted[0] = enough
            assert await wait_until(is_ready, lambda: [waiters], timeout_ms=3_000) is result
            assert asked == times and len(waiters) == 0
        assert await woken([waiters], loop.time() - 1) is False
        loop.call_at(8.0, waiters.wake)
        assert (await woken([waiters, Waiters()], 8.0), len(waiters)) == (True, 0)

    run(main())


# -- values -----------------------------------------------------------------------------------------------------------

#: Those that change, and those that are built by position; all others are frozen and built by name.
CHANGING = {
    "FetchContext", "FetchProgress", "FetchRequest", "ReplicaTable", "RoleChanges", "_Sample", "_Session",
    "_Unacknowledged",
}  # fmt: skip
BY_POSITION = {"RoleChanges", "_Sample"}


def values() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for module in pkgutil.iter_modules(broker_sim.replicas.__path__, "broker_sim.replicas."):
        for name, each in vars(importlib.import_module(module.name)).items():
            if dataclasses.is_dataclass(each) and getattr(each, "__module__", "") == module.name:
                found[name] = each
    return found


def test_values_are_frozen_and_lean() -> None:
    assert len(values()) > 15
    for name, each in values().items():
        assert "__dict__" not in dir(each) and hasattr(each, "__slots__"), name
        assert each.__dataclass_params__.frozen is (name not in CHANGING), name
        assert all(each.kw_only for each in dataclasses.fields(each)) is (name not in BY_POSITION), name


def test_a_number_that_is_not_said_is_minus_one_as_on_the_wire() -> None:
    by_name = {name: {f.name: f.default for f in dataclasses.fields(each)} for name, each in values().items()}
    for name in (
        "IsrWriteResult",
        "ProduceResult",
        "ListedOffset",
        "EpochEnd",
        "DeleteRecordsResult",
        "LogDirDescription",
    ):
        numbers = [default for default in by_name[name].values() if type(default) in (int, bool)]
        assert numbers and all(type(default) is int and default == -1 for default in numbers), name
        assert by_name[name].get("error", ErrorCode.NONE) is ErrorCode.NONE
    assert FetchPartition(7, 9) == (7, 9, -1, -1) and FetchResult() == (ErrorCode.NONE, -1, -1, -1, b"", -1)
    assert all(type(number) is int for each in (FetchPartition(7, 9), FetchResult()[1:4]) for number in each)
    assert by_name["ReplicaOnDisk"]["is_future"] is False
    question = OffsetQuestion(timestamp=1)
    assert (question.replica_id, question.current_leader_epoch, question.version) == (-1, -1, 5)
    assert type(question.current_leader_epoch) is int
    assert [OffsetQuestion(timestamp=1, replica_id=n).is_consumer for n in (-2, -1, 0, 1)] == [
        False,
        True,
        False,
        False,
    ]
    hooks = ReplicaHooks()
    assert (hooks.is_paused(PARTITIONS[0]), hooks.disk_wait_s("d", 9), hooks.files) == (False, 0.0, None)
    assert hooks.on_log_dir_failure("d") is hooks.on_leadership_change([], []) is None


@pytest.mark.parametrize("version", [10, 11, 12])
@pytest.mark.parametrize("replica_id", [-2, -1, 0, 3])
def test_who_asks(replica_id: int, version: int) -> None:
    how = {"partitions": {}, "max_wait_ms": 1, "min_bytes": 1, "max_bytes": 1}
    request = FetchRequest(**how, replica_id=replica_id, version=version)
    assert request.follower == (None if replica_id < 0 else replica_id)
    assert request.needs_leader is (replica_id >= 0 or version < 11)
    assert (FetchRequest(**how).replica_id, FetchRequest(**how).version) == (-1, 11)


def test_numbers_that_are_kafkas() -> None:
    times = (
        types.CONSUMER_REPLICA_ID, types.LATEST_TIMESTAMP, types.EARLIEST_TIMESTAMP, types.MAX_TIMESTAMP,
        types.EARLIEST_LOCAL_TIMESTAMP, types.LATEST_TIERED_TIMESTAMP,
    )  # fmt: skip
    assert times == (-1, -1, -2, -3, -4, -5) and all(type(number) is int for number in times)
    assert (fetcher.FIRST_WAIT_MS, fetcher.GIVE_UP_S, first_fetches.SOON_MS) == (500, 3.0, 500)
    quiet = isr_updates.PROPAGATION_INTERVAL_MS, isr_updates.PROPAGATION_QUIET_MS, isr_updates.PROPAGATION_LIMIT_MS
    assert (isr_updates.MAX_WRITES, *quiet) == (500, 2_500, 5_000, 60_000)
    assert produce_and_fetch.ACKS_ALL == -1
