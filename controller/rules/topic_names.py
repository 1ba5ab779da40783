"""Which names a topic may have. Pure. Source: Kafka 3.9 `Topic.validate`, `Topic.hasCollision`; spec admin.md §2.3."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from controller.wire.errors import ErrorCode, KafkaError

MAX_TOPIC_NAME_LENGTH: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(topic: str) -> None:
    """Raises KafkaError (INVALID_TOPIC_EXCEPTION) for a name that no topic can have, with the words of 3.9."""
    if not topic:
        reason = "the empty string is not allowed"
    elif topic in (".", ".."):
        reason = f"'{topic}' is not allowed"
    elif len(topic) > MAX_TOPIC_NAME_LENGTH:
        reason = f"the length of '{topic}' is longer than the max allowed length {MAX_TOPIC_NAME_LENGTH}"
    elif not _LEGAL.fullmatch(topic):
        reason = f"'{topic}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def collisions(topic: str, topics: Iterable[str]) -> list[str]:
    """Those of `topics` whose metrics would have the same name as `topic`'s, sorted."""
    return sorted(other for other in topics if other.replace(".", "_") == topic.replace(".", "_"))
