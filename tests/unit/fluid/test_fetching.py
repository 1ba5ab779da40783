"""How much of a throttle copies get, beside a slow model of Kafka's quota windows and of the fetcher they hold back."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_sim.fluid.fetching import Fetching

MIB = 1_048_576


@dataclass
class Window:
    start: float
    last: float
    size: float = 0.0


@dataclass
class Quota:
    """Kafka 3.9 `SimpleRate` over `SampledStat`: 11 windows of a second, kept while their last byte is younger."""

    bound: float
    windows: list[Window] = field(default_factory=list)

    def record(self, now: float, size: float) -> None:
        if not self.windows or now - self.windows[-1].start >= 1.0:
            self.windows.append(Window(now, now))
        self.windows[-1].last, self.windows[-1].size = now, self.windows[-1].size + size

    def is_exceeded(self, now: float) -> bool:
        self.windows = [w for w in self.windows if now - w.last < 11.0]
        if not self.windows:
            return False
        return sum(w.size for w in self.windows) / max(now - self.windows[0].start, 1.0) > self.bound


def fetched(bound: float, *, pause_s: float, seconds: float, line: float = 2e8, piece: float = MIB) -> float:
    """What a fetcher that sleeps so long when the quota is exceeded gets per second, the first minute not counted."""
    quota, now, total = Quota(bound), 0.0, 0.0
    while now < 60 + seconds:
        if quota.is_exceeded(now):
            now += pause_s
            continue
        now += piece / line
        quota.record(now, piece)
        total += piece if now > 60 else 0
    return total / seconds


@settings(max_examples=8, deadline=None)
@given(bound=st.floats(4e6, 2e7), pause_s=st.sampled_from([0.5, 1.0]))
def test_bursts_get_what_kafkas_windows_let_through(bound: float, pause_s: float) -> None:
    got = fetched(bound, pause_s=pause_s, seconds=220, piece=MIB / 8)
    assert got == pytest.approx(bound * Fetching().throttle_part(1 / pause_s), rel=0.04)


@pytest.mark.parametrize(
    ("batch", "part"),
    [(0, 1.0), (20_000, 52 * 20_000 / MIB), (480_000, 960_000 / MIB), (600_000, 600_000 / MIB), (2_000_000, 1.0)],
)
def test_what_of_an_answer_is_kept(batch: float, part: float) -> None:
    assert Fetching(batch_bytes=batch).useful_part == pytest.approx(part)


def test_who_tries_again_when() -> None:
    fetching = Fetching.of({"replica.fetch.backoff.ms": "2000", "replica.fetch.wait.max.ms": "250"})
    assert fetching.tries_per_s(calm=0, flow=0, by_follower=True) == 0.5
    assert fetching.tries_per_s(calm=3, flow=0, by_follower=True) == 4
    assert fetching.tries_per_s(calm=0, flow=0, by_follower=False) == 4
    assert fetching.tries_per_s(calm=3, flow=1e6, by_follower=True) > 20
    assert Fetching.of({"replication.quota.window.num": "21"}).window_s == 20
