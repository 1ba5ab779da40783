"""What `--replica-assignment` and `--config` of kafka-topics say. Pure. Source: spec admin.md §2.4, §2.5."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from controller.admin.cluster.failures import ToolFailure
from controller.admin.toolkit.console import Console, commas
from controller.admin.toolkit.options import java_split, parse_integer
from controller.wire.types import BrokerId

_COMMAND_FAILED = "org.apache.kafka.server.common.AdminCommandFailedException"


COLLISION_WARNING: Final = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)


def warn_of_collisions(console: Console, topic: str) -> None:
    """Says what names with a period or an underscore may lead to."""
    if "." in topic or "_" in topic:
        console.line(COLLISION_WARNING)


def parse_assignment(text: str) -> dict[int, tuple[BrokerId, ...]]:
    """Replicas per partition of `0:1,1:2`; empty for empty text. Raises ToolFailure."""
    parts = java_split(text) if text else []
    assignment: dict[int, tuple[BrokerId, ...]] = {}
    for partition, part in enumerate(parts):
        ids = tuple(BrokerId(parse_integer(word.strip())) for word in java_split(part, ":"))
        repeated = [broker for broker, count in Counter(ids).items() if count > 1]
        if repeated:
            raise ToolFailure(
                f"Partition replica lists may not contain duplicate entries: {commas(repeated)}",
                java_class=_COMMAND_FAILED,
            )
        if partition and len(ids) != len(assignment[0]):
            raise ToolFailure(
                f"Partition {partition} has different replication factor: [{commas(ids, ', ')}]",
                java_class="org.apache.kafka.server.common.AdminOperationException",
            )
        assignment[partition] = ids
    return assignment


def parse_configs(given: Sequence[str]) -> dict[str, str]:
    """Name and value of each `name=value`, blanks dropped; the last of a name counts. Raises ToolFailure."""
    configs: dict[str, str] = {}
    for text in given:
        pieces = re.split(r"\s*=\s*", text)
        while len(pieces) > 1 and not pieces[-1]:
            pieces.pop()
        if len(pieces) != 2:
            raise ToolFailure(
                'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".',
                java_class="java.lang.IllegalArgumentException",
            )
        configs[pieces[0].strip()] = pieces[1].strip()
    return configs
