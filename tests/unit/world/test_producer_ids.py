"""Blocks of producer ids, and the id of the cluster: what ZooKeeper says of them may be damaged at any time, and then
nothing begins anew.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import pytest

from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.types import BrokerId
from controller.wire.zk_operations import Create, Delete, GetData, SetData, ZkOp, ZkResult
from controller.wire.znodes import ClusterIdZNode, ControllerEpochZNode, ProducerIdBlockZNode
from controller.world.ports import ZkSession
from controller.world.producer_ids import ProducerIds
from controller.world.simulated.clock import SimulatedClock
from controller.world.simulated.loop import VirtualTimeLoop, run
from controller.world.simulated.zookeeper import SimulatedZooKeeper
from controller.world.standard_znodes import ClusterIdRemoved, prepare_cluster

PATH = ProducerIdBlockZNode.path
BLOCK = ProducerIdBlockZNode.BLOCK_SIZE
Connect = Callable[[str], Awaitable[ZkSession]]


def with_zookeeper(scenario: Callable[[Connect], Awaitable[None]]) -> None:
    """`connect(machine)` opens a session."""

    async def whole() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        server = SimulatedZooKeeper(random.Random(1), SimulatedClock(loop))

        async def connect(machine: str) -> ZkSession:
            connector = server.connector(machine, chroot="", session_timeout_ms=4000)
            return await connector.connect(on_watch=lambda _: None, on_expired=lambda: None)

        await scenario(connect)

    run(whole())


async def do(zk: ZkSession, op: ZkOp) -> ZkResult:
    (result,) = await zk.perform([op])
    return result


async def take_all(ids: ProducerIds, count: int) -> list[int]:
    return [await ids.take() for _ in range(count)]


def test_blocks_of_nodes_follow_each_other() -> None:
    async def scenario(connect: Connect) -> None:
        zk = await connect("a")
        await prepare_cluster(zk, random.Random(1))
        one, other = ProducerIds(zk, BrokerId(1)), ProducerIds(await connect("b"), BrokerId(2))
        taken = [*await take_all(one, BLOCK), *await take_all(other, 1), *await take_all(one, 1)]
        assert taken == [*range(BLOCK), BLOCK, 2 * BLOCK]

    with_zookeeper(scenario)


#: What a last block can be said to be without being one; the sound one is `{"block_end": "999", ...}`.
DAMAGED: list[tuple[str, bytes | None]] = [
    ("no JSON", b"{"),
    ("nothing at all, though a block was claimed", b""),
    ("null, though a block was claimed", None),
    ("no object", b"[]"),
    ("no end", b'{"version":1,"broker":1,"block_start":"0"}'),
    ("a negative end", b'{"version":1,"broker":1,"block_start":"0","block_end":"-1001"}'),
    ("an end that is no string", b'{"version":1,"broker":1,"block_start":"0","block_end":true}'),
    ("a broken end", b'{"version":1,"broker":1,"block_start":"0","block_end":9.5}'),
    ("an end with a blank", b'{"version":1,"broker":1,"block_start":"0","block_end":" 9"}'),
    ("an end behind which there are no ids", json.dumps({"version": 1, "block_end": str(2**63 - 2)}).encode()),
]


@pytest.mark.parametrize("data", [row[1] for row in DAMAGED], ids=[row[0] for row in DAMAGED])
def test_no_id_is_given_out_twice_whatever_stands_in_the_znode(data: bytes | None) -> None:
    async def scenario(connect: Connect) -> None:
        zk = await connect("a")
        await prepare_cluster(zk, random.Random(1))
        one, other = ProducerIds(zk, BrokerId(1)), ProducerIds(await connect("b"), BrokerId(2))
        taken = await take_all(one, 3)
        sound = (await do(zk, GetData(PATH))).data
        await do(zk, SetData(PATH, data))
        for _ in range(2):
            with pytest.raises(KafkaError) as refused:
                await other.take()
            assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR and PATH in str(refused.value)
        assert (await do(zk, GetData(PATH))).data == data, "it is left for whoever repairs it"
        taken += await take_all(one, 3)  # of the block that is its own already
        await do(zk, SetData(PATH, sound))
        taken += await take_all(other, 3)
        assert taken == [*range(6), BLOCK, BLOCK + 1, BLOCK + 2]

    with_zookeeper(scenario)


def test_no_id_is_given_out_twice_where_the_znode_is_gone() -> None:
    async def scenario(connect: Connect) -> None:
        zk = await connect("a")
        await prepare_cluster(zk, random.Random(1))
        one, other = ProducerIds(zk, BrokerId(1)), ProducerIds(await connect("b"), BrokerId(2))
        assert await one.take() == 0
        await do(zk, Delete(PATH))
        with pytest.raises(KafkaError, match="NO_NODE"):
            await other.take()

    with_zookeeper(scenario)


class Between:
    """A session before each write of which something else happens, so many times."""

    def __init__(self, zk: ZkSession, times: int, happens: Callable[[], Awaitable[object]]) -> None:
        self._zk, self.left, self._happens = zk, times, happens

    async def perform(self, ops: Sequence[ZkOp]) -> list[ZkResult]:
        if self.left and any(isinstance(op, SetData) for op in ops):
            self.left -= 1
            await self._happens()
        return await self._zk.perform(ops)


@pytest.mark.parametrize("races", [1, 3, 49, 50])
def test_a_block_that_another_claims_meanwhile_is_not_claimed_twice(races: int) -> None:
    """Who loses again and again is told to try again, and may."""

    async def scenario(connect: Connect) -> None:
        zk = await connect("a")
        await prepare_cluster(zk, random.Random(1))
        others: list[int] = []

        async def claims() -> None:
            others.append(await ProducerIds(zk, BrokerId(2)).take())

        mine = ProducerIds(Between(await connect("b"), races, claims), BrokerId(1))
        if races == 50:
            with pytest.raises(KafkaError) as refused:
                await mine.take()
            assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        own = await mine.take()
        assert [*others, own] == [BLOCK * number for number in range(races + 1)]

    with_zookeeper(scenario)


def test_a_block_that_cannot_be_written_is_not_given_out() -> None:
    async def scenario(connect: Connect) -> None:
        zk = await connect("a")
        await prepare_cluster(zk, random.Random(1))

        async def goes() -> None:
            await do(zk, Delete(PATH))

        ids = ProducerIds(Between(zk, 1, goes), BrokerId(1))
        with pytest.raises(KafkaError, match=f"^{PATH} cannot be written: NO_NODE$") as refused:
            await ids.take()
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        await do(zk, Create(PATH))
        assert await ids.take() == 0, "the first one was given to nobody"

    with_zookeeper(scenario)


def test_a_claim_after_a_block_of_ones_own_goes_on_behind_it() -> None:
    """Somebody starts and makes the missing znode anew: at least who claimed a block knows that ids up to there are
    taken."""

    async def scenario(connect: Connect) -> None:
        zk = await connect("a")
        await prepare_cluster(zk, random.Random(1))
        ids = ProducerIds(zk, BrokerId(1))
        taken = await take_all(ids, BLOCK)
        await do(zk, Delete(PATH))
        await do(zk, Create(PATH))
        assert await ids.take() not in taken

    with_zookeeper(scenario)


def test_a_cluster_whose_id_was_removed_gets_no_other() -> None:
    """No broker of the cluster could start with another one."""

    async def scenario(connect: Connect) -> None:
        zk = await connect("a")
        first = await prepare_cluster(zk, random.Random(1))
        sound = (await do(zk, GetData(ClusterIdZNode.path))).data
        await do(zk, Delete(ClusterIdZNode.path))
        assert await prepare_cluster(zk, random.Random(2)) != first, "nothing has happened in it yet"
        await do(zk, Create(ControllerEpochZNode.path, b"1"))
        await do(zk, Delete(ClusterIdZNode.path))
        with pytest.raises(ClusterIdRemoved, match=r"was removed: start a broker whose meta\.properties holds the id"):
            await prepare_cluster(zk, random.Random(3))
        await do(zk, Create(ClusterIdZNode.path, sound))
        assert await prepare_cluster(zk, random.Random(4)) == first
        await do(zk, Delete(ClusterIdZNode.path))
        assert await prepare_cluster(zk, random.Random(5), own=first) == first, "who holds it restores it"
        assert await prepare_cluster(zk, random.Random(6), own="another") == first, "an id that is there stays"

    with_zookeeper(scenario)


class Slower:
    """A session before whose n-th call something else happens."""

    def __init__(self, zk: ZkSession, at_call: int, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self._zk, self._left, self._meanwhile = zk, at_call, meanwhile

    async def perform(self, ops: Sequence[ZkOp]) -> list[ZkResult]:
        self._left -= 1
        if self._left == 0:
            await self._meanwhile()
        return await self._zk.perform(ops)

    @property
    def is_struck(self) -> bool:
        return self._left <= 0


@pytest.mark.parametrize("own", [None, "an id on its disks"])
@pytest.mark.parametrize("own_of_other", [None, "another id"])
def test_of_first_nodes_all_have_the_id_of_the_fastest(own: str | None, own_of_other: str | None) -> None:
    """Whenever the other one starts: before any call of the first one, or after its last."""

    async def scenario(connect: Connect, at_call: int) -> None:
        zk, other, ids = await connect("a"), await connect("b"), []

        async def starts() -> None:
            ids.append(await prepare_cluster(other, random.Random(2), own=own_of_other))

        slower = Slower(zk, at_call, starts)
        ids.append(await prepare_cluster(slower, random.Random(1), own=own))
        if not slower.is_struck:
            tried.append(at_call)
            await starts()
        written = ClusterIdZNode.decode((await do(zk, GetData(ClusterIdZNode.path))).data)
        assert ids == [written, written]
        assert own in (None, written) or own_of_other in (None, written), "no new one where there is one already"

    tried: list[int] = []
    for at_call in range(1, 20):
        with_zookeeper(partial(scenario, at_call=at_call))
        if tried:
            break
    assert tried > [2], "there is something to come between"


@pytest.mark.parametrize("seed", range(5))
def test_nodes_that_start_all_at_once_have_one_id(seed: int) -> None:
    async def scenario(connect: Connect) -> None:
        sessions = [await connect(machine) for machine in "abcd"]
        starts = (prepare_cluster(zk, random.Random(10 * seed + n)) for n, zk in enumerate(sessions))
        ids = set(await asyncio.gather(*starts))
        assert ids == {ClusterIdZNode.decode((await do(sessions[0], GetData(ClusterIdZNode.path))).data)}

    with_zookeeper(scenario)
