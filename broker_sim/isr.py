"""Who is in sync: the rule of the leader, as a state machine over one led partition. Pure; one rule, two users.

The live leader (`replicas/partition.py`) and the Spark replay (`replay/`) feed it the same events (became leader,
appended, follower fetched, expiration tick, ISR write answered) and get the same answers: ISR changes to write, and the
high watermark. All times are ms on the leader's clock and are passed in.

`isr_columns.py` has the same rules over whole columns. The oracle that holds both to each other is
tests/unit/replay/rules/test_stretch.py: random rows go through both, and every state and outcome must be equal.

Source: Kafka `Partition`, `Replica`, `ReplicaManager.maybeShrinkIsr`; spec isr-replay.md §1-3. Names are Kafka's
(`Replica.logEndOffset`, `lastFetchLeaderLogEndOffset`, `lastFetchTimeMs`, `lastCaughtUpTimeMs`); the specification and
the columns of a trace call them `leo`, `ll`, `ft` and `cu`, and the high watermark `hw`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId

UNKNOWN_OFFSET: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What differs between Kafka versions. Source: isr-replay.md §1."""

    name: str
    #: lastFetchLeaderLogEndOffset never falls (since 3.3).
    leader_end_is_max: bool
    #: an epoch bump of a sitting leader sets the fetch time of followers outside the ISR to 0, not to now (since 3.3).
    bump_clears_outsiders: bool
    #: only a broker that is alive in the leader's metadata may join (since 3.3).
    expand_needs_alive: bool
    #: a caught-up outsider holds the high watermark only while it is alive (since 3.6).
    outsider_must_be_alive: bool
    #: the high watermark stands still below min.insync.replicas, which is capped by the replica count (since 3.7).
    min_isr_holds_hw: bool
    #: after a refused ISR write no other is tried until the next LeaderAndIsr (since 2.8).
    refused_write_stays_pending: bool


def _profile(name: str, *, since_33: bool, since_36: bool, since_37: bool) -> Profile:
    return Profile(
        name=name,
        leader_end_is_max=since_33,
        bump_clears_outsiders=since_33,
        expand_needs_alive=since_33,
        outsider_must_be_alive=since_36,
        min_isr_holds_hw=since_37,
        refused_write_stays_pending=since_33,
    )


#: P26 is Kafka 2.4 to 3.2, P33 3.3 to 3.5, P36 3.6, P37 3.7 to 3.9.
PROFILES: Final = {
    "P26": _profile("P26", since_33=False, since_36=False, since_37=False),
    "P33": _profile("P33", since_33=True, since_36=False, since_37=False),
    "P36": _profile("P36", since_33=True, since_36=True, since_37=False),
    "P37": _profile("P37", since_33=True, since_36=True, since_37=True),
}


class IsrChangeKind(Enum):
    """Which way the ISR goes."""

    SHRINK = "isr_shrink"
    EXPAND = "isr_expand"


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """An ISR that the leader wants to write, and why. `replicas` are those that leave or join, sorted."""

    kind: IsrChangeKind
    isr_old: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]
    #: lastCaughtUpTimeMs of each of `replicas`, same order.
    last_caught_up_time_ms: tuple[int, ...]


@dataclass(slots=True)
class Follower:
    """What a leader knows of one follower."""

    log_end_offset: int = UNKNOWN_OFFSET
    last_fetch_leader_log_end_offset: int = 0
    last_fetch_time_ms: int = 0
    last_caught_up_time_ms: int = 0


