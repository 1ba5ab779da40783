"""When a local cluster is whole, judged by one broker's Metadata answer."""

from __future__ import annotations

import asyncio
from typing import Any, Self

import pytest

from controller.local import readiness
from controller.local.readiness import what_is_missing
from controller.wire import protocol
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId

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
