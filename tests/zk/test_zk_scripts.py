"""Scripts of several clients against both ZooKeepers: sessions, ephemeral znodes, watches, versions, multis, batches of
reads, lost connections, expired and closed sessions. Every answer, and every watch of every client in its order, must
be the same. Hypothesis draws the scripts and shortens one that fails.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.wire.zk_operations import (
    Check,
    Create,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Multi,
    SetData,
    WatchEvent,
    ZkOp,
    ZkResult,
)
from tests.worlds.zookeepers import Client, RealZk, SimulatedZk, Zk

pytestmark = pytest.mark.zk

CLIENTS = 3
PATHS = ("/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/deep")
_paths = st.sampled_from(PATHS)
_payloads = st.sampled_from((None, b"", b"one", b"two" * 50))
_versions = st.sampled_from((-1, -1, 0, 1, 2))
_creates = st.builds(Create, _paths, _payloads, ephemeral=st.booleans(), sequence=st.sampled_from((False, False, True)))
_writes = st.one_of(_creates, st.builds(SetData, _paths, _payloads, _versions), st.builds(Delete, _paths, _versions))
_in_multis = st.one_of(_writes, st.builds(Check, _paths, _versions))
_multis = st.builds(lambda ops: Multi(tuple(ops)), st.lists(_in_multis, min_size=1, max_size=4))
_reads = st.one_of(
    st.builds(GetData, _paths, st.booleans()),
    st.builds(Exists, _paths, st.booleans()),
    st.builds(GetChildren, st.one_of(_paths, st.just("/")), st.booleans()),
)
_clients = st.integers(0, CLIENTS - 1)


@dataclass(frozen=True)
class Perform:
    """Some operations in one call, pipelined: reads that follow each other may travel as one."""

    client: int
    ops: tuple[ZkOp, ...]


@dataclass(frozen=True)
class Session:
    """What happens to a client's session: `expire`, `disconnect`, `close`. Who has none gets a new one when asked."""

    client: int
    what: str


_steps = st.one_of(
    st.builds(Perform, _clients, st.lists(st.one_of(_writes, _multis, _reads), min_size=1, max_size=4).map(tuple)),
    st.builds(Perform, _clients, st.lists(_reads, min_size=2, max_size=6).map(tuple)),
    st.builds(Perform, _clients, st.lists(_writes, min_size=1, max_size=1).map(tuple)),
    st.builds(Session, _clients, st.sampled_from(("expire", "disconnect", "close"))),
)
SCRIPTS = st.lists(_steps, min_size=3, max_size=25)


@dataclass
class Told:
    """What the clients were told after each step."""

    results: list[list[Any]] = field(default_factory=list)
    events: list[dict[int, list[WatchEvent]]] = field(default_factory=list)


def play(zk: Zk, script: list[Perform | Session]) -> Told:
    told = Told()

    async def scenario() -> None:
        clients: dict[int, Client] = {}
        owners: dict[int, int] = {}
        sessions = itertools.count(1)
        for step in script:
            if step.client not in clients:
                clients[step.client] = await zk.client()
                owners[clients[step.client].session.session_id] = next(sessions)
            client = clients[step.client]
            match step:
                case Perform(_, ops):
                    results = await client.session.perform(list(ops))
                    told.results.append([comparable(result, owners) for result in results])
                case Session(_, "expire"):
                    await zk.expire(client)
                    await client.until(lambda client=client: client.expirations == 1)  # type: ignore[misc]
                    told.results.append([])
                    del clients[step.client]
                case Session(_, "close"):
                    await client.session.close()
                    told.results.append([])
                    del clients[step.client]
                case Session(_, _):
                    await zk.disconnect(client)
                    told.results.append([])
            for each in clients.values():
                await each.session.perform([Exists("/")])  # behind every watch that fired before
            told.events.append({number: list(each.events) for number, each in sorted(clients.items())})
        last = await zk.client()
        found = await last.session.perform([op for path in PATHS for op in (GetData(path), GetChildren(path))])
        told.results.append([comparable(result, owners) for result in found])

    zk.run(scenario)
    return told


def comparable(result: ZkResult, owners: dict[int, int]) -> object:
    """All but what no two servers share: zxids and times. Owners by the order in which sessions were opened."""
    stat = result.stat
    owner = owners.get(stat.ephemeral_owner, 0) if stat else 0
    seen = stat and (stat.version, stat.num_children, stat.cversion, owner, stat.czxid == stat.mzxid)
    children = tuple(name for name in result.children if name != "zookeeper")
    parts = tuple(comparable(each, owners) for each in result.results)
    return result.code, result.data, seen, children, result.path, parts


_chroots = itertools.count()


def check(zk_connect: str, script: list[Perform | Session]) -> None:
    real = play(RealZk(f"{zk_connect}/script-{next(_chroots)}"), script)
    simulated = play(SimulatedZk(), script)
    for number, step in enumerate(script):
        assert simulated.results[number] == real.results[number], f"step {number}: {step}"
        assert simulated.events[number] == real.events[number], f"watches after step {number}: {step}"
    assert simulated.results[-1] == real.results[-1], "what is there at the end"


_fixture = HealthCheck.function_scoped_fixture


@settings(max_examples=15, suppress_health_check=[_fixture, HealthCheck.too_slow])
@given(script=SCRIPTS)
def test_both_tell_all_clients_the_same(zk_connect: str, script: list[Perform | Session]) -> None:
    check(zk_connect, script)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@settings(max_examples=400, suppress_health_check=[_fixture, HealthCheck.too_slow])
@given(script=SCRIPTS)
def test_both_tell_all_clients_the_same_at_length(zk_connect: str, script: list[Perform | Session]) -> None:
    check(zk_connect, script)
