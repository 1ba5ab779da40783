"""The rule of isr-replay.md §3, written a second time, as plainly as it reads: both say the same of every event.

Times, offsets and the lag time are so small that each comparison meets equal values often.
"""

from __future__ import annotations

import bisect
import random
from typing import Any, Final

import pytest

from broker_sim.isr import PROFILES, UNKNOWN_OFFSET, Follower, IsrChange, IsrChangeKind, LedPartition
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId
from tests.values import changing

LEADER: Final = BrokerId(3)
#: brokers that there may be, the leader first; the last two never have a replica
BROKERS: Final = [BrokerId(b) for b in (3, 1, 2, 4, 5, 0, 9)]
#: rule of §1 -> the profiles that have it
HAVE: Final = {
    "ll := max(L, ll)": ("P33", "P36", "P37"),
    "a bump clears outsiders": ("P33", "P36", "P37"),
    "who joins is alive": ("P33", "P36", "P37"),
    "who holds hw is alive": ("P36", "P37"),
    "min isr": ("P37",),
    "a refused write stays": ("P33", "P36", "P37"),
}


class Plain:
    """A led partition: dictionaries of a follower's numbers, and the paragraphs of §3 in their order."""

    def __init__(self, profile: str, lag: int, min_isr: int) -> None:
        self.profile, self.lag, self.min_isr = profile, lag, min_isr
        self.epoch, self.start, self.leo, self.hw, self.zk = -1, 0, 0, 0, 0
        self.isr: list[int] = []
        self.replicas: list[int] = []
        self.adding: list[int] = []
        self.removing: list[int] = []
        self.f: dict[int, dict[str, int]] = {}
        self.wanted: tuple[str, list[int]] | None = None
        self.alive: set[BrokerId] | None = None

    def has(self, rule: str) -> bool:
        return self.profile in HAVE[rule]

    def lives(self, r: int) -> bool:
        return self.alive is None or r in self.alive

    def lead(self, now: int, epoch: int, leo: int, lists: dict[str, list[int]], zk: int, hw: int | None) -> None:
        sitting = self.epoch >= 0
        self.epoch, self.start, self.leo, self.zk, self.wanted = epoch, leo, leo, zk, None
        self.isr, self.replicas = lists["isr"], lists["replicas"]
        self.adding, self.removing = lists["adding"], lists["removing"]
        if hw is not None:
            self.hw = hw
        before, self.f = self.f, {}
        for r in self.replicas:
            if r == LEADER:
                continue
            inside = r in self.isr
            known = before.get(r, {"leo": -1})
            self.f[r] = {"leo": known["leo"] if sitting else -1, "ll": leo if sitting else -1}
            self.f[r]["ft"] = now if sitting and (inside or not self.has("a bump clears outsiders")) else 0
            self.f[r]["cu"] = now if inside else 0
        self.raise_hw(now)

    def append(self, leo: int, now: int) -> bool:
        self.leo = leo
        return self.raise_hw(now)

    def error(self, r: int, offset: int, epoch: int, log_start: int) -> ErrorCode:
        if r == LEADER or r not in self.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if epoch == -1 else ErrorCode.UNKNOWN_LEADER_EPOCH
        if offset < log_start or offset > self.leo:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return ErrorCode.NONE

    def fetch(self, r: int, o: int, t: int) -> tuple[Any, ...] | None:
        f = self.f[r]
        if o >= self.leo:
            f["cu"] = max(f["cu"], t)
        elif o >= f["ll"]:
            f["cu"] = max(f["cu"], f["ft"])
        moved = f["leo"] != o
        ll = max(self.leo, f["ll"]) if self.has("ll := max(L, ll)") else self.leo
        f.update(leo=o, ll=ll, ft=t)
        change = None
        alive = self.lives(r) or not self.has("who joins is alive")
        if r not in self.isr and self.wanted is None and o >= self.hw and o >= self.start and alive:
            self.wanted = ("isr_expand", [*self.isr, r])
            change = ("isr_expand", self.isr, [*self.isr, r], [r], [f["cu"]])
        if moved:
            self.raise_hw(t)
        return change

    def out(self, now: int) -> list[int]:
        """§3.4: who must leave."""
        others = sorted(r for r in self.isr if r != LEADER)
        strangers = [r for r in others if r not in self.replicas]
        late = [r for r in others if r in self.f and self.f[r]["leo"] != self.leo and now - self.f[r]["cu"] > self.lag]
        return sorted(strangers + late)

    def tick(self, now: int) -> tuple[Any, ...] | None:
        out = self.out(now)
        if self.wanted is not None or not out:
            return None
        stay = [r for r in self.isr if r not in out]
        self.wanted = ("isr_shrink", stay)
        return ("isr_shrink", self.isr, stay, out, [self.f[r]["cu"] if r in self.f else 0 for r in out])

    def written(self, zk: int, now: int) -> bool:
        if self.wanted is None:
            return False
        self.isr, self.zk, self.wanted = self.wanted[1], zk, None
        return self.raise_hw(now)

    def refused(self) -> None:
        if not self.has("a refused write stays"):
            self.wanted = None

    def maximal(self) -> list[int]:
        return self.isr if self.wanted is None or len(self.wanted[1]) < len(self.isr) else self.wanted[1]

    def needed(self) -> int:
        capped = self.has("min isr") and len(self.replicas) > 0
        return min(self.min_isr, len(self.replicas)) if capped else self.min_isr

    def raise_hw(self, clock: int) -> bool:
        """§3.6"""
        holds = [self.leo]
        for r, f in self.f.items():
            may_hold = self.lives(r) or not self.has("who holds hw is alive")
            if r in self.maximal() or (clock - f["cu"] <= self.lag and may_hold):
                holds.append(f["leo"])
        frozen = self.has("min isr") and len(self.isr) < self.needed()
        if min(holds) <= self.hw or frozen:
            return False
        self.hw = min(holds)
        return True

    def due(self, now: int) -> int | None:
        """The first time at which somebody must leave: who must once must later, too. None when that is never."""
        times = range(now + self.lag + 2)
        first = bisect.bisect_left(times, True, key=lambda t: bool(self.out(t)))
        return first if self.wanted is None and first < len(times) else None

    def headroom(self, now: int) -> list[tuple[int, int]]:
        behind = [r for r in self.isr if r in self.f and self.f[r]["leo"] != self.leo]
        return [(r, self.lag - (now - self.f[r]["cu"])) for r in behind]

    def state(self, now: int) -> dict[str, Any]:
        """All that can be seen of it."""
        return {
            "lists": (self.isr, self.replicas, self.adding, self.removing, self.maximal()),
            "numbers": (self.epoch, self.start, self.leo, self.hw, self.zk),
            "followers": {r: (f["leo"], f["ll"], f["ft"], f["cu"]) for r, f in self.f.items()},
            "pending": self.wanted,
            "min isr": (self.needed(), len(self.isr) < self.needed()),
            "factor": len([r for r in self.replicas if r not in self.adding]),
            "alive": [self.lives(r) for r in BROKERS],
            "out": (self.out(now), self.due(now), self.headroom(now)),
        }