@dataclass(slots=True, kw_only=True)
class LedPartition:
    """A partition as its leader sees it, from becoming leader until it stops leading.

    One ISR write may be under way: `pending` is the wanted change. Until `write_succeeded` or `write_refused` no other
    is wanted, and the high watermark waits for the members of both sets.
    """

    leader: BrokerId
    profile: Profile = PROFILES["P37"]
    lag_time_max_ms: int = 30_000
    min_insync_replicas: int = 1

    epoch: int = -1
    epoch_start: int = 0
    log_end_offset: int = 0
    high_watermark: int = 0
    isr: tuple[BrokerId, ...] = ()
    replicas: tuple[BrokerId, ...] = ()
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    partition_epoch: int = 0
    followers: dict[BrokerId, Follower] = field(default_factory=dict)
    pending: IsrChange | None = None
    #: brokers in the leader's metadata; None means that all are taken for alive.
    alive: Collection[BrokerId] | None = None

    # -- what happens ------------------------------------------------------------------------------------------

    def lead(
        self,
        *,
        now_ms: int,
        epoch: int,
        log_end_offset: int,
        isr: Iterable[BrokerId],
        replicas: Iterable[BrokerId],
        adding: Iterable[BrokerId] = (),
        removing: Iterable[BrokerId] = (),
        partition_epoch: int,
        high_watermark: int | None = None,
    ) -> None:
        """A LeaderAndIsr with a higher epoch names this broker leader (§3.1).

        `high_watermark` is that of the local log when the broker did not lead before; a sitting leader keeps it.
        """
        was_leader = self.epoch >= 0
        self.epoch, self.partition_epoch = epoch, partition_epoch
        self.epoch_start = self.log_end_offset = log_end_offset
        self.isr, self.replicas = tuple(isr), tuple(replicas)
        self.adding, self.removing = tuple(adding), tuple(removing)
        self.pending = None
        if high_watermark is not None:
            self.high_watermark = high_watermark
        followers = {r: self.followers.get(r) or Follower() for r in self.replicas if r != self.leader}
        self.followers = followers
        for replica, state in followers.items():
            self._reset(state, in_isr=replica in self.isr, was_leader=was_leader, now_ms=now_ms)
        self.advance_hw(now_ms)

    def _reset(self, state: Follower, *, in_isr: bool, was_leader: bool, now_ms: int) -> None:
        state.last_caught_up_time_ms = now_ms if in_isr else 0
        if not was_leader:
            state.log_end_offset = state.last_fetch_leader_log_end_offset = UNKNOWN_OFFSET
            state.last_fetch_time_ms = 0
            return
        state.last_fetch_leader_log_end_offset = self.epoch_start
        state.last_fetch_time_ms = now_ms if in_isr or not self.profile.bump_clears_outsiders else 0

    def append(self, log_end_offset: int, now_ms: int) -> bool:
        """The leader's log now ends there (§3.2). Returns whether the high watermark rose."""
        self.log_end_offset = log_end_offset
        return self.advance_hw(now_ms)

    def fetch_error(self, replica: BrokerId, *, offset: int, req_epoch: int, log_start: int) -> ErrorCode:
        """Why a follower's fetch counts for nothing, NONE if it counts (§3.3, in the order of the checks).

        The caller has compared `req_epoch` (-1: none was named) with the leader epoch, for any request does that.
        """
        if replica not in self.followers:
            return ErrorCode.UNKNOWN_LEADER_EPOCH if req_epoch != -1 else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not log_start <= offset <= self.log_end_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return ErrorCode.NONE

    def fetch(self, replica: BrokerId, offset: int, now_ms: int) -> IsrChange | None:
        """A follower's fetch that passed `fetch_error` arrived (§3.3). Returns the expansion to write, if any.

        The expansion is then pending; the high watermark has been re-evaluated where the offset moved.
        """
        state, leader_end = self.followers[replica], self.log_end_offset
        if offset >= leader_end:
            state.last_caught_up_time_ms = max(state.last_caught_up_time_ms, now_ms)
        elif offset >= state.last_fetch_leader_log_end_offset:
            state.last_caught_up_time_ms = max(state.last_caught_up_time_ms, state.last_fetch_time_ms)
        moved = state.log_end_offset != offset
        state.log_end_offset = offset
        if self.profile.leader_end_is_max:
            leader_end = max(leader_end, state.last_fetch_leader_log_end_offset)
        state.last_fetch_leader_log_end_offset = leader_end
        state.last_fetch_time_ms = now_ms
        change = self._expansion(replica, state)
        if change is not None:
            self.pending = change
        if moved:
            self.advance_hw(now_ms)
        return change

    def _expansion(self, replica: BrokerId, state: Follower) -> IsrChange | None:
        if (
            replica in self.isr
            or self.pending is not None
            or state.log_end_offset < self.high_watermark
            or state.log_end_offset < self.epoch_start
            or (self.profile.expand_needs_alive and not self.is_alive(replica))
        ):
            return None
        return IsrChange(
            kind=IsrChangeKind.EXPAND,
            isr_old=self.isr,
            isr=(*self.isr, replica),
            replicas=(replica,),
            last_caught_up_time_ms=(state.last_caught_up_time_ms,),
        )

    def tick(self, now_ms: int) -> IsrChange | None:
        """The periodic check (§3.4). Returns the shrink to write, if any; it is then pending."""
        if self.pending is not None:
            return None
        out = self.out_of_sync(now_ms)
        if not out:
            return None
        self.pending = IsrChange(
            kind=IsrChangeKind.SHRINK,
            isr_old=self.isr,
            isr=tuple(r for r in self.isr if r not in out),
            replicas=out,
            last_caught_up_time_ms=tuple((self.followers.get(r) or Follower()).last_caught_up_time_ms for r in out),
        )
        return self.pending

    def out_of_sync(self, now_ms: int) -> tuple[BrokerId, ...]:
        """Members that must leave: not at the leader's end, and last caught up longer ago than the limit; sorted.

        A follower at the leader's end offset is in sync however old its last fetch is.
        Source: Kafka 3.9 `Partition.getOutOfSyncReplicas`.
        """
        out, leader_end = [], self.log_end_offset
        for replica in self.isr:
            state = self.followers.get(replica)
            if state is None:
                is_out = replica != self.leader
            else:
                is_out = (
                    state.log_end_offset != leader_end and now_ms - state.last_caught_up_time_ms > self.lag_time_max_ms
                )
            if is_out:
                out.append(replica)
        return tuple(sorted(out))

    def shrink_due_ms(self) -> int | None:
        """From when on `tick` finds somebody to remove, if nothing else happens until then; None: never."""
        if self.pending is not None:
            return None
        if any(r != self.leader and r not in self.followers for r in self.isr):
            return 0
        lagging = (s for r in self.isr if (s := self.followers.get(r)) and s.log_end_offset != self.log_end_offset)
        return min((s.last_caught_up_time_ms + self.lag_time_max_ms + 1 for s in lagging), default=None)

    def lag_headroom(self, now_ms: int) -> Iterator[tuple[BrokerId, int]]:
        """Members that are not at the leader's end, each with the ms left to it; below 0 it must leave."""
        for replica in self.isr:
            state = self.followers.get(replica)
            if state is not None and state.log_end_offset != self.log_end_offset:
                yield replica, self.lag_time_max_ms - (now_ms - state.last_caught_up_time_ms)

    def write_succeeded(self, partition_epoch: int, now_ms: int) -> bool:
        """The pending ISR is in ZooKeeper, as that version (§3.5). Returns whether the high watermark rose."""
        if self.pending is None:
            return False
        self.isr, self.partition_epoch, self.pending = self.pending.isr, partition_epoch, None
        return self.advance_hw(now_ms)

    def write_refused(self) -> None:
        """Another version was there: the ISR stays. Since 2.8 the change stays pending until the next LeaderAndIsr."""
        if not self.profile.refused_write_stays_pending:
            self.pending = None

    # -- what follows ------------------------------------------------------------------------------------------

    def advance_hw(self, now_ms: int) -> bool:
        """Raises the high watermark as far as the rule allows (§3.6). Returns whether it rose; it never falls here."""
        candidate = self.log_end_offset
        maximal = self.maximal_isr
        for replica, state in self.followers.items():
            if state.log_end_offset < candidate and (replica in maximal or self._holds_hw(replica, state, now_ms)):
                candidate = state.log_end_offset
        if candidate <= self.high_watermark or (self.profile.min_isr_holds_hw and self.is_under_min_isr):
            return False
        self.high_watermark = candidate
        return True

    def _holds_hw(self, replica: BrokerId, state: Follower, now_ms: int) -> bool:
        caught_up = now_ms - state.last_caught_up_time_ms <= self.lag_time_max_ms
        return caught_up and (not self.profile.outsider_must_be_alive or self.is_alive(replica))

    def is_alive(self, replica: BrokerId) -> bool:
        """Whether the leader's metadata has this broker among the live ones."""
        return self.alive is None or replica in self.alive

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        """The members of the ISR and of the one that may already be written."""
        if self.pending is None or self.pending.kind is IsrChangeKind.SHRINK:
            return self.isr
        return self.pending.isr

    @property
    def effective_min_isr(self) -> int:
        """`min.insync.replicas`, since 3.7 at most the number of assigned replicas."""
        if self.profile.min_isr_holds_hw and self.replicas:
            return min(self.min_insync_replicas, len(self.replicas))
        return self.min_insync_replicas

    @property
    def is_under_min_isr(self) -> bool:
        """Whether acks=all is refused."""
        return len(self.isr) < self.effective_min_isr

    @property
    def replication_factor(self) -> int:
        """Replicas without those that a reassignment is adding."""
        return len(self.replicas) - len(self.adding)
