"""Fetch sessions: who gets one, what an incremental answer carries, what is refused."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker_sim.replicas.fetch_session import FetchSessionCache
from broker_sim.replicas.types import FetchPartition, FetchResult
from controller.wire.errors import ErrorCode
from controller.wire.types import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))
WANTED = FetchPartition(fetch_offset=0, max_bytes=100)
QUIET = FetchResult(high_watermark=5, log_start_offset=0)
FAILED = FetchResult(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, high_watermark=5, log_start_offset=0)
NEWER = FetchResult(high_watermark=6, log_start_offset=0, records=b"x")


def cache(**limits: Any) -> FetchSessionCache:
    return FetchSessionCache(random.Random(3), **limits)


def ask(
    sessions: Any,
    session_id: Any,
    epoch: Any,
    partitions: Any = (),
    forgotten: Any = (),
    *,
    follower: Any = False,
    now_ms: Any = 0,
) -> Any:
    return sessions.open(
        session_id=session_id,
        session_epoch=epoch,
        partitions=dict.fromkeys(partitions, WANTED),
        forgotten=list(forgotten),
        is_from_follower=follower,
        now_ms=now_ms,
    )


def opened(sessions: Any, partitions: Any = (A, B), **keys: Any) -> int:
    return ask(sessions, 0, 0, partitions, **keys).answer(dict.fromkeys(partitions, QUIET)).session_id


def test_a_full_fetch_opens_a_session_and_gets_everything() -> None:
    sessions = cache()
    answer = ask(sessions, 0, 0, [A, B]).answer({A: QUIET, B: QUIET})
    assert answer.session_id != 0
    assert list(answer.partitions) == [A, B]


CHANGES = [
    pytest.param(QUIET, False, id="nothing new"),
    pytest.param(FetchResult(high_watermark=5, log_start_offset=0, records=b"x"), True, id="records"),
    pytest.param(FetchResult(high_watermark=6, log_start_offset=0), True, id="another high watermark"),
    pytest.param(FetchResult(high_watermark=5, log_start_offset=1), True, id="another log start"),
    pytest.param(FetchResult(error=ErrorCode.NOT_LEADER_OR_FOLLOWER), True, id="an error"),
    pytest.param(FAILED, True, id="an error, the offsets as they were"),
    pytest.param(FetchResult(high_watermark=5, log_start_offset=0, preferred_read_replica=2), True, id="who to ask"),
    pytest.param(FetchResult(high_watermark=5, log_start_offset=0, preferred_read_replica=0), True, id="to ask 0"),
]


@pytest.mark.parametrize(("result", "is_sent"), CHANGES)
def test_an_incremental_answer_has_what_changed(result: Any, is_sent: Any) -> None:
    sessions = cache()
    session_id = opened(sessions)
    context = ask(sessions, session_id, 1)
    assert list(context.partitions) == [A, B]
    answer = context.answer({A: result, B: QUIET})
    assert (list(answer.partitions), answer.session_id) == ([A] if is_sent else [], session_id)


@pytest.mark.parametrize(("changes", "is_sent"), [({"current_leader_epoch": 2}, True), ({"fetch_offset": 1}, False)])
def test_who_is_in_another_term_is_told_again(changes: dict[str, int], is_sent: bool) -> None:
    """A follower passes the answer over that comes when its term has begun; its log start would stay what it was."""
    sessions = cache()
    session_id = opened(sessions)
    context = sessions.open(
        session_id=session_id,
        session_epoch=1,
        partitions={A: WANTED._replace(**changes), B: WANTED},
        forgotten=[],
        is_from_follower=True,
        now_ms=0,
    )
    assert list(context.answer({A: QUIET, B: QUIET}).partitions) == ([A] if is_sent else [])


def test_after_an_error_the_partition_is_sent_again() -> None:
    sessions = cache()
    session_id = opened(sessions, [A])
    ask(sessions, session_id, 1).answer({A: FetchResult(error=ErrorCode.KAFKA_STORAGE_ERROR)})
    assert list(ask(sessions, session_id, 2).answer({A: QUIET}).partitions) == [A]


def test_an_error_in_the_first_answer_is_no_answer() -> None:
    sessions = cache()
    session_id = ask(sessions, 0, 0, [A, B]).answer({A: QUIET, B: FAILED}).session_id
    healed = {A: QUIET, B: QUIET}
    assert list(ask(sessions, session_id, 1).answer(healed).partitions) == [B]
    assert list(ask(sessions, session_id, 2).answer(healed).partitions) == []


def test_of_two_that_are_idle_the_one_that_was_used_before_the_other_gives_way() -> None:
    sessions = cache(slots=2, eviction_ms=10)
    first, second = opened(sessions), opened(sessions, now_ms=1)
    ask(sessions, first, 1, now_ms=5)
    assert opened(sessions, now_ms=100) not in (0, first, second)
    assert ask(sessions, first, 2, now_ms=100).error is ErrorCode.NONE
    assert ask(sessions, second, 1, now_ms=100).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_new_session_takes_the_place_of_the_one_that_its_request_names() -> None:
    sessions = cache(slots=1)
    before = opened(sessions)
    after = ask(sessions, before, 0, [C]).answer({C: QUIET}).session_id
    assert after not in (0, before) and (len(sessions), sessions.evictions, sessions.partitions) == (1, 0, 1)


def test_who_asks_for_nothing_gets_no_session() -> None:
    sessions = cache()
    assert ask(sessions, 0, 0).answer({}).session_id == len(sessions) == 0


@pytest.mark.parametrize("with_records", [{A}, {B}, {C}, {A, B}, {A, C}, {A, B, C}, set()])
def test_partitions_with_records_are_read_last_next_time(with_records: set[TopicPartition]) -> None:
    """What is new in another way, or an error, leaves the order as it is."""
    sessions = cache()
    session_id = opened(sessions, [A, B, C])
    others = dict(zip((A, B, C), (FetchResult(high_watermark=7, log_start_offset=1), FAILED, QUIET), strict=True))
    context = ask(sessions, session_id, 1)
    context.answer({tp: NEWER if tp in with_records else others[tp] for tp in context.partitions})
    later = list(ask(sessions, session_id, 2).partitions)
    assert later == [tp for tp in (A, B, C) if tp not in with_records] + sorted(with_records)


def test_forgotten_partitions_go_and_named_ones_are_added() -> None:
    sessions = cache()
    session_id = opened(sessions, [A])
    assert list(ask(sessions, session_id, 1, [B], [A]).partitions) == [B]
    gone = ask(sessions, session_id, 2, [], [B])
    assert (gone.partitions, gone.answer({}).session_id, len(sessions)) == ({}, 0, 0)


@pytest.mark.parametrize(
    ("session_id", "epoch", "expected"),
    [
        pytest.param(None, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH, id="an epoch too far"),
        pytest.param(12345, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, id="an unknown session"),
        pytest.param(0, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, id="no session"),
    ],
)
def test_a_request_of_no_such_session_is_refused(session_id: Any, epoch: Any, expected: Any) -> None:
    sessions = cache()
    known = opened(sessions)
    context = ask(sessions, known if session_id is None else session_id, epoch)
    assert (context.error, context.partitions) == (expected, {})
    assert context.answer({A: NEWER}) == (expected, 0, {})
    answer = ask(sessions, known, 1).answer({A: NEWER, B: QUIET})
    assert (answer.error, list(answer.partitions)) == (ErrorCode.NONE, [A]), "the session is as it was"


def test_a_sessionless_request_closes_the_session_it_names() -> None:
    sessions = cache()
    session_id = opened(sessions)
    answer = ask(sessions, session_id, -1, [A]).answer({A: QUIET})
    assert (answer.session_id, list(answer.partitions), len(sessions)) == (0, [A], 0)


def test_a_full_cache_gives_no_session_but_an_answer() -> None:
    sessions = cache(slots=1)
    assert opened(sessions, now_ms=0) != 0
    assert opened(sessions, now_ms=120_000) == 0
    assert opened(sessions, now_ms=120_001) != 0


def test_a_follower_takes_the_place_of_a_client() -> None:
    sessions = cache(slots=1)
    client = opened(sessions)
    assert opened(sessions, follower=True) != 0
    assert ask(sessions, client, 1).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert opened(sessions, follower=True) == 0


#: what, the sessions of a full cache (of a follower?, partitions, times of use), who comes at 300 s (of a follower?,
#: partitions), whose place it takes. Source: Kafka 3.9 `FetchSessionCache.tryEvict`, `touch`.
CLIENT, FOLLOWER, LATE = False, True, 300_000
EVICTIONS: list[tuple[str, list[tuple[bool, int, list[int]]], tuple[bool, int], int | None]] = [
    ("who is idle for longest", [(CLIENT, 1, [5]), (CLIENT, 1, [4]), (CLIENT, 1, [6])], (CLIENT, 1), 1),
    ("an idle follower, even a client's", [(FOLLOWER, 3, [179_999]), (CLIENT, 1, [200_000])], (CLIENT, 1), 0),
    ("nobody's just before", [(FOLLOWER, 3, [180_000]), (FOLLOWER, 1, [200_000])], (CLIENT, 9), None),
    ("idle is who was not used, however old", [(CLIENT, 1, [1, 290_000]), (CLIENT, 1, [2])], (CLIENT, 1), 1),
    ("the smallest client's, a follower's", [(CLIENT, 3, [200_000]), (CLIENT, 2, [250_000])], (FOLLOWER, 1), 1),
    ("no young follower's", [(FOLLOWER, 1, [200_000]), (FOLLOWER, 2, [200_001])], (FOLLOWER, 3), None),
    ("no young client's, a client's", [(CLIENT, 1, [200_000]), (CLIENT, 2, [200_001])], (CLIENT, 3), None),
    ("a smaller one that is old, and used", [(CLIENT, 2, [1, 290_000]), (CLIENT, 1, [280_000])], (CLIENT, 3), 0),
    ("none as large", [(CLIENT, 2, [1, 290_000]), (CLIENT, 1, [280_000])], (CLIENT, 2), None),
    ("none that was young at its last use", [(CLIENT, 1, [170_000, 290_000])], (CLIENT, 2), None),
    ("one that was not", [(CLIENT, 1, [169_999, 290_000])], (CLIENT, 2), 0),
    ("a smaller old follower's, a follower's", [(FOLLOWER, 2, [1, 290_000])], (FOLLOWER, 3), 0),
    ("no old follower's, a client's", [(FOLLOWER, 1, [1, 290_000])], (CLIENT, 3), None),
    ("a client's before a follower's", [(FOLLOWER, 1, [1, 290_000]), (CLIENT, 3, [280_000])], (FOLLOWER, 2), 1),
]


@pytest.mark.parametrize(("_", "there", "comes", "gone"), EVICTIONS, ids=[row[0] for row in EVICTIONS])
def test_whose_place_is_taken_in_a_full_cache(_: str, there: Any, comes: Any, gone: int | None) -> None:
    sessions = cache(slots=len(there))
    uses = sorted((at, number, epoch) for number, (_, _, times) in enumerate(there) for epoch, at in enumerate(times))
    ids: dict[int, int] = {}
    for at, number, epoch in uses:
        if epoch:
            assert ask(sessions, ids[number], epoch, now_ms=at).error is ErrorCode.NONE
        else:
            is_follower, size, _ = there[number]
            ids[number] = opened(sessions, (A, B, C)[:size], follower=is_follower, now_ms=at)
    is_follower, size = comes
    partitions = [TopicPartition("u", number) for number in range(size)]
    assert (opened(sessions, partitions, follower=is_follower, now_ms=LATE) != 0) == (gone is not None)
    answers = {n: ask(sessions, session_id, len(there[n][2])).error for n, session_id in ids.items()}
    assert answers == {
        n: ErrorCode.FETCH_SESSION_ID_NOT_FOUND if n == gone else ErrorCode.NONE for n in range(len(there))
    }
    assert (len(sessions), sessions.evictions) == (len(there), int(gone is not None))
    sizes = [size for n, (_, size, _) in enumerate(there) if n != gone]
    assert sessions.partitions == sum(sizes) + (len(partitions) if gone is not None else 0)


def test_epochs_wrap_to_one() -> None:
    sessions = cache()
    session_id = opened(sessions)
    sessions._sessions[session_id].epoch = 0x7FFFFFFF
    assert ask(sessions, session_id, 0x7FFFFFFF).error is ErrorCode.NONE
    assert ask(sessions, session_id, 1).error is ErrorCode.NONE


def test_a_request_that_waits_reads_what_was_asked_for_when_it_came() -> None:
    sessions = cache()
    session_id = opened(sessions)
    waiting = ask(sessions, session_id, 1)
    ask(sessions, session_id, 2, partitions=[C], forgotten=[A]).answer({B: NEWER})
    assert list(waiting.partitions) == [A, B]
    assert list(ask(sessions, session_id, 3).partitions) == [C, B]
    waiting.answer({A: NEWER, B: NEWER})
    again = ask(sessions, session_id, 4, partitions=[A])
    assert list(again.partitions) == [C, B, A]
    assert A in again.answer({A: NEWER._replace(records=b"")}).partitions, "what was forgotten meanwhile is unheard of"


@pytest.mark.parametrize("seed", range(10))
def test_who_asks_knows_what_is_so_after_each_answer(seed: int) -> None:
    """However partitions come, go and come back within a session, and fail and recover: what an answer leaves out is as
    it was when it was told last."""
    chance, sessions = random.Random(seed), cache()
    so = dict.fromkeys((A, B, C), QUIET)
    before: set[TopicPartition] = set()
    known: dict[TopicPartition, FetchResult] = {}
    session_id = 0
    for epoch in range(200):
        changed = FetchResult(high_watermark=chance.randint(0, 2), log_start_offset=chance.randint(0, 1))
        so[chance.choice((A, B, C))] = chance.choice((changed, FetchResult(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)))
        asked = set(chance.sample((A, B, C), chance.randint(1, 3)))
        named = {tp for tp in asked if tp not in before or chance.random() < 0.3}
        context = ask(sessions, session_id, epoch, named, before - asked)
        assert (context.error, set(context.partitions)) == (ErrorCode.NONE, asked)
        answer = context.answer({tp: so[tp] for tp in context.partitions})
        known = {tp: known[tp] for tp in before & asked} | dict(answer.partitions)
        assert known == {tp: so[tp] for tp in asked}
        session_id, before = answer.session_id, asked
