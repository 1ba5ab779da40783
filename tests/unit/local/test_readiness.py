"""When a local cluster is whole, judged by one broker's Metadata answer."""

from __future__ import annotations

from typing import Any

import pytest

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
