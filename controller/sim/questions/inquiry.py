"""Asks brokers and controllers, and notes each answer that is not the one that is right."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from controller.sim.cluster import Cluster
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey

#: Within so many virtual seconds a cluster at rest has done what it was asked to do.
DONE_S: Final = 30.0
#: The topic that is made for the questions, and is gone after them.
ASKED: Final = "asked"
#: Neither is there; the second cannot be.
MISSING, IMPOSSIBLE = "there-is-no-such-topic", "no/topic"
#: Of an answer and of what would be right, so much is shown.
SHOWN: Final = 400


class Inquiry:
    """Of one cluster at rest. `chance` is the stream of the question that is asked; `wrong` collects."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.chance = cluster, random.Random(0)
        self.wrong: list[str] = []

    @property
    def brokers(self) -> list[int]:
        """Those that run, by id."""
        return sorted(self.cluster.brokers)

    def controller(self) -> int:
        """Who is in office. Raises OSError, where nobody is."""
        active = self.cluster.active_controller()
        if active is None:
            raise ConnectionError("nobody is in office")
        return active

    async def ask(self, number: int, api_key: ApiKey, version: int, body: Mapping[str, Any]) -> Any:
        """The answer of one broker or controller. Raises OSError, ProtocolError."""
        return await self.cluster.call(number, api_key, version, body)

    async def ask_office(self, api_key: ApiKey, version: int, body: Mapping[str, Any]) -> Any:
        """The same of whoever is in office, or of a broker, which passes it on."""
        number = self.chance.choice((self.controller(), self.chance.choice(self.brokers)))
        return await self.ask(number, api_key, version, body)

    def expect(self, what: str, found: object, right: object) -> None:
        """Notes an answer to `what` that is not right."""
        if found != right:
            self.wrong.append(f"{what}: it is {_short(found)}, right is {_short(right)}")

    def expect_code(self, what: str, found: int, right: ErrorCode = ErrorCode.NONE) -> None:
        """The same, of an error code alone."""
        self.expect(what, ErrorCode.of(int(found)).name, right.name)

    async def becomes(self, what: str, found: Callable[[], Awaitable[object]], right: object) -> None:
        """What is answered soon, at the latest after `DONE_S`."""
        loop = self.cluster.world.loop
        deadline_s = loop.time() + DONE_S
        while (last := await found()) != right and loop.time() < deadline_s:
            await self.cluster.world.sleep(0.5)
        self.expect(what, last, right)


def optional(row: Any, name: str) -> Any:
    """A field that the version may not have, or None."""
    return getattr(row, name, None)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
