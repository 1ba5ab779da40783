"""What a fluid broker leads: what it has seen of each follower, told to the leader's own rule, and what that decides.

The rule (`isr`) is the live leader's. It is told what a leader would have seen: an append up to the end and a fetch at
the position, whenever a follower catches up or falls behind, and before each expiration tick. A follower that is behind
fetches once per round trip; two such fetches are told at a tick, so that the rule sees whether it was at the end of one
fetch ago. What follows from a decision (write, notices, trace rows) is `replicas.isr_updates`, as in a live broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from broker_sim.fluid.clients import Clients
from broker_sim.fluid.copies import Copy, Stream
from broker_sim.fluid.plane import DataPlane
from broker_sim.fluid.settings import FluidSettings
from broker_sim.isr import IsrChange, LedPartition
from broker_sim.replicas.isr_updates import IsrUpdates
from broker_sim.replicas.led_table import LedReplica
from broker_sim.trace import TraceWriter
from controller.wire.types import BrokerId, TopicPartition
from controller.world.ports import Clock
from controller.world.supervisor import Supervisor

#: `replica.fetch.wait.max.ms`: so often a follower that has everything asks again, and may then be let in.
FETCH_AGAIN_S: Final = 0.5


class _Nobody:
    """Nobody waits in a fluid broker's purgatory."""

    def wake(self) -> None:
        """Nothing to do."""


@dataclass(slots=True, eq=False)
class FluidReplica:
    """One replica. Exactly one of `led` and `copy` is set while it has a role."""

    topic_partition: TopicPartition
    end_bytes: float = 0.0
    leader_epoch: int = -1
    controller_epoch: int = -1
    partition_epoch: int = -1
    led: LedPartition | None = None
    #: while it leads: what it leads; it ends where it ended when another broker has begun to lead
    stream: Stream | None = None
    copy: Copy | None = None
    hw: int = 0
    higher_watermark: _Nobody = field(default_factory=_Nobody)


class _Updates(IsrUpdates):
    """After each write that begins, also of a tick, its leader looks what has become of it."""

    def __init__(self, table: Leading, writer: Any) -> None:
        super().__init__(table, writer)
        self._look_soon = table.look_soon

    def write(self, partition: LedReplica, change: IsrChange, *, decided_ms: int) -> None:
        super().write(partition, change, decided_ms=decided_ms)
        self._look_soon()


