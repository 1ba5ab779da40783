"""How long copies take under a replication throttle: a fluid model. Pure; seconds and bytes/s. Source: §9.2.

A throttle bounds what a leader sends, and a follower fetches, of throttled partitions. What members of the ISR fetch
counts but is never blocked, so copies share what is left: equally, since the order in a fetch rotates, and what one
copy cannot use goes to the others (water is filled up evenly until a bound is reached). The average is exact; not
modelled is the quota's window of 11 s, within which a single response may overshoot.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from controller.wire.types import BrokerId

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

UNLIMITED: Final = math.inf
#: `replica.fetch.max.bytes` and `replica.fetch.response.max.bytes`: Kafka's defaults.
FETCH_BYTES: Final = 1_048_576
RESPONSE_BYTES: Final = 10_485_760
_TINY: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One replica that copies from a leader, throttled. `backlog` in bytes when it starts, `ingress` what comes in."""

    leader: BrokerId
    follower: BrokerId
    start: float
    backlog: float
    ingress: float
    #: followers of the partition that are in the ISR: each fetches `ingress`, which counts at the leader
    in_sync_followers: int = 0
    #: what a fetch of one partition can carry in a round trip
    fetch_rate: float = UNLIMITED


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Bounds: the throttles of each broker as leader and as follower, and what links, disks and responses carry."""

    leader: Mapping[BrokerId, float] = field(default_factory=dict)
    follower: Mapping[BrokerId, float] = field(default_factory=dict)
    #: of brokers that are not named
    leader_default: float = UNLIMITED
    follower_default: float = UNLIMITED
    #: what a follower can take in, throttled or not
    capacity: Mapping[BrokerId, float] = field(default_factory=dict)
    #: what one leader's responses to one follower can carry
    responses: Mapping[tuple[BrokerId, BrokerId], float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bound:
    """Some copies together get no more than `rate`, less what counts and is not held back: of each copy that has begun
    `in_sync_load`, for the members of its partition's ISR, and `joined_load` once it has caught up itself."""

    copies: npt.NDArray[np.intp]
    rate: float
    in_sync_load: Floats
    joined_load: Floats


def durations(copies: Sequence[Copy], rates: Rates) -> list[float | None]:
    """Seconds from the start of each copy until it has caught up; None: never, at these rates."""
    if not copies:
        return []
    bounds = list(_bounds(copies, rates))
    start, ingress = _floats(c.start for c in copies), _floats(c.ingress for c in copies)
    cap = _floats(c.fetch_rate for c in copies)
    left = _floats(c.backlog for c in copies)
    done = np.full(len(copies), math.nan)
    now = float(start.min())
    while True:
        running = (start <= now + _TINY) & np.isnan(done)
        done[running & (left <= _TINY)] = now
        running &= np.isnan(done)
        waiting = start[start > now + _TINY]
        if not running.any() and not len(waiting):
            break
        gain = np.where(running, _shares(bounds, running, start <= now + _TINY, cap) - ingress, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            needs = np.where(running & (gain > _TINY), left / gain, math.inf)
        step = min(float(needs.min()), float(waiting.min()) - now if len(waiting) else math.inf)
        if math.isinf(step):
            break  # who is left gets no more than comes in, and nobody makes room any more
        finished = running & (needs <= step)
        # One that gets less than comes in falls back further.
        left = np.where(running, np.maximum(left - gain * step, 0.0), left)
        left[finished] = 0.0
        now += step
        done[finished] = now
    return [None if math.isnan(d) else max(0.0, float(d - c.start)) for d, c in zip(done, copies, strict=True)]


def smallest_rates(copies: Sequence[Copy]) -> tuple[dict[BrokerId, int], dict[BrokerId, int]]:
    """By leader and by follower: the smallest throttle, whole bytes/s, with which all its copies finish.

    What comes in to the copies, and what members of the ISR fetch; a copy gains ground only above that.
    """
    leaders: dict[BrokerId, float] = {}
    followers: dict[BrokerId, float] = {}
    for copy in copies:
        leaders[copy.leader] = leaders.get(copy.leader, 0.0) + copy.ingress * (1 + copy.in_sync_followers)
        followers[copy.follower] = followers.get(copy.follower, 0.0) + copy.ingress
    return _above(leaders), _above(followers)


def _above(rates: dict[BrokerId, float]) -> dict[BrokerId, int]:
    return {broker: math.floor(rate) + 1 for broker, rate in sorted(rates.items())}


def _floats(values: Iterable[float]) -> Floats:
    return np.array(list(values), np.float64)


def _bounds(copies: Sequence[Copy], rates: Rates) -> list[Bound]:
    """One per broker and role, and per pair, as far as it bounds anything."""
    ingress = _floats(c.ingress for c in copies)
    members = ingress * _floats(c.in_sync_followers for c in copies)
    none = np.zeros(len(copies))
    found: list[Bound] = []

    def add(of: Sequence[bool], rate: float, *, in_sync: Floats, joined: Floats) -> None:
        if not math.isinf(rate):
            found.append(Bound(np.flatnonzero(of), rate, in_sync, joined))

    for broker in sorted({c.leader for c in copies}):
        rate = rates.leader.get(broker, rates.leader_default)
        add([c.leader == broker for c in copies], rate, in_sync=members, joined=ingress)
    for broker in sorted({c.follower for c in copies}):
        own = [c.follower == broker for c in copies]
        add(own, rates.follower.get(broker, rates.follower_default), in_sync=none, joined=ingress)
        add(own, rates.capacity.get(broker, UNLIMITED), in_sync=none, joined=ingress)
    for pair, rate in sorted(rates.responses.items()):
        add([(c.leader, c.follower) == pair for c in copies], rate, in_sync=none, joined=none)
    return found


def _shares(bounds: Sequence[Bound], running: Flags, started: Flags, cap: Floats) -> Floats:
    """What each running copy gets: all rise together, until a bound is reached for those under it, and so on."""
    share = np.zeros(len(cap))
    rising = running.copy()
    room = [b.rate - _load(b, running, started) for b in bounds]
    while rising.any():
        step = float((cap - share)[rising].min())
        for bound, left in zip(bounds, room, strict=True):
            if n := int(rising[bound.copies].sum()):
                step = min(step, max(0.0, left) / n)
        if math.isinf(step):
            share[rising] = math.inf
            break
        share[rising] += step
        full = np.zeros(len(cap), np.bool_)
        for i, bound in enumerate(bounds):
            n = int(rising[bound.copies].sum())
            room[i] -= step * n
            if n and room[i] <= _TINY * max(1.0, bound.rate):
                full[bound.copies] = True
        rising &= ~(full | (share >= cap - _TINY))
    return np.where(np.isinf(share), 1e18, share)


def _load(bound: Bound, running: Flags, started: Flags) -> float:
    """What is not blocked but counts: members of the ISR, and copies that have caught up, while copies run."""
    of = bound.copies
    joined = bound.joined_load[of][started[of] & ~running[of]].sum()
    return float(bound.in_sync_load[of][started[of]].sum() + joined)
