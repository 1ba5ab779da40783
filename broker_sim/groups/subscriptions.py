"""Topics in the subscriptions of consumers: the one part of the consumers' own protocol that a broker looks into.

Source: `ConsumerProtocolSubscription.json`; spec clients.md §9.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

#: The protocol type of groups whose members are consumers.
CONSUMER_PROTOCOL_TYPE: Final = "consumer"
_I16, _I32 = struct.Struct(">h"), struct.Struct(">i")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics named; None where some bytes are no subscription, so that nobody knows.

    Source: Kafka 3.9 `GroupMetadata.computeSubscribedTopics`.
    """
    try:
        return frozenset(topic for data in subscriptions for topic in _topics(data))
    except struct.error:
        return None


def _topics(data: bytes) -> list[str]:
    (count,) = _I32.unpack_from(data, 2)
    at, topics = 6, []
    for _ in range(count):
        (size,) = _I16.unpack_from(data, at)
        (name,) = struct.unpack_from(f"{size}s", data, at + 2)
        topics.append(name.decode("utf-8", "replace"))  # as Java
        at += 2 + size
    return topics
