"""What ZooKeeper has refused: for a while, and in that term of the office, whoever was refused may act by less.

Only what was refused in fact counts, not what would have been.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final

from controller.wire.zk_operations import Multi, ZkCode, ZkOp, ZkResult
from controller.world.simulated.zk_session import SimulatedSession

REFUSALS: Final = frozenset({ZkCode.NO_AUTH, ZkCode.OTHER})
#: So long after the last refusal it may still tell, whoever is in office.
REFUSAL_TELLS_S: Final = 20.0


class Refusals:
    """Paths, each for as long as it counts; those in `damaged` do all the while. Hang `operation` on `on_operation`."""

    def __init__(self, now_s: Callable[[], float], term: Callable[[], object], damaged: Container[str] = ()) -> None:
        """`term`: what tells one term of the office from another."""
        self._now_s, self._term, self._damaged = now_s, term, damaged
        #: path -> when it was last refused, and in which term
        self._last: dict[str, tuple[float, object]] = {}

    def add(self, path: str) -> None:
        """It is refused now, or nobody can make anything of it."""
        self._last[path] = self._now_s(), self._term()

    def operation(self, _session: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
        """After each operation."""
        if result.ok:
            return
        parts = op.ops if isinstance(op, Multi) else (op,)
        for part, answer in zip(parts, result.results or [result] * len(parts), strict=False):
            if answer.code in REFUSALS:
                self.add(part.path)

    def __contains__(self, path: object) -> bool:
        if not isinstance(path, str) or path not in self._last:
            return path in self._damaged
        at_s, term = self._last[path]
        return self._now_s() - at_s < REFUSAL_TELLS_S or term == self._term() or path in self._damaged

    def __bool__(self) -> bool:
        """Whether anything was ever refused."""
        return bool(self._last)
