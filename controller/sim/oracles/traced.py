"""What must hold of the leaders' decisions: who is in sync, and how far the high watermark goes.

A second version of the rules, slow and plain, fed by the rows that brokers trace and by what they log when they decide.
It knows nothing of `broker_sim.isr`: a follower has caught up at the last moment at which it lacked no record.
All times are those of the rows: ms on the leader's clock.
Source: Kafka 3.9 `Partition`, `ReplicaManager.maybeShrinkIsr`; spec isr-replay.md §2, §3; broker.md §12.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from broker_sim.trace import TraceWriter
from controller.sim.cluster import Cluster
from controller.sim.history import History, StateWritten
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.trace import STOP_KEEP, TraceEvent
from controller.wire.types import BrokerId, TopicPartition

Seen = Callable[[BrokerId, TraceEvent, int, TopicPartition | None, Mapping[str, Any]], None]
_NEVER: Final = -(1 << 62)


class WatchedTrace(TraceWriter):
    """A trace whose rows are also handed to each of `seen`, before they are collapsed; written where there is a
    folder, and `opened` has it after those of all lives before it."""

    def __init__(
        self,
        broker_id: BrokerId,
        trace_dir: Path | None,
        *,
        start_ms: int,
        seen: Sequence[Seen],
        opened: list[WatchedTrace],
    ) -> None:
        own = trace_dir and trace_dir / str(len(opened))  # clocks jump: two lives may start in the same ms
        super().__init__(broker_id, own, start_ms=start_ms)
        self._seen = seen
        self._apart: frozenset[str] = frozenset()
        opened.append(self)

    def rows(self) -> list[dict[str, Any]]:
        """The rows so far, but for those of topics of which the beginning was forgotten."""
        self.flush_runs()
        lines = self.path.read_text().splitlines() if self.path is not None else []
        return [row for row in json.loads(f"[{','.join(lines)}]") if row.get("topic") not in self._apart]

    def forget(self, ongoing: Collection[str]) -> None:
        """What was told of topics and of the moments of the broker is gone. Topics that go on are told of no more: what
        follows could not be understood."""
        self._apart |= set(ongoing)
        kept = [row for row in self.rows() if "topic" not in row and row["ev"] != TraceEvent.TICK.value]
        if self.path is not None:  # written to at its end, wherever that is
            self.path.write_text("".join(f"{json.dumps(row)}\n" for row in kept))
            self._written = self.path.stat().st_size

    def row(self, ev: TraceEvent, ts: int, topic_partition: TopicPartition | None = None, **columns: Any) -> None:
        """See `TraceWriter.row`."""
        if ev not in (TraceEvent.APPEND, TraceEvent.FETCH):
            self._tell(ev, ts, topic_partition, columns)
        super().row(ev, ts, topic_partition, **columns)

    def append_row(self, ts: int, topic_partition: TopicPartition, **columns: Any) -> None:
        """See `TraceWriter.append_row`."""
        self._tell(TraceEvent.APPEND, ts, topic_partition, columns)
        super().append_row(ts, topic_partition, **columns)

    def fetch_row(self, ts: int, topic_partition: TopicPartition, **columns: Any) -> None:
        """See `TraceWriter.fetch_row`."""
        self._tell(TraceEvent.FETCH, ts, topic_partition, columns)
        super().fetch_row(ts, topic_partition, **columns)

    def _tell(
        self, ev: TraceEvent, ts: int, topic_partition: TopicPartition | None, columns: Mapping[str, Any]
    ) -> None:
        for seen in self._seen:
            seen(self.broker, ev, ts, topic_partition, columns)


@dataclass(slots=True)
class Led:
    """One partition in the present term of its leader, as its rows tell."""

    epoch: int
    epoch_start: int
    hw: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    #: when the log had which end: both rise
    end_times: list[int]
    ends: list[int]
    #: how many members the ISR had when the log got each of these ends
    members: list[int] = field(default_factory=list)
    #: follower -> the offset of its last fetch that counted
    offsets: dict[int, int] = field(default_factory=dict)
    #: follower -> the last time at which it certainly lacked nothing, and the last at which it may have lacked nothing
    surely_whole: dict[int, int] = field(default_factory=dict)
    perhaps_whole: dict[int, int] = field(default_factory=dict)
    #: members that the tick of this moment must drop
    must_leave: frozenset[int] = frozenset()
    tick_ms: int = 0
    #: since when, in virtual seconds, the ISR is what it is
    isr_since_s: float = 0.0

    @property
    def leo(self) -> int:
        """Where the log ends."""
        return self.ends[-1]


class Traced:
    """Judges each row and each decision. `broken` collects. Hang `row` on the brokers' traces, `event` on the log."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster, self._history = cluster, history
        self._led: dict[tuple[int, TopicPartition], Led] = {}
        #: what led when it was stopped, and not deleted: where it leads again, it knows its followers still
        self._stopped: dict[tuple[int, TopicPartition], Led] = {}
        #: brokers whose last tick found somebody who must leave
        self._found_late: set[int] = set()
        #: (broker, partition) -> (the broker's life, the high watermark when it was last looked at)
        self._watermarks: dict[tuple[int, TopicPartition], tuple[object, int]] = {}
        #: the high watermark with which the last leader began
        self._began_with: dict[TopicPartition, int] = {}
        self.broken: list[str] = []
        self.rows = 0

    def row(
        self, broker: BrokerId, event: TraceEvent, ts: int, tp: TopicPartition | None, columns: Mapping[str, Any]
    ) -> None:
        """One row of one broker, in the moment of what it tells."""
        self.rows += 1
        self._must_have_left(broker)
        if tp is None:
            if event is TraceEvent.TICK:
                self._tick(broker, ts)
            elif event is TraceEvent.START:
                for lives in (self._led, self._stopped):
                    for key in [key for key in lives if key[0] == broker]:
                        del lives[key]
            return
        led = self._led.get((broker, tp))
        match event:
            case TraceEvent.LEADER:
                before = self._stopped.pop((broker, tp), led)
                self._led[broker, tp] = self._leader(broker, tp, ts, columns, before)
            case TraceEvent.STOP if columns["value"] == STOP_KEEP and led is not None:
                self._stopped[broker, tp] = self._led.pop((broker, tp))
            case TraceEvent.FOLLOWER | TraceEvent.STOP | TraceEvent.DOWN:
                self._led.pop((broker, tp), None)
                self._stopped.pop((broker, tp), None)
                if (
                    event is TraceEvent.STOP and columns["value"] != STOP_KEEP
                ):  # its log is gone: what comes has another
                    self._watermarks.pop((broker, tp), None)
            case TraceEvent.APPEND if led is not None:
                led.end_times.append(ts)
                led.ends.append(columns["leo"])
                led.members.append(len(led.isr))
                self._rose(broker, tp, led, columns["hw"])
            case TraceEvent.FETCH if led is not None:
                self._fetch(broker, tp, ts, columns, led)
            case TraceEvent.ISR_SHRINK | TraceEvent.ISR_EXPAND:
                self._written(broker, tp, columns, led)

    def looked_at(self, broker_id: int, life: object, tp: TopicPartition, hw: int) -> None:
        """The high watermark of a replica, now and then. A follower's may fall to that with which its leader began."""
        leads = (broker_id, tp) in self._led
        self._watermarks[broker_id, tp] = life, hw if leads else min(hw, self._began_with.get(tp, hw))

    # -- leadership ------------------------------------------------------------------------------------------------

    def _leader(
        self, broker: BrokerId, tp: TopicPartition, ts: int, columns: Mapping[str, Any], before: Led | None
    ) -> Led:
        """A term begins. What is announced was written; the high watermark is at least that of the time before."""
        name = f"broker {broker} leads {tp} in epoch {columns['epoch']}"
        key = columns["zk_version"], int(broker), columns["epoch"], tuple(columns["isr"])
        if not self._history.announced(tp.topic, tp.partition, key):
            self.broken.append(f"a term that nobody wrote: {name} as {key}")
        hw, leo = columns["hw"], columns["leo"]
        life, earlier_hw = self._watermarks.get((broker, tp), (None, 0))
        is_known = life is self._cluster.brokers.get(broker) and tp not in self._history.lost
        if is_known and tp.topic not in self._cluster.deletable and hw < min(earlier_hw, leo):
            self.broken.append(f"a watermark is forgotten: {name} with watermark {hw}, it had {earlier_hw}, end {leo}")
        self._began_with[tp] = hw
        for other in self._cluster.brokers:
            if other != broker and (seen := self._watermarks.get((other, tp))) is not None:
                self._watermarks[other, tp] = seen[0], min(seen[1], hw)
        led = Led(columns["epoch"], leo, hw, tuple(columns["isr"]), tuple(columns["replicas"]), [ts], [leo])
        led.members.append(len(led.isr))
        for replica in led.replicas:
            led.offsets[replica] = before.offsets.get(replica, -1) if before is not None else -1
            is_member = replica in led.isr
            led.surely_whole[replica] = led.perhaps_whole[replica] = ts if is_member else _NEVER
        led.isr_since_s = self._cluster.world.loop.time()
        return led

    # -- who is in sync --------------------------------------------------------------------------------------------

    def _fetch(self, broker: BrokerId, tp: TopicPartition, ts: int, columns: Mapping[str, Any], led: Led) -> None:
        replica, offset = columns["replica"], columns["offset"]
        if columns["err"] == 0:
            led.offsets[replica] = offset
            if offset >= led.leo:
                led.surely_whole[replica] = max(ts, led.surely_whole.get(replica, _NEVER))
                at = ts
            else:
                # until the append that took the log beyond the offset it lacked nothing
                place = bisect_right(led.ends, offset)
                at = led.end_times[place] if place else _NEVER
            led.perhaps_whole[replica] = max(at, led.perhaps_whole.get(replica, _NEVER))
        self._rose(broker, tp, led, columns["hw"])

    def _tick(self, broker: BrokerId, ts: int) -> None:
        """Every member that has lacked something for longer than the limit must be dropped, now."""
        limit = self._limit_ms
        for (owner, tp), led in self._led.items():
            if owner != broker:
                continue
            led.tick_ms = ts
            if not self._is_free(broker, tp):
                continue
            led.must_leave = frozenset(
                replica
                for replica in led.isr
                if replica != broker
                and replica in led.replicas
                and led.offsets.get(replica, -1) != led.leo
                and ts - led.perhaps_whole.get(replica, _NEVER) > limit
            )
            if led.must_leave:
                self._found_late.add(broker)

    def _must_have_left(self, broker: BrokerId) -> None:
        if broker not in self._found_late:
            return
        self._found_late.discard(broker)
        for (owner, tp), led in self._led.items():
            if owner == broker and led.must_leave:
                self.broken.append(
                    f"a laggard stays: broker {broker} does not drop {sorted(led.must_leave)} of {tp}, end {led.leo}, "
                    f"last fetches at {led.offsets}, whole at {led.perhaps_whole}"
                )
                led.must_leave = frozenset()

    def _is_free(self, broker: BrokerId, tp: TopicPartition) -> bool:
        """Whether no ISR write of it is under way; then the rule applies."""
        owner_broker = self._cluster.brokers.get(broker)
        replica = (
            owner_broker.replicas.table.partitions.get(tp)
            if owner_broker is not None and owner_broker.replicas is not None
            else None
        )
        return replica is not None and replica.led is not None and replica.led.pending is None

    @property
    def _limit_ms(self) -> int:
        return int(self._cluster.settings["replica.lag.time.max.ms"])

    def event(self, event: Mapping[str, Any]) -> None:
        """What a program logged: decisions about ISRs are judged in their moment."""
        if event.get("event") not in (ev.ISR_SHRINK_DECIDED, ev.ISR_EXPAND_DECIDED):
            return
        broker, tp = event["broker_id"], TopicPartition(event["topic"], event["partition"])
        led = self._led.get((broker, tp))
        if led is None:
            return
        if event["event"] == ev.ISR_SHRINK_DECIDED:
            self._shrinks(broker, tp, led, event)
        else:
            self._expands(broker, tp, led, event)

    def _shrinks(self, broker: int, tp: TopicPartition, led: Led, event: Mapping[str, Any]) -> None:
        left = set(event["replicas"])
        if missing := led.must_leave - left:
            self.broken.append(f"a laggard stays: broker {broker} drops {sorted(left)} of {tp}, not {sorted(missing)}")
        led.must_leave = frozenset()
        for replica in sorted(left & set(led.replicas)):
            if led.tick_ms - led.surely_whole.get(replica, _NEVER) <= self._limit_ms:
                self.broken.append(
                    f"broker {broker} drops {replica} of {tp} at {led.tick_ms}, whole at {led.surely_whole[replica]}"
                )
            if led.offsets.get(replica, -1) == led.leo:
                self.broken.append(f"broker {broker} drops {replica} of {tp}, which is at its end {led.leo}")
        if broker in left or not event["isr"]:
            self.broken.append(f"broker {broker} drops itself of {tp}: {event}")

    def _expands(self, broker: int, tp: TopicPartition, led: Led, event: Mapping[str, Any]) -> None:
        for replica in event["replicas"]:
            offset, needed = led.offsets.get(replica, -1), max(event["hw"], led.epoch_start)
            if offset < needed or replica not in led.replicas:
                self.broken.append(
                    f"broker {broker} takes {replica} into the ISR of {tp} at offset {offset}: watermark "
                    f"{event['hw']}, the epoch starts at {led.epoch_start}, replicas {led.replicas}"
                )

    def _written(self, broker: BrokerId, tp: TopicPartition, columns: Mapping[str, Any], led: Led | None) -> None:
        """A write that succeeded is in ZooKeeper's history under the version that the broker takes it for."""
        if columns["err"] != 0:
            return
        key = columns["zk_version"], int(broker), columns["epoch"], tuple(columns["isr"])
        if not self._history.announced(tp.topic, tp.partition, key) and tp.topic not in self._cluster.deletable:
            self.broken.append(f"an ISR that nobody wrote: broker {broker} takes {tp} for {key}")
        if led is not None and led.epoch == columns["epoch"]:
            led.isr, led.isr_since_s = tuple(columns["isr"]), self._cluster.world.loop.time()

    # -- what producers were told ----------------------------------------------------------------------------------

    def acknowledged(self, broker: int, partition: tuple[str, int], end: int, sent_s: float) -> None:
        """A producer with acks=all, whose turn came at `sent_s`, was answered without an error up to `end`.

        They are below the high watermark of who answered, and its ISR had `min.insync.replicas` members at some time in
        between. Source: broker.md §12.6.
        """
        tp = TopicPartition(*partition)
        led, owner_broker = self._led.get((broker, tp)), self._cluster.brokers.get(broker)
        replica = (
            owner_broker.replicas.table.partitions.get(tp)
            if owner_broker is not None and owner_broker.replicas is not None
            else None
        )
        if replica is None or replica.led is None or led is None or tp in self._history.lost:
            return
        if replica.led.epoch == led.epoch and replica.hw < end:
            self.broken.append(f"broker {broker} acknowledged {tp} up to {end}, its watermark is {replica.hw}")
        shape = self._cluster.shape
        needed = min(shape.min_insync_replicas, len(led.replicas)) if shape is not None else 1
        is_set = "min.insync.replicas" in self._history.configured[tp.topic]
        if len(led.isr) < needed and led.isr_since_s < sent_s and not is_set:
            self.broken.append(f"broker {broker} acknowledged {tp} up to {end} with ISR {led.isr}, {needed} are needed")
        if replica.led.epoch == led.epoch and end > led.epoch_start and not is_set:
            place = bisect_left(led.ends, end)
            members = led.members[place] if place < len(led.members) else needed
            if members < needed:
                self.broken.append(f"broker {broker} stored {tp} up to {end} with {members} in its ISR, not {needed}")

    def answered(self, broker: int, partition: tuple[str, int], error: ErrorCode, sent_s: float) -> None:
        """What a producer with acks=all, which asked at `sent_s`, was told: with too few members, that there are too
        few, and nothing is stored. Source: broker.md §12.6."""
        tp = TopicPartition(*partition)
        led, shape = self._led.get((broker, tp)), self._cluster.shape
        if led is None or shape is None or "min.insync.replicas" in self._history.configured[tp.topic]:
            return
        needed = min(shape.min_insync_replicas, len(led.replicas))
        is_stored = error in (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT)
        if len(led.isr) < needed and led.isr_since_s < sent_s and is_stored:
            self.broken.append(f"broker {broker} stored what it had to refuse, {tp} with ISR {led.isr}: {error.name}")

    # -- the high watermark ----------------------------------------------------------------------------------------

    def _rose(self, broker: BrokerId, tp: TopicPartition, led: Led, hw: int) -> None:
        """It never falls in a term, and rises only to what all members of the ISR in ZooKeeper have fetched.

        One that a move is about to remove is a member still, but the leader has been told that it is no replica. Where
        somebody damages the state, a leader that restarts is told of the ISR that was believed before.
        """
        before, led.hw = led.hw, max(hw, led.hw)
        if hw < before:
            self.broken.append(f"the watermark of {tp} on its leader {broker} falls from {before} to {hw}")
        if hw <= before:
            return
        if hw > led.leo:
            self.broken.append(f"the watermark of {tp} on its leader {broker} is {hw}, the log ends at {led.leo}")
        written = self._newest(tp)
        if written is None or written.leader_epoch != led.epoch or written.leader != broker:
            return
        for member in written.isr if tp not in self._history.damaged else ():
            if member in led.replicas and member != broker and led.offsets.get(member, -1) < hw:
                self.broken.append(
                    f"the watermark of {tp} on its leader {broker} rises to {hw}: ISR member {member} has fetched up "
                    f"to {led.offsets.get(member, -1)}, the ISR is {written.isr}"
                )

    def _newest(self, tp: TopicPartition) -> StateWritten | None:
        rows = self._history.states[tp]
        return rows[-1] if rows and tp.topic not in self._cluster.deletable else None
