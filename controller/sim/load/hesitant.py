"""A client that begins to join the crowd's groups and thinks better of it.

It is given an id and gives it back, or forgets it; it joins as an instance, does not sync, and comes back as the same
instance without its id. Nothing is expected of the answers here, as with the crowd.
Source: spec clients.md §7; KIP-345, KIP-394; Kafka 3.9 `GroupMetadata.pendingMembers`, `pendingSyncMembers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from controller.sim.cluster import Cluster
from controller.sim.load.consumer import find_coordinator, join_body
from controller.sim.load.crowd import GROUPS, REBALANCES_MS, SESSIONS_MS, STATIC_SESSION_MS
from controller.sim.load.links import ANSWER_S, CallFailed, Links
from controller.sim.load.probing import keep_asking
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey

PAUSE_S: Final = 0.8
#: How long it thinks.
THINKS_S: Final = (0.0, 0.3, 0.9)
INSTANCE: Final = "hesitant"


class Hesitant:
    """`run` is a program."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._links = Links(cluster, name)
        #: how often each act came to its end
        self.answered: dict[str, int] = {}
        self.is_stopping = False

    async def run(self) -> None:
        """Until `is_stopping`."""
        await keep_asking(self, ACTS, self._links.chance, pause_s=PAUSE_S)
        self._links.hang_up()

    async def give_an_id_back(self) -> None:
        """An id that is given for a JoinGroup to come: given back, forgotten, or used after a while. KIP-394."""
        chance, group = self._links.chance, self._links.chance.choice(GROUPS)
        given = await self._join(group, "", None)
        if given.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            return
        await asyncio.sleep(chance.choice(THINKS_S))
        if chance.random() < 0.3:
            return
        if chance.random() < 0.3:
            await self._join(group, given.member_id, None)
        members = [{"member_id": given.member_id, "group_instance_id": None}]
        await self._ask(ApiKey.LEAVE_GROUP, 3, {"group_id": group, "members": members})

    async def return_before_the_sync(self) -> None:
        """An instance that was told of its generation comes back under another id, and syncs neither time. KIP-345."""
        chance, group = self._links.chance, self._links.chance.choice(GROUPS)
        joined = await self._join(group, "", INSTANCE)
        if joined.error_code == ErrorCode.NONE and joined.leader != joined.member_id:
            await asyncio.sleep(chance.choice(THINKS_S))
            await self._join(group, "", INSTANCE)
            await asyncio.sleep(REBALANCES_MS[-1] / 1000)

    async def _join(self, group: str, member_id: str, instance: str | None) -> Any:
        session_ms = SESSIONS_MS[-1] if instance is None else STATIC_SESSION_MS
        body = join_body(group, member_id, instance, session_ms=session_ms, rebalance_ms=REBALANCES_MS[0])
        return await self._ask(ApiKey.JOIN_GROUP, 5, body)

    async def _ask(self, api_key: ApiKey, version: int, body: dict[str, Any]) -> Any:
        coordinator = await find_coordinator(self._links, body["group_id"])
        if coordinator is None:
            raise CallFailed("there is no coordinator")
        try:
            return await asyncio.wait_for(self._links.call(coordinator, api_key, version, body), ANSWER_S)
        except TimeoutError as error:
            self._links.hang_up()
            raise CallFailed(f"no answer in {ANSWER_S:g} s") from error


ACTS: Final[tuple[Callable[[Hesitant], Awaitable[None]], ...]] = (
    Hesitant.give_an_id_back,
    Hesitant.return_before_the_sync,
)