def state(led: LedPartition, now: int) -> dict[str, Any]:
    """As `Plain.state`."""
    lists = (led.isr, led.replicas, led.adding, led.removing, led.maximal_isr)
    return {
        "lists": tuple(map(list, lists)),
        "numbers": (led.epoch, led.epoch_start, led.log_end_offset, led.high_watermark, led.partition_epoch),
        "followers": {
            r: (
                f.log_end_offset,
                f.last_fetch_leader_log_end_offset,
                f.last_fetch_time_ms,
                f.last_caught_up_time_ms,
            )
            for r, f in led.followers.items()
        },
        "pending": None if led.pending is None else (led.pending.kind.value, list(led.pending.isr)),
        "min isr": (led.effective_min_isr, led.is_under_min_isr),
        "factor": led.replication_factor,
        "alive": [led.is_alive(r) for r in BROKERS],
        "out": (list(led.out_of_sync(now)), led.shrink_due_ms(), list(led.lag_headroom(now))),
    }


def place(chance: random.Random, plain: Plain, led: LedPartition, now: int) -> None:
    """Both go on from another state: near the end, and near the time at which somebody is late."""
    plain.hw = led.high_watermark = max(0, plain.leo - chance.randrange(5))
    for r, f in plain.f.items():
        f.update(leo=plain.leo - chance.randrange(4), ll=plain.leo - chance.randrange(-1, 3))
        f.update(ft=now - chance.randrange(3), cu=now - chance.choice((0, plain.lag - 1, plain.lag, plain.lag + 1)))
        led.followers[BrokerId(r)] = Follower(f["leo"], f["ll"], f["ft"], f["cu"])


def columns(change: IsrChange | None) -> tuple[Any, ...] | None:
    if change is None:
        return None
    lists = (change.isr_old, change.isr, change.replicas, change.last_caught_up_time_ms)
    return (change.kind.value, *map(list, lists))