class Leading:
    """The table of `isr_updates`: the partitions led here, of which only those that are not settled are looked at."""

    def __init__(
        self,
        settings: FluidSettings,
        replicas: dict[TopicPartition, FluidReplica],
        *,
        plane: DataPlane,
        clients: Clients,
        writer: Any,
        trace: TraceWriter,
        supervisor: Supervisor,
        clock: Clock,
        log: Any,
    ) -> None:
        """`replicas`: all of the broker; it changes under this."""
        self.settings, self.trace, self.supervisor, self.log = settings, trace, supervisor, log
        self._replicas, self._plane, self._clients, self._clock = replicas, plane, clients, clock
        #: partitions led here with a follower whose next fetch or silence may change the ISR
        self._unsettled: dict[TopicPartition, None] = {}
        self._alive: frozenset[BrokerId] | None = None
        self._again: asyncio.TimerHandle | None = None
        self.isr_updates = _Updates(self, writer)

    def now_ms(self) -> int:
        """The broker's clock."""
        return self._clock.now_ms()

    def led(self) -> Iterator[FluidReplica]:
        """The partitions that a tick has to judge, brought up to date."""
        for topic_partition in list(self._unsettled):
            replica = self._replicas.get(topic_partition)
            if replica is None or replica.led is None or self._is_settled(replica):
                del self._unsettled[topic_partition]
                continue
            self._see_who_lives(replica.led)
            self._tell_followers(replica)
            yield replica

    def unsettle(self, topic_partition: TopicPartition) -> None:
        """Its followers have to be looked at again."""
        self._unsettled[topic_partition] = None
        self.look_soon()

    def forget(self, topic_partition: TopicPartition) -> None:
        """It is led here no more."""
        self._unsettled.pop(topic_partition, None)

    def alive_brokers_changed(self, alive: frozenset[BrokerId]) -> None:
        """Who may be let in depends on who is alive; the next fetches will tell."""
        self._alive = alive
        self.look_soon()

    def _see_who_lives(self, led: LedPartition) -> None:
        if self._alive is not None:
            led.alive = self._alive

    def stop(self) -> None:
        """No more looks."""
        if self._again is not None:
            self._again.cancel()

    def copies(self, topic_partition: TopicPartition) -> list[Copy]:
        """The followers that copy from here, by broker."""
        replica = self._replicas.get(topic_partition)
        stream = replica.stream if replica is not None else None
        return [] if stream is None else [stream.copies[follower] for follower in sorted(stream.copies)]

    def _of_replicas(self, replica: FluidReplica) -> list[Copy]:
        """Those whose brokers are replicas: one that was removed copies until it hears of it."""
        led = replica.led
        return [] if led is None else [c for c in self.copies(replica.topic_partition) if c.follower in led.followers]

    def copy_changed(self, copy: Copy, *, by_leader: bool) -> None:
        """A follower of a partition led here has come, has caught up, has fallen behind, or is gone."""
        replica = self._replicas.get(copy.topic_partition)
        if replica is None or replica.led is None or copy.follower not in replica.led.followers:
            return
        self._unsettled[copy.topic_partition] = None
        self._see_who_lives(replica.led)
        in_isr = copy.follower in replica.led.isr
        if copy.stream is not None and (copy.throttled_by_leader, copy.in_isr) != (by_leader, in_isr):
            self._plane.mark(copy, in_isr=in_isr, by_leader=by_leader)
        now_s, end = self._plane.now_s, self._end(replica)
        self._tell_of_members(replica, end)
        self._tell_fetch(replica, copy, end=end, position=copy.where(now_s), now_ms=self.now_ms())

    def _tell_of_members(self, replica: FluidReplica, end: float) -> None:
        """Members at the end were not asked about while nothing changed: the high watermark has gone on with them."""
        assert replica.led is not None
        self._tell_append(replica, end, self.now_ms())
        for copy in self._of_replicas(replica):
            if copy.is_caught_up and copy.follower in replica.led.isr:
                self._tell_fetch(replica, copy, end=end, position=end, now_ms=self.now_ms())

    def _end(self, replica: FluidReplica) -> float:
        return replica.end_bytes if replica.stream is None else replica.stream.end(self._plane.now_s)

    def _tell_followers(self, replica: FluidReplica) -> None:
        """What the leader has seen until now of each follower that fetches."""
        now_s, now_ms = self._plane.now_s, self.now_ms()
        for copy in self._of_replicas(replica):
            stream = copy.stream
            if stream is None or not copy.is_fetching:
                continue
            if not copy.is_caught_up:
                since = max(copy.since_s, stream.at_s, now_s - FETCH_AGAIN_S)
                earlier_ms = now_ms - round((now_s - since) * 1000)
                self._tell_fetch(replica, copy, end=stream.end(since), position=copy.where(since), now_ms=earlier_ms)
            self._tell_fetch(replica, copy, end=stream.end(now_s), position=copy.where(now_s), now_ms=now_ms)
        self._tell_append(replica, self._end(replica), now_ms)

    def _tell_append(self, replica: FluidReplica, end: float, now_ms: int) -> None:
        """The leader's log ends there by now, unless the rule has seen it end later."""
        led = replica.led
        assert led is not None
        start, leo = led.log_end_offset, int(end)
        if leo <= start:
            return
        rose = led.append(leo, now_ms)
        self.trace.append_row(
            now_ms,
            replica.topic_partition,
            offset=start,
            leo=leo,
            hw=led.high_watermark,
            epoch=led.epoch,
            size_bytes=leo - start,
            moves_hw=rose,
        )

    def _tell_fetch(self, replica: FluidReplica, copy: Copy, *, end: float, position: float, now_ms: int) -> None:
        led = replica.led
        assert led is not None
        self._tell_append(replica, end, now_ms)
        leo = led.log_end_offset
        offset = leo if copy.is_caught_up else min(int(position), int(end))
        change = led.fetch(copy.follower, offset, now_ms)
        self.trace.fetch_row(
            now_ms,
            replica.topic_partition,
            replica=copy.follower,
            offset=offset,
            leo=leo,
            epoch=led.epoch,
            changes_nothing=False,
            hw=led.high_watermark,
            log_start=0,
            bytes=0,
            req_epoch=led.epoch,
            err=0,
        )
        if change is not None:
            self.isr_updates.write(replica, change, decided_ms=now_ms)
        replica.hw = led.high_watermark

    def look_soon(self) -> None:
        """A follower at the end asks again; meanwhile a write may have been answered, or a broker come alive."""
        if self._again is None and self._unsettled:
            self._again = asyncio.get_running_loop().call_later(FETCH_AGAIN_S, self._fetch_again)

    def _fetch_again(self) -> None:
        self._again = None
        waiting = False
        for topic_partition in list(self._unsettled):
            replica = self._replicas.get(topic_partition)
            if replica is None or replica.led is None:
                continue
            self._see_who_lives(replica.led)
            self.sync_marks(replica)
            outside = [c for c in self._of_replicas(replica) if c.is_caught_up and c.follower not in replica.led.isr]
            waiting = waiting or bool(outside) or replica.led.pending is not None
            for copy in outside:
                end = self._end(replica)
                self._tell_fetch(replica, copy, end=end, position=end, now_ms=self.now_ms())
        if waiting:
            self.look_soon()

    def sync_marks(self, replica: FluidReplica) -> None:
        """The data plane learns who is in sync, and clients whether they may write; not from a leader of before."""
        assert replica.led is not None
        if replica.stream is None or replica.stream is not self._plane.stream(replica.topic_partition):
            return
        for copy in self.copies(replica.topic_partition):
            if copy.in_isr != (copy.follower in replica.led.isr):
                self._plane.mark(copy, in_isr=not copy.in_isr)
        flow_in, flow_out = self.open(replica)
        self._plane.set_rates(replica.topic_partition, ingress=flow_in, egress=flow_out)

    def open(self, replica: FluidReplica) -> tuple[float, float]:
        """Its clients may write as far as its ISR lets them; returns what they write and read now."""
        assert replica.led is not None
        is_reached = not self.settings.links.is_cut_off(replica.led.leader)
        may_write = is_reached and not (self.settings.acks_all and replica.led.is_under_min_isr)
        return self._clients.open(replica.topic_partition, has_leader=is_reached, is_open=may_write)

    def _is_settled(self, replica: FluidReplica) -> bool:
        """Nothing can change the ISR until a copy changes: members are at the end, all others behind or away."""
        led = replica.led
        if led is None or led.pending is not None:
            return False
        copies = {copy.follower: copy for copy in self.copies(replica.topic_partition)}
        for follower in led.followers:
            copy, in_isr = copies.get(follower), follower in led.isr
            is_at_end = copy is not None and copy.is_caught_up
            if is_at_end != in_isr or (copy is not None and copy.in_isr != in_isr):
                return False
        return True
