"""Removals that the phase of the ticks decides, where it is not known: their expected number. Pure. Source: §9.1.

A silence of a member is the time from when it was last caught up (c) until it is again, or is at the log's end (e).
With a = when it began to lag, it is removed if a tick falls between max(c + lag, a) and e. Of ticks with a known
period and an unknown phase that has the probability (e - max(c + lag, a)) / period, at most 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from broker_sim.isr import LedPartition
from broker_sim.replay.rules.stretch import Stretch
from controller.wire.types import BrokerId


@dataclass(slots=True)
class _Silence:
    caught_up_ms: int
    #: a member since
    member_ms: int
    #: lags since; None: at the log's end
    lags_ms: int | None


@dataclass(slots=True)
class Silences:
    """The silences of one lane. Tell it of every row after the rules took it, or of a stretch before."""

    lag_ms: int
    expected: float = 0.0
    _open: dict[BrokerId, _Silence] = field(default_factory=dict)

    def note(self, led: LedPartition | None, ts: int) -> None:
        """The rules have taken a row of this time; None: the broker does not lead."""
        followers = {} if led is None else led.followers
        for replica in self._open.keys() - followers.keys():
            self._end(replica, ts)
        if led is None:
            return
        for replica, state in followers.items():
            caught_up, lags = state.last_caught_up_time_ms, state.log_end_offset != led.log_end_offset
            silence = self._open.get(replica)
            if silence is not None and (
                silence.caught_up_ms != caught_up or (silence.lags_ms is not None and not lags)
            ):
                self._end(replica, ts)
                silence = None
            if silence is None:
                if replica in led.isr:
                    self._open[replica] = _Silence(caught_up, ts, ts if lags else None)
            elif lags and silence.lags_ms is None:
                silence.lags_ms = ts

    def passed(self, led: LedPartition, stretch: Stretch) -> None:
        """Quiet rows before `Stretch.first_silence`: silences that end within them were too short for any tick."""
        for replica in led.followers:
            if (silence := self._open.get(replica)) is not None:
                was_at_end, since = stretch.lagging_since(replica)
                silence.caught_up_ms = stretch.caught_up(replica)
                if was_at_end or silence.lags_ms is None:
                    silence.lags_ms = since

    def _end(self, replica: BrokerId, ts: int) -> None:
        silence = self._open.pop(replica)
        if silence.lags_ms is not None:
            due = max(silence.caught_up_ms + self.lag_ms, silence.lags_ms, silence.member_ms)
            self.expected += min(1.0, max(0.0, (ts - due) / max(1, self.lag_ms // 2)))