def walk(chance: random.Random, profile: str, events: int) -> None:
    """Drawn events go to both; after each both have said the same, and are the same."""
    lag, min_isr = chance.randrange(1, 9), chance.choice((1, 1, 2, 4))
    plain = Plain(profile, lag, min_isr)
    led = LedPartition(leader=LEADER, profile=PROFILES[profile], lag_time_max_ms=lag, min_insync_replicas=min_isr)
    now, epoch, zk, said = 0, -1, 0, []
    for number in range(events):
        now += chance.choice((0, 0, 0, 1, 1, 1, 2, lag, lag + 1))
        kind = "lead" if not number else chance.choices(KINDS, WEIGHTS)[0]
        one: Any = None
        other: Any = None
        if kind == "lead":
            epoch, zk = epoch + 1, zk + 1
            replicas = [LEADER, *chance.sample(BROKERS[1:-2], chance.randrange(5))]
            isr = [LEADER, *chance.sample(replicas[1:], chance.randrange(len(replicas)))]
            isr += chance.sample(BROKERS[-2:], chance.random() < 0.1)
            lists = {"isr": isr, "replicas": replicas, "adding": chance.sample(replicas, chance.randrange(2))}
            lists["removing"] = chance.sample(replicas, chance.randrange(2))
            hw = chance.choice((0, plain.leo)) if epoch == 0 or chance.random() < 0.1 else None
            plain.lead(now, epoch, plain.leo, lists, zk, hw)
            led.lead(
                now_ms=now, epoch=epoch, log_end_offset=led.log_end_offset, partition_epoch=zk, high_watermark=hw,
                **{name: iter(members) for name, members in lists.items()},
            )  # fmt: skip
        elif kind == "append":
            end = max(0, plain.leo + chance.choice((0, 1, 2, 2, 2, -1)))  # what is replayed may be torn
            one, other = plain.append(end, now), led.append(end, now)
        elif kind == "fetch":
            r = chance.choice(BROKERS) if chance.random() < 0.1 or not plain.f else chance.choice([*plain.f])
            offset = plain.leo + chance.choice((-3, -2, -1, 0, 0, 0, 0, 1))
            start, named = chance.choice((-5, plain.leo - 2, plain.leo)), chance.choice((-1, epoch, -2))
            one = plain.error(r, offset, named, start)
            other = led.fetch_error(r, offset=offset, req_epoch=named, log_start=start)
            if one is other is ErrorCode.NONE:
                one, other = plain.fetch(r, offset, now), columns(led.fetch(r, offset, now))
        elif kind == "tick":
            one, other = plain.tick(now), columns(led.tick(now))
        elif kind == "written":
            zk += 1
            one, other = plain.written(zk, now), led.write_succeeded(zk, now)
        elif kind == "refused":
            one, other = plain.refused(), led.write_refused()
        elif kind == "alive":
            alive = chance.choice((None, set(chance.sample(BROKERS, 3)), set(chance.sample(BROKERS, 4)), set(BROKERS)))
            plain.alive, led.alive = alive, alive
        elif kind == "elsewhere":
            place(chance, plain, led, now)
        else:
            one, other = plain.raise_hw(now), led.advance_hw(now)
        said.append(f"{now} {kind}: {one}")
        assert other == one, said
        assert state(led, now) == plain.state(now), said


KINDS: Final = ("lead", "append", "fetch", "tick", "written", "refused", "alive", "elsewhere", "clock")
WEIGHTS: Final = (1, 8, 12, 3, 4, 1, 2, 4, 1)


@pytest.mark.parametrize("profile", PROFILES)
def test_both_versions_say_the_same(profile: str) -> None:
    for seed in range(60):
        walk(random.Random(f"{profile} {seed}"), profile, 50)


def test_before_it_leads_a_partition_is_empty_and_all_are_alive() -> None:
    """And it is of the latest profile, with Kafka's defaults."""
    led, plain = LedPartition(leader=LEADER), Plain("P37", 30_000, 1)
    assert (led.profile, led.lag_time_max_ms, led.min_insync_replicas) == (PROFILES["P37"], 30_000, 1)
    plain.lag = 1  # it is empty: no need to look through so many times
    assert state(led, 5) == plain.state(5)
    assert not led.write_succeeded(3, 5) and state(led, 5) == plain.state(5)
    assert Follower() == Follower(UNKNOWN_OFFSET, 0, 0, 0) and UNKNOWN_OFFSET == -1


def test_what_a_profile_is_called() -> None:
    assert [profile.name for profile in PROFILES.values()] == list(PROFILES) == ["P26", "P33", "P36", "P37"]
    assert [kind.value for kind in IsrChangeKind] == ["isr_shrink", "isr_expand"]


def test_what_a_leader_decided_does_not_change_any_more() -> None:
    assert changing("broker_sim.isr") == {"Follower", "LedPartition"}
