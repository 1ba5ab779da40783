"""What clients that ask for what must be refused, or told, have in common: one question after another, in no order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from controller.sim.load.links import CallFailed
from controller.wire.protocol import ProtocolError


class Asker(Protocol):
    """A client of that kind."""

    is_stopping: bool
    #: how often each question was answered
    answered: dict[str, int]


_Asker = TypeVar("_Asker", bound=Asker)


async def keep_asking(
    asker: _Asker, probes: Sequence[Callable[[_Asker], Awaitable[None]]], chance: random.Random, *, pause_s: float
) -> None:
    """Until it is stopping. A question without an answer is no harm."""
    while not asker.is_stopping:
        probe = chance.choice(probes)
        try:
            await probe(asker)
        except (CallFailed, OSError, ProtocolError):
            pass
        else:
            asker.answered[probe.__name__] = asker.answered.get(probe.__name__, 0) + 1
        await asyncio.sleep(pause_s * chance.choice((0.1, 1.0, 2.0)))
