"""`kafka.request.logger`: a completed request as facts, and the fetch sessions of followers. Pure.

A line is written when the answer was sent; the request arrived `totalTimeMs` − `requestQueueTimeMs` before (to 1 ms).
Fetches are incremental: a request names what changed, and every partition of its session is fetched.
Source: isr-replay.md §8.6; Kafka `RequestChannel`, `FetchSession`, KIP-227.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from broker_sim.replay.logs.facts import Fact, What

BEGINS: Final = "Completed request:"
#: An answer later than this after the arrival was waited for: its errors are those of the completion.
_WAITED_MS: Final = 1.0
#: Errors with which a produce request has appended: none, timed out, not enough replicas after append.
_APPENDED: Final = (0, 7, 20)
#: Names of the APIs that are read.
_FETCH: Final = "FETCH"
_PRODUCE: Final = "PRODUCE"
_LEADER_AND_ISR: Final = "LEADER_AND_ISR"
#: Epochs of a fetch that begins a session, or has none.
_FULL: Final = (0, -1)
_NEEDED: Final = tuple(f'"requestApiKeyName":"{name}"' for name in (_FETCH, _PRODUCE, _LEADER_AND_ISR))


class TornRequest(ValueError):
    """The line is no whole request."""


class OldRequest(ValueError):
    """The line is of a Kafka before 2.7, which wrote requests as text, not as JSON."""


class NamesNoTopic(ValueError):
    """The request names topics by id: Fetch from version 13 on, Produce likewise. Nothing here has their names."""


def facts_of_request(text: str, ts: int) -> Iterator[dict[str, object]]:
    """What a completed request says; nothing for one of another API. `ts`: the line's time, ms.

    Raises: TornRequest, OldRequest, NamesNoTopic.
    """
    if not text.startswith("{", len(BEGINS)):
        raise OldRequest(text[:200])
    if not any(name in text for name in _NEEDED):
        return
    try:
        call = json.loads(text[len(BEGINS) :])
        request, response = call["request"], call["response"]
        _check_names(request)
        arrived_us = ts * 1000 - round((call["totalTimeMs"] - call["requestQueueTimeMs"]) * 1000)
        facts = list(_READERS[call["requestHeader"]["requestApiKeyName"]](call, request, response, arrived_us))
    except NamesNoTopic:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TornRequest(text[:200]) from error
    yield from facts


def _check_names(request: Any) -> None:
    for field_name in ("topics", "forgottenTopicsData", "topicData"):
        for topic in request.get(field_name) or ():
            if "topicId" in topic and topic.keys().isdisjoint(("topic", "name")):
                raise NamesNoTopic(topic["topicId"])


def _fetch(call: Any, request: Any, response: Any, arrived_us: int) -> Iterator[dict[str, object]]:
    """A follower's fetch, within its session; the first of a session names all."""
    replica = request.get("replicaId", -1)
    if replica < 0:
        replica = (request.get("replicaState") or {}).get("replicaId", -1)
    if replica < 0 or not isinstance(response, dict) or response.get("errorCode"):
        return
    epoch = request.get("sessionEpoch", -1)
    session = (response.get("sessionId") or 0) if epoch in _FULL else request["sessionId"]
    common = {"at_us": arrived_us, "session": session, "correlation": call["requestHeader"]["correlationId"]}
    yield {**common, "what": What.SESSION, "epoch": epoch, "replica": replica}
    for topic in request.get("forgottenTopicsData") or ():
        for partition in topic["partitions"]:
            yield {**common, "what": What.SESSION_FORGET, "topic": topic["topic"], "partition": partition}
    for topic in request["topics"]:
        for asked in topic["partitions"]:
            yield {
                **common,
                "what": What.SESSION_ASK,
                "topic": topic["topic"],
                "partition": asked["partition"],
                "offset": asked["fetchOffset"],
                "req_epoch": asked.get("currentLeaderEpoch", -1),
            }
    if call["remoteTimeMs"] > _WAITED_MS:
        return
    for topic in response["responses"]:
        for answer in topic["partitions"]:
            if answer["errorCode"]:
                where = {"topic": topic["topic"], "partition": answer["partitionIndex"]}
                yield {**common, **where, "what": What.SESSION_ERROR, "err": answer["errorCode"]}


