"""Versions of requests that the installed kio does not have yet: its newest classes, and the fields that came since.

Source: Kafka 4.1 `ConsumerGroupDescribeRequest.json`, `ConsumerGroupDescribeResponse.json` (version 1, KIP-1099).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from kio.schema.consumer_group_describe.v0 import request as request_0
from kio.schema.consumer_group_describe.v0 import response as response_0
from kio.static.primitive import i8, i16


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(response_0.Member):
    """A member of a consumer group."""

    __version__: ClassVar[i16] = i16(1)
    member_type: i8 = field(metadata={"kafka_type": "int8"}, default=i8(-1))
    """-1: unknown; 0: one of the classic protocol; 1: one of that of KIP-848."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup(response_0.DescribedGroup):
    """A consumer group."""

    __version__: ClassVar[i16] = i16(1)
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescribeResponse(response_0.ConsumerGroupDescribeResponse):
    """Version 1 tells of each member which protocol it speaks."""

    __version__: ClassVar[i16] = i16(1)
    groups: tuple[DescribedGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescribeRequest(request_0.ConsumerGroupDescribeRequest):
    """As version 0."""

    __version__: ClassVar[i16] = i16(1)


#: (API key, version) -> the class.
REQUESTS: Final[dict[tuple[int, int], Any]] = {(69, 1): ConsumerGroupDescribeRequest}
RESPONSES: Final[dict[tuple[int, int], Any]] = {(69, 1): ConsumerGroupDescribeResponse}
