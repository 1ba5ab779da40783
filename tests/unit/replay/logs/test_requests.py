"""Completed requests: the fetches of sessions, appends, and what is told of lines that cannot be read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker_sim.replay.logs.facts import OF_SESSIONS, Fact, What
from broker_sim.replay.logs.request_lines import Sessions
from tests.unit.replay.logs.test_reading import NOON, at, of, read, woven


def request(seconds: float, api: str, asked: dict[str, Any], answer: dict[str, Any], **times: float) -> str:
    spent = {"totalTimeMs": 4.0, "requestQueueTimeMs": 1.0, "localTimeMs": 1.0, "remoteTimeMs": 0.0, **times}
    call = {
        "requestHeader": {"requestApiKeyName": api, "correlationId": int(seconds * 10)},
        "request": asked,
        "response": answer,
        **spent,
    }
    return at(seconds, f"Completed request:{json.dumps(call, separators=(',', ':'))}", logger="kafka.request.logger")


def fetch(
    seconds: float,
    epoch: int,
    offsets: dict[int, int],
    *,
    forget: Iterable[int] = (),
    errors: Iterable[int] = (),
    session: int = 77,
    waited_ms: float = 0,
) -> str:
    partitions = [{"partition": p, "currentLeaderEpoch": 3, "fetchOffset": o} for p, o in offsets.items()]
    asked = {
        "replicaId": 2,
        "sessionId": 0 if epoch == 0 else session,
        "sessionEpoch": epoch,
        "topics": [{"topic": "t", "partitions": partitions}],
        "forgottenTopicsData": [{"topic": "t", "partitions": list(forget)}] if forget else [],
    }
    failed = [{"partitionIndex": p, "errorCode": 6} for p in errors]
    answer = {"errorCode": 0, "sessionId": session, "responses": [{"topic": "t", "partitions": failed}]}
    return request(seconds, "FETCH", asked, answer, remoteTimeMs=waited_ms)


def fetches(lines: Sequence[str], *copies: Sequence[str]) -> list[Fact]:
    """`copies`: other files with lines of the same broker."""
    facts = [fact for n, file in enumerate((lines, *copies)) for fact in read(file, file=f"{n}.log")[0]]
    sessions = Sessions()
    ordered = sorted(
        (f for f in facts if f.what in OF_SESSIONS), key=lambda f: (f.session, f.at_us, f.correlation, f.file, f.sub)
    )
    return [*(f for fact in ordered for f in sessions.feed(fact)), *sessions.finish()]


class Asked(NamedTuple):
    """A fetch. Session 0 is none: each such fetch names all."""

    session: int
    is_first: bool
    offsets: dict[int, int]
    forget: set[int]
    errors: set[int]
    is_waited_for: bool


@settings(max_examples=20)
@given(
    st.lists(
        st.builds(
            Asked,
            st.sampled_from([77, 78, 0]),
            st.booleans(),
            st.dictionaries(st.integers(0, 3), st.integers(0, 9), max_size=3),
            st.sets(st.integers(0, 3), max_size=2),
            st.sets(st.integers(0, 3), max_size=2),
            st.booleans(),
        ),
        max_size=8,
    ),
    st.sets(st.integers(0, 7)),
)
@example(
    [
        Asked(77, is_first, {0: 5}, set(), {0} if n < 2 else set(), n == 1)
        for n, is_first in enumerate((True, False, False, True))
    ],
    {1},
)
@example(
    [
        Asked(77, True, {0: 5, 1: 9}, set(), set(), False),
        Asked(77, False, {1: 10}, set(), {0}, False),
        Asked(77, False, {}, {0}, {1}, False),
        Asked(78, True, {1: 3}, set(), set(), False),
        Asked(78, False, {2: 3}, set(), set(), False),
        Asked(77, True, {3: 1}, set(), set(), False),
        Asked(0, True, {0: 1}, set(), {0}, False),
        Asked(0, True, {1: 1, 0: 2}, set(), set(), False),
    ],
    {1, 3},
)
def test_every_partition_of_a_session_is_fetched_though_a_request_names_what_changed_and_errors_are_of_one_answer(
    requests: list[Asked], copied: set[int]
) -> None:
    """Of partitions that are asked for and forgotten at once there are none."""
    of_session: dict[int, dict[int, int]] = {}
    lines, expected = [], []
    for n, (session, is_first, offsets, forget, errors, is_waited_for) in enumerate(requests):
        is_full, forgotten = is_first or session == 0, forget - offsets.keys()
        epoch = -1 if session == 0 else 0 if is_first else n + 1
        more = {"forget": forgotten, "errors": errors, "session": session}
        lines.append(fetch(1 + n, epoch, offsets, waited_ms=1.5 if is_waited_for else 1.0, **more))
        before = {} if is_full else of_session.get(session, {})
        of_session[session] = {p: o for p, o in before.items() if p not in forgotten} | offsets
        at_ms, failed = NOON + (1 + n) * 1000 - 3, set() if is_waited_for else errors
        expected += [(session, at_ms, p, o, 6 if p in failed else 0) for p, o in of_session[session].items()]
    found = fetches(lines, [line for n, line in enumerate(lines) if n in copied])
    assert sorted((f.session, f.ts, f.partition, f.offset, f.err) for f in found) == sorted(expected)


def test_an_append_ends_where_the_next_begins_and_the_last_where_a_follower_is() -> None:
    def produce(seconds: float, base: int) -> str:
        answer = {
            "responses": [{"name": "t", "partitionResponses": [{"index": 0, "errorCode": 0, "baseOffset": base}]}]
        }
        asked = {"topicData": [{"name": "t", "partitionData": [{"index": 0, "recordsSizeInBytes": 100}]}]}
        return request(seconds, "PRODUCE", asked, answer)

    lines = [produce(1, 0), produce(1.1, 4), fetch(1.2, 0, {0: 9})]
    facts, _ = read(lines)
    rows = woven([f for f in facts if f.what == What.PRODUCED] + fetches(lines))
    told = [of(row, "ev", "offset", "leo", "bytes", "src") for row in rows]
    assert told == [("append", 0, 4, 100, "inferred"), ("append", 4, 9, 100, "inferred"), ("fetch", 9, 9, None, "log")]


def test_a_request_of_an_old_kafka_and_a_torn_one_are_told_of() -> None:
    old = at(1, "Completed request:RequestHeader(apiKey=FETCH, apiVersion=11) -- {replica_id=2}")
    torn = fetch(1, 0, {0: 5})[:200]
    _, reader = read([old, torn])
    assert [bad.reason for bad in reader.bad] == ["unknown_text", "torn"]


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_fetch_that_names_topics_by_id_is_not_torn(forgotten: bool) -> None:
    """From version 13 on: the line is whole, but of no use without the names."""
    by_id = [{"topicId": "jFweP_mLQEG", "partitions": [0] if forgotten else [{"partition": 0, "fetchOffset": 5}]}]
    asked = {"replicaState": {"replicaId": 2}, "sessionId": 0, "sessionEpoch": 0, "topics": [], **(
        {"forgottenTopicsData": by_id} if forgotten else {"topics": by_id}
    )}  # fmt: skip
    facts, reader = read([request(1, "FETCH", asked, {"errorCode": 0, "sessionId": 77, "responses": []})])
    assert ([bad.reason for bad in reader.bad], facts) == (["unknown_text"], [])