def _produce(call: Any, request: Any, response: Any, arrived_us: int) -> Iterator[dict[str, object]]:
    """Appends; how many records one has is not in the line."""
    if not isinstance(response, dict):
        return
    sizes = {
        (topic["name"], part["index"]): part.get("recordsSizeInBytes")
        for topic in request.get("topicData") or ()
        for part in topic["partitionData"]
    }
    for topic in response.get("responses") or ():
        for part in topic["partitionResponses"]:
            if part["errorCode"] in _APPENDED and part["baseOffset"] >= 0:
                yield {
                    "at_us": arrived_us + round(call["localTimeMs"] * 1000),
                    "what": What.PRODUCED,
                    "topic": topic["name"],
                    "partition": part["index"],
                    "offset": part["baseOffset"],
                    "bytes": sizes.get((topic["name"], part["index"])),
                }


def _leader_and_isr(_: Any, request: Any, __: Any, arrived_us: int) -> Iterator[dict[str, object]]:
    for topic in request.get("topicStates") or ():
        for state in topic["partitionStates"]:
            yield {
                "at_us": arrived_us,
                "what": What.LED,
                "topic": topic["topicName"],
                "partition": state["partitionIndex"],
                "epoch": state["leaderEpoch"],
                "replica": state["leader"],
                "isr": state["isr"],
                "replicas": state["replicas"],
                "adding": state.get("addingReplicas") or [],
                "removing": state.get("removingReplicas") or [],
                "zk_version": state.get("partitionEpoch", state.get("zkVersion")),
            }


_READERS: Final = {_FETCH: _fetch, _PRODUCE: _produce, _LEADER_AND_ISR: _leader_and_isr}

_TopicPartition = tuple[str, int]


@dataclass(slots=True)
class Sessions:
    """The fetches of one broker's sessions. Feed it facts ordered by session, `at_us`, correlation, file, `sub`.

    Holds what one session asks for. A request that stands in two copies of a file counts once.
    """

    _session: int | None = None
    _request: tuple[int, int | None] | None = None
    _file: str | None = None
    _head: Fact | None = None
    _asked: dict[_TopicPartition, Fact] = field(default_factory=dict)
    _errors: dict[_TopicPartition, int] = field(default_factory=dict)

    def feed(self, fact: Fact) -> Iterator[Fact]:
        """The fetches of the request before, when this fact begins another."""
        request = (fact.at_us, fact.correlation)
        if fact.session != self._session or request != self._request:
            yield from self.finish()
            if fact.session != self._session:
                self._session, self._asked = fact.session, {}
            self._request, self._file = request, fact.file
        if fact.file != self._file:
            return
        where = (fact.topic or "", fact.partition or 0)
        if fact.what == What.SESSION:
            self._head = fact
            if fact.epoch in _FULL:
                self._asked = {}
        elif fact.what == What.SESSION_FORGET:
            self._asked.pop(where, None)
        elif fact.what == What.SESSION_ASK:
            self._asked[where] = fact
        elif fact.what == What.SESSION_ERROR:
            self._errors[where] = fact.err or 0

    def finish(self) -> Iterator[Fact]:
        """The fetches of the request that is open."""
        head, errors = self._head, self._errors
        self._head, self._errors = None, {}
        if head is None:
            return
        for (topic, partition), asked in self._asked.items():
            yield Fact(
                broker=head.broker,
                at_us=head.at_us,
                what=What.FETCH,
                topic=topic,
                partition=partition,
                ts=round(head.at_us / 1000),
                replica=head.replica,
                offset=asked.offset,
                req_epoch=asked.req_epoch,
                err=errors.get((topic, partition), 0),
                session=head.session,
                correlation=head.correlation,
            )
