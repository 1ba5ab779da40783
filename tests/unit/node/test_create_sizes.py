"""What one CreateTopics may ask for in all: a request of a few bytes must not make a controller grow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey

Play = Callable[..., list[Any]]


def test_the_topics_of_a_request_have_room_for_so_many_partitions_together(play: Play) -> None:
    sizes = {"a": 60_000, "b": 40_001, "c": 39_999, "d": 2, "e": 1}

    async def scenario(cluster: Any) -> None:
        body = {
            "topics": [
                {"name": name, "num_partitions": size, "replication_factor": 1, "assignments": [], "configs": []}
                for name, size in sizes.items()
            ],
            "timeout": 0,
            "validate_only": True,
        }
        answer = await cluster.ask(ApiKey.CREATE_TOPICS, 4, body)
        assert {each["name"]: each["error_code"] for each in answer["topics"]} == {
            "a": ErrorCode.NONE,
            "b": ErrorCode.INVALID_PARTITIONS,
            "c": ErrorCode.NONE,
            "d": ErrorCode.INVALID_PARTITIONS,
            "e": ErrorCode.NONE,
        }
        texts = {each["name"]: each["error_message"] for each in answer["topics"]}
        assert texts["b"] == "100001 partitions are too many; 100000 fit into a request."
        assert texts["d"] == "100001 partitions are too many; 100000 fit into a request."

    play(scenario)
