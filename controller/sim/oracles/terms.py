"""What must hold of a replica's terms as leader, and of those who follow it: judged by the rows that leaders trace.

A plain version of rules that `traced` does not have: what becomes of the high watermark when a term ends or an ISR
change is under way, and what a fetch proves of the log of who sent it.
Source: Kafka 3.9 `Partition`, `AbstractFetcherThread`; KIP-101, KIP-227; spec broker.md §6.3, §12, §13.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from broker_sim.log.log import Log
from broker_sim.replicas.fetcher import ReplicaFetcher
from broker_sim.replicas.partition import Partition
from controller.sim.cluster import Cluster
from controller.sim.history import History
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.records import parse_header
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId, TopicPartition

#: So many requests later nothing of an earlier connection is under way any more.
SETTLED_REQUESTS: Final = 3


@dataclass(slots=True)
class Term:
    """One partition from becoming leader in an epoch on, as its rows tell."""

    epoch: int
    hw: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    #: follower -> the offset of its last fetch that counted
    offsets: dict[int, int] = field(default_factory=dict)
    #: those that the change under way lets in
    joining: frozenset[int] = frozenset()
    is_deciding: bool = False
    is_refused: bool = False
    #: the high watermark and since when, in virtual seconds, oldest first
    rises: list[tuple[int, float]] = field(default_factory=list)

    def reached_s(self, offset: int) -> float | None:
        """When the high watermark came to an offset."""
        return next((at_s for hw, at_s in self.rises if hw >= offset), None)


class Terms:
    """Judges each row and each decision. `broken` collects. Hang `row` on the brokers' traces, `event` on the log."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster, self._history = cluster, history
        self._terms: dict[tuple[int, TopicPartition], Term] = {}
        #: (leader's life, follower, partition) -> the connection and request that its last row came with
        self._requests: dict[tuple[object, int, TopicPartition], tuple[object, int]] = {}
        #: as `_requests` -> the offset of that row
        self._offsets: dict[tuple[object, int, TopicPartition], int] = {}
        #: a follower's connection -> the first request on it that was seen
        self._first: dict[object, int] = {}
        #: as `_requests` -> the connection and the epoch in which it was fenced
        self._fenced: dict[tuple[object, int, TopicPartition], tuple[object, int]] = {}
        self.broken: list[str] = []
        #: fetches whose logs were compared
        self.compared = 0

    def row(
        self, broker: BrokerId, event: TraceEvent, _ts: int, tp: TopicPartition | None, columns: Mapping[str, Any]
    ) -> None:
        """One row of one broker, in the moment of what it tells."""
        if tp is None:
            if event is TraceEvent.START:
                for key in [key for key in self._terms if key[0] == broker]:
                    del self._terms[key]
            return
        term = self._terms.get((broker, tp))
        if event is TraceEvent.FETCH:
            self._asked(broker, tp, columns)
        match event:
            case TraceEvent.LEADER:
                now_s, hw = self._cluster.world.loop.time(), columns["hw"]
                self._terms[broker, tp] = Term(
                    columns["epoch"], hw, tuple(columns["isr"]), tuple(columns["replicas"]), rises=[(hw, now_s)]
                )
            case TraceEvent.FOLLOWER | TraceEvent.STOP | TraceEvent.DOWN:
                self._terms.pop((broker, tp), None)
                if term is not None and event is TraceEvent.FOLLOWER:
                    self._stepped_down(broker, tp, term, columns)
            case TraceEvent.APPEND | TraceEvent.FETCH if term is not None:
                if event is TraceEvent.FETCH and columns["err"] == 0:
                    term.offsets[columns["replica"]] = columns["offset"]
                self._rose(broker, tp, term, columns["hw"])
            case TraceEvent.ISR_SHRINK | TraceEvent.ISR_EXPAND if term is not None and term.epoch == columns["epoch"]:
                self._settled(term, columns)

    # -- the high watermark ----------------------------------------------------------------------------------------

    def _stepped_down(self, broker: BrokerId, tp: TopicPartition, term: Term, columns: Mapping[str, Any]) -> None:
        """Who led and follows now keeps the high watermark that it had. Source: `Partition.makeFollower`; §6.3."""
        if columns["hw"] < term.hw:
            self.broken.append(
                f"a watermark is forgotten: broker {broker} led {tp} with {term.hw}, it follows with {columns['hw']}"
            )

    def _rose(self, broker: BrokerId, tp: TopicPartition, term: Term, hw: int) -> None:
        """Below `min.insync.replicas` it stands still, and it waits for who may be in the ISR already.

        Source: `Partition.maybeIncrementLeaderHW`, KAFKA-15583; broker.md §12.4.
        """
        if hw <= term.hw:
            return
        self._note(term, hw)
        if ahead := [r for r in sorted(term.joining) if r in term.replicas and term.offsets.get(r, -1) < hw]:
            self.broken.append(
                f"the watermark of {tp} on its leader {broker} rises to {hw} while {ahead} may be in its ISR: "
                f"they have fetched up to {[term.offsets.get(r, -1) for r in ahead]}"
            )
        needed = self._needed(tp, term)
        if len(term.isr) < needed:
            self.broken.append(
                f"the watermark of {tp} on its leader {broker} rises to {hw}, its ISR is {term.isr}, not {needed}"
            )

    def _note(self, term: Term, hw: int) -> None:
        if hw > term.hw:
            term.hw = hw
            term.rises.append((hw, self._cluster.world.loop.time()))

    def _needed(self, tp: TopicPartition, term: Term) -> int:
        shape = self._cluster.shape
        is_set = "min.insync.replicas" in self._history.configured[tp.topic]
        return 1 if shape is None or is_set else min(shape.min_insync_replicas, len(term.replicas))

    def reached_s(self, broker: int, tp: TopicPartition, offset: int) -> float | None:
        """Since when this leader has its high watermark there, in the present term; None: it has not, or leads not."""
        term = self._terms.get((broker, tp))
        return None if term is None else term.reached_s(offset)

    # -- changes of the ISR ----------------------------------------------------------------------------------------

    def event(self, event: Mapping[str, Any]) -> None:
        """What a program logged: after a refused write nothing is decided until the next LeaderAndIsr.

        Source: KIP-497 (`Partition.submitAlterPartition`, a pending state stays); isr-replay.md §3.5.
        """
        if event.get("event") not in (ev.ISR_SHRINK_DECIDED, ev.ISR_EXPAND_DECIDED):
            return
        broker, tp = event["broker_id"], TopicPartition(event["topic"], event["partition"])
        term = self._terms.get((broker, tp))
        if term is None or term.epoch != event["leader_epoch"]:
            return
        if term.is_refused:
            self.broken.append(f"broker {broker} decides on the ISR of {tp} again, though a write was refused: {event}")
        self._note(term, event["hw"])
        term.is_deciding = True
        term.joining = frozenset(event["replicas"] if event["event"] == ev.ISR_EXPAND_DECIDED else ())

    def _settled(self, term: Term, columns: Mapping[str, Any]) -> None:
        """The answer to the write of this term; what is told of a former one with the same epoch counts for nothing."""
        if not term.is_deciding:
            return
        if columns["err"] != 0:
            term.is_refused = True
        else:
            term.isr, term.joining, term.is_deciding = tuple(columns["isr"]), frozenset(), False

    # -- what a fetch proves ---------------------------------------------------------------------------------------

    def _asked(self, broker: BrokerId, tp: TopicPartition, columns: Mapping[str, Any]) -> None:
        leader, follower = self._replica(broker, tp), self._replica(columns["replica"], tp)
        if leader is None or follower is None:
            return
        if columns["err"] == 0:
            self._logs_match(broker, tp, leader, follower, columns)
        self._counted_once(broker, tp, columns)

    def _logs_match(
        self, broker: BrokerId, tp: TopicPartition, leader: Partition, follower: Partition, columns: Mapping[str, Any]
    ) -> None:
        """Who fetches from an offset has its leader's log up to there: truncation comes first, whatever was elected.

        Where both logs have the same epoch at an offset, they are the same up to it. Where compaction has left no batch
        there, a log that was loaded after a loss of power may not know its epoch. Epochs above the leader's are those
        of a former topic of that name, whose log nobody has deleted. Source: KIP-101, KIP-279; §13.1.
        """
        mine, other, end = leader.log, follower.log, columns["offset"]
        if mine is None or other is None or other.leo != end or follower.leader_epoch != columns["epoch"]:
            return
        if end <= max(mine.log_start_offset, other.log_start_offset):
            return
        self.compared += 1
        epochs = mine.epochs.epoch_for(end - 1), other.epochs.epoch_for(end - 1)
        if max(epochs) > columns["epoch"]:
            return
        if epochs[0] != epochs[1] and -1 not in epochs and all(_has_batch_at(log, end - 1) for log in (mine, other)):
            self.broken.append(
                f"broker {columns['replica']} fetches {tp} from {end} on, but has offset {end - 1} in epoch "
                f"{epochs[1]}, its leader {broker} in epoch {epochs[0]}: {other.epochs.entries}, {mine.epochs.entries}"
            )

    def _counted_once(self, broker: BrokerId, tp: TopicPartition, columns: Mapping[str, Any]) -> None:
        """A fetch counts once, on arrival (one that waited may be fenced when it ends, which counts nothing); and who
        was told on a connection that its epoch is over does not ask in it again there: it waits for the controller.
        Source: `ReplicaManager.fetchMessages`, `Partition.fetchRecords`; `AbstractFetcherThread.onPartitionFenced`;
        §12.2, §13.
        """
        follower, key = columns["replica"], (self._cluster.brokers.get(broker), columns["replica"], tp)
        if (request := self._request(follower, broker, tp)) is None:
            return
        connection, number = request
        is_settled = number >= self._first.setdefault(connection, number) + SETTLED_REQUESTS
        # Another offset is that of a request of a former connection, which may come late.
        is_again = self._requests.get(key) == request and self._offsets.get(key) == columns["offset"]
        if is_again and is_settled and columns["err"] == 0:
            self.broken.append(f"broker {broker} counts one fetch of {tp} by {follower} twice: {dict(columns)}")
        fenced = self._fenced.get(key)
        if columns["err"] == ErrorCode.FENCED_LEADER_EPOCH:
            here = connection, columns["req_epoch"]
            if fenced == here and self._requests.get(key) != request:
                self.broken.append(f"broker {follower} was fenced by {broker} and asks on: {tp}, {dict(columns)}")
            self._fenced[key] = here
        self._requests[key], self._offsets[key] = request, columns["offset"]

    def _request(self, follower: int, leader: int, tp: TopicPartition) -> tuple[object, int] | None:
        """The connection of a follower to its leader, and the number of the request that waits for its answer there."""
        for fetcher in self._fetchers(follower, leader):
            connection = fetcher._client._connection
            if tp in fetcher and connection is not None and connection.waits_for is not None:
                return connection, connection.waits_for
        return None

    def _fetchers(self, follower: int, leader: int) -> Iterator[ReplicaFetcher]:
        broker = self._cluster.brokers.get(follower)
        if broker is not None and broker.replicas is not None:
            for (to, _), fetcher in broker.replicas.fetchers.fetchers.items():
                if to == leader:
                    yield fetcher

    def _replica(self, number: int, tp: TopicPartition) -> Partition | None:
        broker = self._cluster.brokers.get(number)
        hosting = broker.replicas if broker is not None else None
        return hosting.table.partitions.get(tp) if hosting is not None else None


def _has_batch_at(log: Log, offset: int) -> bool:
    """Whether a batch of the log has this offset, which is below its end."""
    data = log.read(offset, max_bytes=1, bound=log.leo, min_one=True)
    return bool(data) and parse_header(data).base_offset <= offset
