"""Records of `__consumer_offsets`, byte for byte as Kafka's schemas have them, in each version that may be read.

Source: Kafka 3.9 `OffsetCommitKey/Value.json`, `GroupMetadataKey/Value.json`, `ConsumerProtocolSubscription.json`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_sim.groups.records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    RecordError,
    StoredGroup,
    StoredMember,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from broker_sim.groups.subscriptions import subscribed_topics
from controller.wire.types import TopicPartition


def i16(number: int) -> bytes:
    return number.to_bytes(2, "big", signed=True)


def i32(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def i64(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


NONE = i16(-1)
KEY = OffsetKey("grp", TopicPartition("tö", 258))
KEY_BYTES = i16(1) + b"\x00\x03grp" + b"\x00\x03t\xc3\xb6" + i32(258)
OFFSET = CommittedOffset(offset=1 << 33, leader_epoch=7, metadata="me", commit_timestamp=1_600_000_000_000)
TAIL = b"\x00\x02me" + i64(1_600_000_000_000)
MEMBER = StoredMember(
    member_id="m1",
    group_instance_id="i",
    client_id="client",
    client_host="/h",
    rebalance_timeout_ms=300_000,
    session_timeout_ms=45_000,
    subscription=b"sub",
    assignment=b"given",
)
OTHER = replace(MEMBER, member_id="m2", group_instance_id=None, subscription=b"")
GROUP = StoredGroup(
    protocol_type="consumer", generation=9, protocol="range", leader="m1", state_changed_ms=77, members=(MEMBER, OTHER)
)
EMPTY = StoredGroup(protocol_type="", generation=10, protocol=None, leader=None, state_changed_ms=1 << 40, members=())
HEAD = b"\x00\x08consumer" + i32(9) + b"\x00\x05range" + b"\x00\x02m1"


def member(member_id: bytes, instance: bytes, rebalance: bytes, subscription: bytes) -> bytes:
    names = i16(2) + member_id + instance + b"\x00\x06client" + b"\x00\x02/h"
    return names + rebalance + i32(45_000) + subscription + i32(5) + b"given"


def members(*, instances: bool = True, rebalance: bool = True) -> bytes:
    timeout = i32(300_000) if rebalance else b""
    first = member(b"m1", b"\x00\x01i" if instances else b"", timeout, i32(3) + b"sub")
    return i32(2) + first + member(b"m2", NONE if instances else b"", timeout, i32(0))


def test_what_is_written() -> None:
    assert encode_offset_key(KEY) == KEY_BYTES
    assert encode_offset_value(OFFSET) == i16(3) + i64(1 << 33) + i32(7) + TAIL
    expiring = replace(OFFSET, expire_timestamp=5)
    assert encode_offset_value(expiring) == i16(1) + i64(1 << 33) + TAIL + i64(5), "version 1 knows no leader epochs"
    assert encode_group_key("grp") == i16(2) + b"\x00\x03grp"
    assert encode_group_value(GROUP) == i16(3) + HEAD + i64(77) + members()
    assert encode_group_value(EMPTY) == i16(3) + i16(0) + i32(10) + NONE + NONE + i64(1 << 40) + i32(0)


NAMELESS = (replace(MEMBER, group_instance_id=None), OTHER)
#: version -> bytes after it, and what they are
OFFSETS = {
    0: (i64(1 << 33) + TAIL, replace(OFFSET, leader_epoch=-1)),
    1: (i64(1 << 33) + TAIL + i64(5), replace(OFFSET, leader_epoch=-1, expire_timestamp=5)),
    2: (i64(1 << 33) + TAIL, replace(OFFSET, leader_epoch=-1)),
    3: (i64(1 << 33) + i32(7) + TAIL, OFFSET),
}
GROUPS = {
    0: (
        HEAD + members(instances=False, rebalance=False),
        replace(GROUP, state_changed_ms=-1, members=tuple(replace(m, rebalance_timeout_ms=45_000) for m in NAMELESS)),
    ),
    1: (HEAD + members(instances=False), replace(GROUP, state_changed_ms=-1, members=NAMELESS)),
    2: (HEAD + i64(77) + members(instances=False), replace(GROUP, members=NAMELESS)),
    3: (HEAD + i64(77) + members(), GROUP),
}


@pytest.mark.parametrize("version", range(4))
def test_what_is_read(version: int) -> None:
    for decode, table in ((decode_offset_value, OFFSETS), (decode_group_value, GROUPS)):
        data, expected = table[version]
        assert decode(i16(version) + data) == expected
        for cut in range(len(data)):
            with pytest.raises(RecordError):
                decode(i16(version) + data[:cut])


def test_keys_are_read() -> None:
    assert decode_key(KEY_BYTES) == decode_key(i16(0) + KEY_BYTES[2:]) == KEY
    assert decode_key(i16(2) + b"\x00\x03grp") == GroupKey("grp")
    for cut in range(len(KEY_BYTES)):
        with pytest.raises(RecordError):
            decode_key(KEY_BYTES[:cut])
    with pytest.raises(RecordError):
        decode_key(None)


@pytest.mark.parametrize("version", [-1, 4, 5])
def test_other_versions_are_refused(version: int) -> None:
    for decode in (decode_key, decode_offset_value, decode_group_value):
        with pytest.raises(RecordError, match=f"version {version} is not known"):
            decode(i16(version) + bytes(100))


@pytest.mark.parametrize("size", [-2, 9])
def test_sizes_that_cannot_be_are_refused(size: int) -> None:
    with pytest.raises(RecordError):
        decode_key(i16(2) + i16(size) + b"grp")


TEXTS = st.text(max_size=8)
NUMBERS = st.integers(-(1 << 31), (1 << 31) - 1)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.builds(
    StoredMember, member_id=TEXTS, group_instance_id=st.none() | TEXTS, client_id=TEXTS, client_host=TEXTS,
    rebalance_timeout_ms=NUMBERS, session_timeout_ms=NUMBERS, subscription=st.binary(max_size=9),
    assignment=st.binary(max_size=9),
), max_size=3), NUMBERS, st.none() | TEXTS)  # fmt: skip
def test_a_group_is_read_as_it_was_written(found: list[StoredMember], number: int, text: str | None) -> None:
    group = StoredGroup(
        protocol_type="p", generation=number, protocol=text, leader=text, state_changed_ms=number, members=tuple(found)
    )
    assert decode_group_value(encode_group_value(group)) == group


@pytest.mark.parametrize("letter", ["x", "é"])
def test_a_text_is_as_long_as_its_size_can_say(letter: str) -> None:
    """In bytes."""
    longest = letter * (32767 // len(letter.encode())) + "x" * (32767 % len(letter.encode()))
    assert decode_key(encode_group_key(longest)) == GroupKey(longest)
    with pytest.raises(RecordError):
        encode_group_key(longest + "x")


def subscription(*topics: bytes) -> bytes:
    return i16(3) + i32(len(topics)) + b"".join(i16(len(t)) + t for t in topics) + b"user data"


def test_the_topics_of_subscriptions() -> None:
    whole = subscription(b"a", b"long-name", "ö".encode(), b"z")
    assert subscribed_topics([whole]) == {"a", "long-name", "ö", "z"}
    assert subscribed_topics([subscription(b"a"), subscription(b"b", b"a")]) == {"a", "b"}
    assert subscribed_topics([subscription()]) == subscribed_topics([]) == frozenset()
    assert subscribed_topics([subscription(b"t\xff", b"a")]) == {"t\ufffd", "a"}, "as Java reads it"
    no_subscriptions = [b"", b"\x00", i16(0) + i32(1) + i16(-1)]
    no_subscriptions += [whole[:size] for size in range(whole.index(b"user data"))]
    for wrong in no_subscriptions:
        assert subscribed_topics([subscription(b"a"), wrong, subscription(b"b")]) is None, wrong
