"""A crowd: clients that join groups of their own and keep no order.

They join and do not sync, give up what they wait for, come back as somebody else, take the instance of another, commit
in generations of the past, delete groups that others are about to join. Nothing is expected of the answers here: the
groups themselves are watched (`oracles.group_rules`, `oracles.group_log`). Source: spec clients.md §7, §8; KIP-345.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from controller.sim.cluster import Cluster
from controller.sim.load.consumer import find_coordinator, join_body
from controller.sim.load.links import ANSWER_S, CallFailed, Links
from controller.sim.shape import SIDE_TOPICS, TOPIC
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey

GROUPS: Final = ("crowd-1", "crowd-2")
#: A group that has no members, only commits.
SIMPLE: Final = "crowd-commits"
INSTANCES: Final = (None, None, None, "one", "two")
#: Sessions of dynamic members and of static ones, which may miss a rebalance; how long a rebalance waits.
SESSIONS_MS: Final = (1_200, 2_500)
STATIC_SESSION_MS: Final = 6_000
REBALANCES_MS: Final = (1_500, 2_500)
PAUSES_S: Final = (0.05, 0.3, 0.6)
#: After so many turns somebody becomes slow: long worlds need no more of it.
DENSE_TURNS: Final = 150
SPARSE_S: Final = 1.5
#: How long somebody waits for a JoinGroup or a SyncGroup.
PATIENCE_S: Final = (0.4, 3.0, ANSWER_S)
#: The share of requests in which something is not so.
DISHONEST: Final = 0.2


class Person:
    """`run` is a program."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster, self._name, self._links = cluster, name, Links(cluster, name)
        self._chance = self._links.chance
        self._coordinators: dict[str, int] = {}
        self._group = self._chance.choice(GROUPS)
        self._member_id, self._instance, self._generation = "", self._chance.choice(INSTANCES), -1
        self._others: Sequence[str] = ()
        self.is_stopping = False

    async def run(self) -> None:
        """Until `is_stopping`."""
        turns = 0
        while not self.is_stopping:
            try:
                await self._turn()
            except CallFailed:
                self._coordinators.clear()
            except TimeoutError:
                self._links.hang_up()
            turns += 1
            pause_s = self._chance.choice(PAUSES_S)
            await asyncio.sleep(pause_s if turns < DENSE_TURNS else SPARSE_S + pause_s)
        self._links.hang_up()

    async def _turn(self) -> None:
        is_member = self._member_id and self._generation >= 0
        act = self._chance.choice(ACTS) if is_member or self._chance.random() < 0.2 else Person.join
        await act(self)

    async def _ask(self, api_key: ApiKey, version: int, body: dict[str, Any], *, within_s: float = ANSWER_S) -> Any:
        """One request to who coordinates the group of the body. Raises: CallFailed, TimeoutError."""
        group = body.get("group_id") or body["groups_names"][0]
        if group not in self._coordinators:
            found = await find_coordinator(self._links, group)
            if found is None:
                raise CallFailed("there is no coordinator")
            self._coordinators[group] = found
        return await asyncio.wait_for(self._links.call(self._coordinators[group], api_key, version, body), within_s)

    # -- membership ------------------------------------------------------------------------------------------------

    async def join(self) -> None:
        """Joins, again or as somebody new, and most often syncs."""
        if self._chance.random() < 0.1:
            self._member_id, self._instance = "", self._chance.choice(INSTANCES)
        is_static = self._instance is not None
        body = join_body(
            self._group,
            self._member_id,
            self._instance,
            session_ms=STATIC_SESSION_MS if is_static else self._chance.choice(SESSIONS_MS),
            rebalance_ms=self._chance.choice(REBALANCES_MS),
            metadata=self._chance.choice((b"", b"", b"other")),
        )
        joined = await self._ask(ApiKey.JOIN_GROUP, 5, body, within_s=self._chance.choice(PATIENCE_S))
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = body["member_id"] = joined.member_id
            joined = await self._ask(ApiKey.JOIN_GROUP, 5, body, within_s=self._chance.choice(PATIENCE_S))
        if self._is_over(int(joined.error_code)) or joined.error_code != 0:
            return
        self._member_id, self._generation = joined.member_id, int(joined.generation_id)
        self._others = [member.member_id for member in joined.members]
        if self._chance.random() < 0.85:
            await self.sync()

    async def sync(self) -> None:
        """A leader assigns something to most members, and each time something else."""
        rows = [
            {"member_id": other, "assignment": f"{self._generation}/{self._chance.random()}/{n}".encode()}
            for n, other in enumerate(self._others)
            if self._chance.random() < 0.9
        ]
        body = {**self._who(), "assignments": rows}
        self._is_over(
            (await self._ask(ApiKey.SYNC_GROUP, 3, body, within_s=self._chance.choice(PATIENCE_S))).error_code
        )

    async def beat(self) -> None:
        """A heartbeat; after most that tell of a rebalance a JoinGroup."""
        code = (await self._ask(ApiKey.HEARTBEAT, 3, self._who())).error_code
        if not self._is_over(code) and code == ErrorCode.REBALANCE_IN_PROGRESS and self._chance.random() < 0.8:
            await self.join()

    async def leave(self) -> None:
        """Without a word as often as not."""
        who = self._who()
        if self._chance.random() < 0.5:
            member = {"member_id": who["member_id"], "group_instance_id": who["group_instance_id"]}
            await self._ask(ApiKey.LEAVE_GROUP, 3, {"group_id": self._group, "members": [member]})
        self._member_id, self._instance, self._generation = "", self._chance.choice(INSTANCES), -1
        self._group = self._chance.choice(GROUPS)

    def _who(self) -> dict[str, Any]:
        """Who this is, or, now and then, not quite."""
        who = {
            "group_id": self._group,
            "generation_id": self._generation,
            "member_id": self._member_id,
            "group_instance_id": self._instance,
        }
        if self._chance.random() < DISHONEST:
            name = self._chance.choice(("generation_id", "member_id", "group_instance_id"))
            others = {
                "generation_id": (self._generation - 1, self._generation + 1, -1),
                "member_id": (*self._others, "nobody"),
                "group_instance_id": ("one", "two", None),
            }
            who[name] = self._chance.choice(others[name])
        return who

    def _is_over(self, code: int) -> bool:
        """Whether it is a member no more."""
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._coordinators.clear()
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID) and self._chance.random() < 0.7:
            self._member_id, self._generation = "", -1
            return True
        return False

    # -- offsets ---------------------------------------------------------------------------------------------------

    async def commit(self) -> None:
        """As a member, or as nobody: for some partitions of the topics that there are."""
        who = self._who()
        who["generation_id_or_member_epoch"] = who.pop("generation_id")
        if self._chance.random() < 0.4:
            nobody = {"group_id": SIMPLE, "member_id": "", "group_instance_id": None}
            who = {**nobody, "generation_id_or_member_epoch": -1}
        there = [tp for tp in self._cluster.partitions() if tp[0] in SIDE_TOPICS]
        if self._chance.random() < 0.5 or not there:
            there = [tp for tp in self._cluster.partitions() if tp[0] in (TOPIC, *SIDE_TOPICS)]
        some = self._chance.sample(there, min(len(there), self._chance.choice((1, 2, 3))))
        topics = {topic: [partition for name, partition in some if name == topic] for topic, _ in sorted(some)}
        rows = [{"name": topic, "partitions": [self._offset(p) for p in numbers]} for topic, numbers in topics.items()]
        if rows:
            answer = await self._ask(ApiKey.OFFSET_COMMIT, 7, {**who, "topics": rows})
            self._is_over(answer.topics[0].partitions[0].error_code)

    def _offset(self, partition: int) -> dict[str, Any]:
        return {
            "partition_index": partition,
            "committed_offset": self._chance.randrange(1000),
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }

    async def delete(self) -> None:
        """A group, which most often has members."""
        await self._ask(ApiKey.DELETE_GROUPS, 1, {"groups_names": [self._chance.choice((*GROUPS, *GROUPS, SIMPLE))]})


_Act = Callable[[Person], Awaitable[None]]
ACTS: Final[tuple[_Act, ...]] = (
    *(Person.beat, Person.beat, Person.beat, Person.beat, Person.commit, Person.commit, Person.join),
    *(Person.sync, Person.leave, Person.delete),
)
