"""A controller that decides nothing: it repeats what the real one read, wrote and sent when it last took office.

    python -m tests.bench_controller.floor run --zookeeper H:P/chroot --controller-id N --listener H:P

It takes office twice as `kwob controller run` does, for the second time to remember what that asked of ZooKeeper and
told the brokers. From then on it takes office by performing just that again: the same reads, answers taken apart, the
same bytes to the same brokers, but nothing is believed, decided or put into bytes. The time of that is the floor of
a failover. Good for failovers of a cluster in which nothing else happens, and for nothing else.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import Any, Final
from unittest.mock import patch

from controller.core import failover, office
from controller.core.effects import Effect, Enqueue, Log, Send, Steps, Trace, Transitions, Write
from controller.core.state import ClusterState
from controller.node import channels, run
from controller.wire.control import ControlRequest
from controller.wire.control_bytes import Body, Encoder
from controller.wire.zk_operations import Delete

#: Taken for real so often: the first time all is new, the second time is remembered.
REAL: Final = 2
#: Controller id, controller epoch, broker epoch: all that may differ from one time to the next.
_HEAD: Final = struct.Struct(">iiq")
#: What decided, or speaks of it; all others touch ZooKeeper or brokers.
_WORDS: Final = (Log, Transitions, Trace, Enqueue)


class Floor:
    """What was done when the office was last taken for real."""

    def __init__(self, take_office: Callable[[ClusterState], Steps[None]]) -> None:
        self._take_office = take_office
        self._taken = 0
        self._effects: list[Effect] = []
        self._epoch = 0
        self._bodies: dict[int, Body] = {}

    def take_office(self, state: ClusterState) -> Steps[None]:
        """In the place of `failover.take_office`."""
        self._taken += 1
        self._epoch = state.epoch
        if self._taken < REAL:
            yield from self._take_office(state)
        elif self._taken == REAL:
            yield from self._remembered(state)
        else:
            for effect in self._effects:
                if isinstance(effect, Write) and effect.epoch_zk_version is not None:
                    effect = Write(effect.ops, state.epoch_zk_version)
                yield effect

    def _remembered(self, state: ClusterState) -> Steps[None]:
        recipe = self._take_office(state)
        answer: Any = None
        while True:
            try:
                effect = recipe.send(answer)
            except StopIteration:
                return
            if isinstance(effect, Write) and any(not isinstance(op, Delete) for op in effect.ops):
                raise RuntimeError(f"a cluster in which nothing happens needs no such writes: {effect.ops[:3]}")
            if not isinstance(effect, _WORDS):
                self._effects.append(effect)
            if isinstance(effect, Send):
                self._encode(effect.requests)
            answer = yield effect

    def _encode(self, requests: tuple[ControlRequest, ...]) -> None:
        encoder = Encoder()
        self._bodies.update((id(request), encoder.encode(request)) for request in requests)

    def encode(self, request: ControlRequest) -> Body:
        """In the place of `Encoder.encode`: bytes that are there, with the epoch of now."""
        kept = self._bodies.get(id(request))
        if kept is None or self._taken <= REAL:
            return Encoder().encode(request)
        own, common = kept
        return _HEAD.pack(request.controller_id, self._epoch, request.broker_epoch) + own[_HEAD.size :], common


def main() -> int:
    """As `python -m controller run`."""
    floor = Floor(failover.take_office)

    class Bytes(Encoder):
        def encode(self, request: ControlRequest) -> Body:
            return floor.encode(request)

    with patch.object(office, "take_office", floor.take_office), patch.object(channels, "Encoder", Bytes):
        return run.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
