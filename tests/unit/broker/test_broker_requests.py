"""A broker in memory, asked over the wire by what plays controller and clients."""

from __future__ import annotations

from typing import Any

from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.records import build_values, iterate


def produce_body(topic: str, partition: int, *values: bytes, acks: int = -1) -> dict[str, Any]:
    batch = build_values([(None, value) for value in values], timestamp=1)
    return {
        "acks": acks,
        "timeout": 30_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
    }


def fetch_body(topic: str, partition: int, offset: int) -> dict[str, Any]:
    return {
        "replica_id": -1,
        "max_wait": 100,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": partition,
                        "current_leader_epoch": -1,
                        "fetch_offset": offset,
                        "log_start_offset": -1,
                        "partition_max_bytes": 1 << 20,
                    }
                ],
            }
        ],
    }


def test_records_go_in_by_produce_and_out_by_fetch(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        for broker_id in (1, 2, 3):
            await cluster.start(broker_id)
        await cluster.create_topic("t", [(1, 2, 3)])
        produced = await cluster.call(1, ApiKey.PRODUCE, 8, produce_body("t", 0, b"a", b"b"))
        partition = produced.responses[0].partition_responses[0]
        assert (partition.error_code, partition.base_offset) == (ErrorCode.NONE, 0)
        fetched = await cluster.call(1, ApiKey.FETCH, 11, fetch_body("t", 0, 0))
        answer = fetched.responses[0].partitions[0]
        assert (answer.error_code, answer.high_watermark) == (ErrorCode.NONE, 2)
        assert [record.value for record in iterate(bytes(answer.records))] == [b"a", b"b"]

    in_memory(scenario)
