"""Faults of requests, disks, links and followers at running brokers: each is logged when it starts, acts and ends."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.wire.fault_rows import KINDS, parse_row
from controller.wire.protocol import ApiKey
from controller.wire.records import build_values

#: kind -> columns; broker 1 leads, broker 2 follows, a client produces.
FAULTS: dict[str, dict[str, Any]] = {
    "pause_replication": {"broker": 2},
    "slow_disk": {"broker": 1, "delay_ms": 10},
    "slow_link": {"broker": 1, "delay_ms": 10},
    "cut_link": {"broker": 2, "peer": 1},
    "api": {"broker": 1, "api": "Produce", "action": "delay", "delay_ms": 10},
}
#: Those that a broker does not survive, and those that act at once, are with the host's tests.
OF_THE_HOST = {"kill", "stop", "expire_session", "fail_log_dir"}


def test_every_kind_has_its_row() -> None:
    assert FAULTS.keys() | OF_THE_HOST == KINDS.keys()


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_logged_when_it_starts_acts_and_ends(in_memory: Any, kind: str) -> None:
    row = parse_row({"fault": kind, "id": "f", **FAULTS[kind]})
    rows = [{"index": 0, "records": build_values([(None, b"v")], timestamp=1)}]
    body = {"acks": 1, "timeout": 3000, "topic_data": [{"name": "t", "partition_data": rows}]}

    async def scenario(cluster: Any) -> None:
        for number in (1, 2):
            await cluster.start(number)
        await cluster.create_topic("t", [(1, 2)])
        for broker in cluster.brokers.values():
            broker.set_faults([row])
        await cluster.world.sleep(1)
        await cluster.call(1, ApiKey.PRODUCE, 8, body)
        await cluster.world.sleep(2)
        for broker in cluster.brokers.values():
            broker.set_faults([])

    with capture_logs() as logs:
        in_memory(scenario)
    told = [(line["event"], line["broker_id"]) for line in logs if line["event"].startswith("fault.")]
    at = FAULTS[kind]["broker"]
    mine = [event for event, broker_id in told if broker_id == at]
    assert mine[0] == "fault.started"
    assert mine[-1] == "fault.ended"
    assert set(mine[1:-1]) == {"fault.acted"}
    ends = [line for line in logs if line["event"] == "fault.ended" and line["broker_id"] == at]
    assert [(line["id"], line["fault"], line["acted"] > 0) for line in ends] == [("f", kind, True)]
