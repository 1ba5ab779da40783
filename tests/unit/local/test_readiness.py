"""When a local cluster is whole, judged by one broker's Metadata answer."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Self

import pytest

from controller.admin.cluster.failures import ClusterUnreachable, Refused
from controller.local import readiness
from controller.local.readiness import what_is_missing
from controller.wire import protocol
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId
from controller.world.simulated.world import run_world

BOTH = (BrokerId(1), BrokerId(2))


def metadata(nodes: tuple[int, ...], leaders: tuple[int, ...]) -> Any:
    partitions = [{"partition_index": i, "leader_id": leader} for i, leader in enumerate(leaders)]
    body = {
        "brokers": [{"node_id": node, "host": "h", "port": 1} for node in nodes],
        "topics": [{"name": "t", "partitions": partitions}],
    }
    return protocol.build(ApiKey.METADATA, 9, body, response=True)


CASES = [
    ("all brokers and leaders", (1, 2), (1, 2), None),
    ("no partitions at all", (1, 2), (), None),
    ("a broker is not known", (1,), (1, 1), "brokers [2] are not known yet"),
    ("brokers are not known", (3,), (1,), "brokers [1, 2] are not known yet"),
    ("broker 0 leads", (1, 2), (0, 0), None),
    ("a partition without a leader", (1, 2), (1, -1, -1), "2 partitions have no leader (t-1, for one)"),
]


@pytest.mark.parametrize(("nodes", "leaders", "missing"), [pytest.param(*row[1:], id=row[0]) for row in CASES])
def test_what_is_missing(nodes: tuple[int, ...], leaders: tuple[int, ...], missing: str | None) -> None:
    assert what_is_missing(metadata(nodes, leaders), BOTH) == missing


@pytest.mark.parametrize(("count", "asked"), [(1, [1]), (3, [1, 2, 3]), (10, list(range(1, 11))), (11, [1, 6, 11])])
def test_of_many_brokers_the_first_a_middle_and_the_last_one_are_asked(
    monkeypatch: pytest.MonkeyPatch, count: int, asked: list[int]
) -> None:
    """And each of these has a say: whichever of them misses a broker or a leader, the cluster is not whole."""
    seen: list[int] = []
    behind = 0

    class Admin:
        def __init__(self, *_: object) -> None: ...

        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *_: object) -> None: ...

        async def call_broker(self, broker_id: int, *_: object) -> Any:
            seen.append(broker_id)
            return metadata(tuple(range(1, count + 1 - (broker_id == behind))), ())

    monkeypatch.setattr(readiness, "AdminClient", Admin)
    brokers = [BrokerId(n) for n in range(count, 0, -1)]
    limit_s = -readiness.EACH_S * count - 1
    assert asyncio.run(readiness.wait_until_whole("b:1", brokers, limit_s=limit_s)) is None
    assert seen == asked
    for behind in asked:
        missing = asyncio.run(readiness.wait_until_whole("b:1", brokers, limit_s=limit_s))
        assert missing == f"brokers [{count}] are not known yet, says broker {behind}"


@pytest.mark.parametrize("silence", [Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ClusterUnreachable("away")])
def test_a_cluster_is_looked_at_until_it_is_whole_or_the_time_is_over(
    silence: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each broker adds to the time; nothing is created by the looks."""
    whole_at: list[float] = []

    class Admin:
        def __init__(self, *_: object) -> None: ...

        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *_: object) -> None: ...

        async def call_broker(self, broker_id: int, api_key: ApiKey, body: object) -> Any:
            assert (api_key, body) == (ApiKey.METADATA, {"topics": None, "allow_auto_topic_creation": False})
            if asyncio.get_running_loop().time() < whole_at[-1]:
                raise silence
            return metadata((1, 2), ())

    monkeypatch.setattr(readiness, "AdminClient", Admin)

    async def work(whole_after_s: float, _: object) -> tuple[str | None, float]:
        begun_s = asyncio.get_running_loop().time()
        whole_at.append(begun_s + whole_after_s)
        missing = await readiness.wait_until_whole("b:1", BOTH, limit_s=3)
        return missing, asyncio.get_running_loop().time() - begun_s

    for whole_after_s, missing, least_s, most_s in (
        (0.0, None, 0, 0),
        (3.9, None, 3.9, 4.1),
        (99.0, f"broker 1 does not answer: {silence}", 4, 4.3),
    ):
        found, took_s = run_world(1, partial(work, whole_after_s))
        assert found == missing and least_s <= took_s <= most_s
