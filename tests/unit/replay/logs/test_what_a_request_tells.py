"""One line of kafka.request.logger: whose request counts, what is taken of it and of its answer, and when it came."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker_sim.replay.logs.facts import Fact, What
from broker_sim.replay.logs.request_lines import (
    BEGINS,
    NamesNoTopic,
    OldRequest,
    Sessions,
    TornRequest,
    facts_of_request,
)

AT = 1_700_000_000_000


def line(api: str, asked: Any, answer: Any, **times: float) -> str:
    spent = {"totalTimeMs": 9.5, "requestQueueTimeMs": 2.25, "localTimeMs": 1.5, "remoteTimeMs": 0.0, **times}
    header = {"requestApiKeyName": api, "correlationId": 42}
    call = {"requestHeader": header, "request": asked, "response": answer, **spent}
    return BEGINS + json.dumps(call, separators=(",", ":"))


def told(api: str, asked: Any, answer: Any, **times: float) -> list[dict[str, object]]:
    return list(facts_of_request(line(api, asked, answer, **times), AT))


#: 9.5 ms before the line was written, but for the 2.25 that it lay in the queue before anybody read it
ARRIVED_US = AT * 1000 - 7_250

# -- fetches ----------------------------------------------------------------------------------------------------------

ASKED = {
    "replicaId": 2,
    "sessionId": 77,
    "sessionEpoch": 5,
    "topics": [{"topic": "t", "partitions": [{"partition": 1, "currentLeaderEpoch": 3, "fetchOffset": 40}]}],
    "forgottenTopicsData": [{"topic": "gone", "partitions": [4, 6]}],
}
ANSWER = {
    "errorCode": 0,
    "sessionId": 78,
    "responses": [
        {"topic": "t", "partitions": [{"partitionIndex": 1, "errorCode": 6}, {"partitionIndex": 2, "errorCode": 0}]}
    ],
}


def test_the_whole_of_a_fetch() -> None:
    common = {"at_us": ARRIVED_US, "session": 77, "correlation": 42}
    ask = {**common, "what": What.SESSION_ASK, "topic": "t", "partition": 1, "offset": 40, "req_epoch": 3}
    assert told("FETCH", ASKED, ANSWER) == [
        {**common, "what": What.SESSION, "epoch": 5, "replica": 2},
        {**common, "what": What.SESSION_FORGET, "topic": "gone", "partition": 4},
        {**common, "what": What.SESSION_FORGET, "topic": "gone", "partition": 6},
        ask,
        {**common, "what": What.SESSION_ERROR, "topic": "t", "partition": 1, "err": 6},
    ]
    without = {name: value for name, value in ASKED.items() if name != "forgottenTopicsData"}
    no_epoch = [{"topic": "t", "partitions": [{"partition": 1, "fetchOffset": 40}]}]
    assert told("FETCH", without | {"topics": no_epoch}, ANSWER)[1] == {**ask, "req_epoch": -1}


@pytest.mark.parametrize(("waited_ms", "errors"), [(0.0, 1), (1.0, 1), (1.01, 0)])
def test_errors_of_an_answer_that_was_waited_for_are_not_of_the_arrival(waited_ms: float, errors: int) -> None:
    found = told("FETCH", ASKED, ANSWER, remoteTimeMs=waited_ms)
    assert sum(fact["what"] == What.SESSION_ERROR for fact in found) == errors
    assert sum(fact["what"] == What.SESSION_ASK for fact in found) == 1


#: who asks, as old and new requests say it -> whose fetch it is; None: of a client, or of a broker that does not say
WHO = [
    ({"replicaId": 2}, 2),
    ({"replicaId": 0}, 0),
    ({"replicaId": -1}, None),
    ({"replicaId": -2}, None),
    ({"replicaState": {"replicaId": 2, "replicaEpoch": 9}}, 2),
    ({"replicaState": {"replicaId": 0, "replicaEpoch": 9}}, 0),
    ({"replicaState": {"replicaId": -1, "replicaEpoch": -1}}, None),
    ({"replicaId": -1, "replicaState": {"replicaId": 2}}, 2),
    ({"replicaId": 2, "replicaState": None}, 2),
    ({"replicaState": None}, None),
    ({"replicaState": {}}, None),
    ({}, None),
]


@pytest.mark.parametrize(("says", "replica"), WHO)
def test_only_followers_fetches_count(says: dict[str, Any], replica: int | None) -> None:
    asked = {name: value for name, value in ASKED.items() if name != "replicaId"} | says
    found = told("FETCH", asked, ANSWER)
    assert found[:1] == [] if replica is None else found[0]["replica"] == replica
    assert bool(found) is (replica is not None)


#: the epoch of a fetch, what the answer says of its session -> its session
SESSIONS = [
    (0, {"sessionId": 78}, 78),
    (-1, {"sessionId": 0}, 0),
    (-1, {}, 0),
    (-1, {"sessionId": None}, 0),
    (None, {"sessionId": 0}, 0),
    (5, {"sessionId": 78}, 77),
    (1, {"sessionId": 0}, 77),
]


@pytest.mark.parametrize(("epoch", "says", "session"), SESSIONS)
def test_the_answer_names_a_session_that_begins_and_the_request_one_that_goes_on(
    epoch: int | None, says: dict[str, Any], session: int
) -> None:
    asked = {k: v for k, v in (ASKED | {"sessionEpoch": epoch}).items() if v is not None}
    found = told("FETCH", asked, {"errorCode": 0, "responses": [], **says})
    assert {fact["session"] for fact in found} == {session}
    assert found[0]["epoch"] == (-1 if epoch is None else epoch)


@pytest.mark.parametrize("answer", [{**ANSWER, "errorCode": 71}, None])
def test_a_fetch_that_was_refused_as_a_whole_records_nothing(answer: Any) -> None:
    assert told("FETCH", ASKED, answer) == []
    assert told("FETCH", ASKED, {k: v for k, v in ANSWER.items() if k != "errorCode"}), "old answers have none"


# -- appends ----------------------------------------------------------------------------------------------------------


def produced(parts: list[dict[str, Any]], asked: Any = None) -> list[dict[str, object]]:
    sizes = [{"index": 0, "recordsSizeInBytes": 100}, {"index": 1, "recordsSizeInBytes": 7}, {"index": 2}]
    of_topics = [{"name": name, "partitionData": sizes if name == "t" else []} for name in ("u", "t")]
    answer = {"responses": [{"name": "t", "partitionResponses": parts}]}
    return told("PRODUCE", {"topicData": of_topics} if asked is None else asked, answer)


def test_the_whole_of_an_append() -> None:
    common = {"at_us": ARRIVED_US + 1_500, "what": What.PRODUCED, "topic": "t"}
    parts = [{"index": index, "errorCode": 0, "baseOffset": 10 * index} for index in range(4)]
    assert produced(parts) == [
        {**common, "partition": 0, "offset": 0, "bytes": 100},
        {**common, "partition": 1, "offset": 10, "bytes": 7},
        {**common, "partition": 2, "offset": 20, "bytes": None},
        {**common, "partition": 3, "offset": 30, "bytes": None},
    ]
    assert [fact["bytes"] for fact in produced(parts[:2], asked={})] == [None, None]


#: an error, where the log ended before -> has it appended
APPENDED = [(0, 5, True), (0, 0, True), (7, 5, True), (20, 5, True), (0, -1, False), (7, -1, False), (19, 5, False),
            (6, -1, False), (87, 5, False)]  # fmt: skip


@pytest.mark.parametrize(("error", "base", "is_appended"), APPENDED)
def test_what_has_an_offset_and_no_error_that_comes_before_is_appended(
    error: int, base: int, is_appended: bool
) -> None:
    """7: timed out, 20: too few in sync after it was appended; 19: too few before."""
    assert bool(produced([{"index": 0, "errorCode": error, "baseOffset": base}])) is is_appended


@pytest.mark.parametrize("answer", [None, {}, {"responses": None}])
def test_a_producer_that_asked_for_no_answer_has_none(answer: Any) -> None:
    assert told("PRODUCE", {"topicData": []}, answer) == []


# -- leaderships ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["partitionEpoch", "zkVersion", None])
@pytest.mark.parametrize("moves", [True, False])
def test_the_whole_of_a_leadership(version: str | None, moves: bool) -> None:
    state = {"partitionIndex": 3, "leaderEpoch": 8, "leader": 2, "isr": [2, 1], "replicas": [1, 2, 4]}
    state |= {version: 6} if version else {}
    state |= {"addingReplicas": [4], "removingReplicas": [1]} if moves else {}
    asked = {"topicStates": [{"topicName": "t", "partitionStates": [state, {**state, "partitionIndex": 5}]}]}
    first, second = told("LEADER_AND_ISR", asked, {"errorCode": 0})
    assert first == {
        "at_us": ARRIVED_US, "what": What.LED, "topic": "t", "partition": 3, "epoch": 8, "replica": 2, "isr": [2, 1],
        "replicas": [1, 2, 4], "adding": [4] if moves else [], "removing": [1] if moves else [],
        "zk_version": 6 if version else None,
    }  # fmt: skip
    assert second == first | {"partition": 5}
    assert told("LEADER_AND_ISR", {}, None) == []


# -- lines that are of no use -----------------------------------------------------------------------------------------


def test_other_requests_say_nothing_whatever_they_are() -> None:
    assert told("UPDATE_METADATA", {"topicStates": 5}, None) == []
    assert told("FETCH_SNAPSHOT", None, None) == []
    assert list(facts_of_request(line("METADATA", None, None)[:-9], AT)) == [], "nor where they are torn"


def of_a_fetch(**asked: Any) -> str:
    return line("FETCH", ASKED | asked, ANSWER)


NO_USE = [
    (BEGINS + "RequestHeader(apiKey=FETCH) -- {}", OldRequest),
    (of_a_fetch()[:-30], TornRequest),
    (line("FETCH", None, ANSWER), TornRequest),
    (line("FETCH", {"replicaId": 2}, ANSWER), TornRequest),
    (line("FETCH", ASKED, ANSWER, totalTimeMs="soon"), TornRequest),
    (of_a_fetch(topics=[{"topicId": "x", "partitions": []}]), NamesNoTopic),
    (of_a_fetch(forgottenTopicsData=[{"topicId": "x", "partitions": []}]), NamesNoTopic),
    (line("PRODUCE", {"topicData": [{"topicId": "x", "partitionData": []}]}, {"responses": []}), NamesNoTopic),
]


@pytest.mark.parametrize(("text", "error"), NO_USE)
def test_a_line_that_cannot_be_used_is_told_of_and_nothing_of_it_is_taken(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        next(facts_of_request(text, AT))


def test_a_request_may_have_the_id_beside_the_name_of_a_topic() -> None:
    both = [{"topicId": "x", "topic": "t", "partitions": [{"partition": 1, "fetchOffset": 40}]}]
    assert len(list(facts_of_request(of_a_fetch(topics=both, forgottenTopicsData=[]), AT))) == 3


# -- sessions ---------------------------------------------------------------------------------------------------------


def of_session(what: str, **columns: Any) -> Fact:
    return Fact(broker=1, at_us=1_500, what=what, session=77, correlation=42, file="a.log", **columns)


def test_the_whole_of_a_recorded_fetch() -> None:
    sessions = Sessions()
    facts = [
        of_session(What.SESSION, epoch=0, replica=2),
        of_session(What.SESSION_ASK, topic="t", partition=0, offset=40, req_epoch=3),
        of_session(What.SESSION_ASK, topic="u", partition=1, offset=50, req_epoch=4),
        of_session(What.SESSION_ERROR, topic="u", partition=1, err=6),
        of_session(What.SESSION_ERROR, topic="t", partition=0),
    ]
    assert [told for fact in facts for told in sessions.feed(fact)] == []
    common = {"broker": 1, "at_us": 1_500, "what": What.FETCH, "ts": 2, "replica": 2, "session": 77, "correlation": 42}
    assert list(sessions.finish()) == [
        Fact(**common, topic="t", partition=0, offset=40, req_epoch=3, err=0),
        Fact(**common, topic="u", partition=1, offset=50, req_epoch=4, err=6),
    ]
    assert list(sessions.finish()) == []


@pytest.mark.parametrize("differs", [{"session": 78}, {"correlation": 43}, {"at_us": 1_501}])
def test_requests_differ_by_their_session_their_number_or_their_time(differs: dict[str, int]) -> None:
    """Each that names all it wants is of its own partitions."""
    sessions = Sessions()
    first = [of_session(What.SESSION, epoch=0, replica=2), of_session(What.SESSION_ASK, topic="t", partition=0)]
    second = [of_session(What.SESSION, epoch=0, replica=3), of_session(What.SESSION_ASK, topic="t", partition=1)]
    facts = [*first, *(fact._replace(**differs) for fact in second)]
    told = [*(found for fact in facts for found in sessions.feed(fact)), *sessions.finish()]
    assert [(fact.replica, fact.partition) for fact in told] == [(2, 0), (3, 1)]
