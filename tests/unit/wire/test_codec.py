"""Readers and writers of messages: every kind of field, in every shape, comes back; whatever is cut off is refused."""

from __future__ import annotations

import dataclasses
import itertools
import struct
import uuid
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.wire import protocol
from controller.wire.codec.kio_schemas import load_request_schema, load_response_schema
from controller.wire.codec.reader import Malformed, read_uvarint, reader
from controller.wire.codec.schema import FIXED, ZERO_UUID, fields_of, min_size
from controller.wire.codec.writer import uvarint, writer
from controller.wire.protocol import ApiKey

REFUSED = (Malformed, struct.error, IndexError)
#: Every schema of the APIs that are spoken, with (API, version, whether it is an answer).
SCHEMAS = {}
for _key, _version, _response in itertools.product(ApiKey, range(20), (False, True)):
    try:
        SCHEMAS[_key, _version, _response] = (load_response_schema if _response else load_request_schema)(
            _key, _version
        )
    except RuntimeError:
        continue


@dataclasses.dataclass
class Inner:
    """A structure of its own."""

    number: int = dataclasses.field(metadata={"kafka_type": "int32"})
    text: str = dataclasses.field(metadata={"kafka_type": "string"})


@dataclasses.dataclass
class FlexibleInner(Inner):
    """The same in a flexible message."""


Inner.__flexible__, FlexibleInner.__flexible__ = False, True  # type: ignore[attr-defined]

#: kind -> its values, the least first
VALUES: dict[str, tuple[Any, ...]] = {
    "bool": (False, True),
    "float64": (0.0, -1.5),
    "uint16": (0, 2**16 - 1),
    **{
        kind: (0, -(2 ** (8 * size - 1)), 2 ** (8 * size - 1) - 1)
        for kind, (_, size) in FIXED.items()
        if kind not in ("bool", "float64", "uint16")
    },
    "string": ("", "näme", "x" * 200),
    "bytes": (b"", b"\x00\xff", bytes(200)),
    "records": (b"", b"\x00\xff", bytes(20_000)),
    "uuid": (ZERO_UUID, uuid.UUID(int=2**127 + 7)),
    "struct": ({"number": 0, "text": ""}, {"number": -7, "text": "é"}),
}
SHAPES = ("one", "nullable", "array", "nullable array")


def message(kind: str, shape: str, *, flexible: bool, tag: int | None = None) -> Any:
    """A schema with a field of that kind between two of fixed size."""
    inner: Any = (FlexibleInner if flexible else Inner) if kind == "struct" else object
    hint = tuple[inner, ...] if "array" in shape else inner
    metadata = {"kafka_type": kind} | ({} if tag is None else {"tag": tag})
    number = {"kafka_type": "int16"}
    made: Any = dataclasses.make_dataclass(
        "Example",
        [
            ("before", int, dataclasses.field(metadata=number)),
            ("field", hint | None if "nullable" in shape else hint, dataclasses.field(metadata=metadata)),
            ("after", int, dataclasses.field(metadata=number)),
        ],
    )
    made.__flexible__ = flexible
    return made


def values_of(kind: str, shape: str) -> list[Any]:
    """What such a field may hold."""
    if "array" in shape:
        found: list[Any] = [(), VALUES[kind][-1:], VALUES[kind] * 60]
    else:
        found = list(VALUES[kind])
    return [*found, None] if "nullable" in shape else found


def written(schema: Any, values: Any) -> bytes:
    parts: list[bytes] = []
    writer(schema)(values, parts.append)
    return b"".join(parts)


FIELDS = [
    pytest.param(message(kind, shape, flexible=flexible), kind, shape, id=f"{shape} {kind}{' compact' * flexible}")
    for kind, shape, flexible in itertools.product(VALUES, SHAPES, (False, True))
    if shape != "nullable" or kind in ("string", "bytes", "records", "struct")
]


@pytest.mark.parametrize(("schema", "kind", "shape"), FIELDS)
def test_a_field_comes_back_and_each_cut_of_it_is_refused(schema: Any, kind: str, shape: str) -> None:
    for value in values_of(kind, shape):
        data = written(schema, {"before": 1, "field": value, "after": -2})
        read, end = reader(schema)(b"?" + data + b"?", 1)
        assert protocol.plain(read) == {"before": 1, "field": protocol.plain(value), "after": -2}
        assert end == 1 + len(data)
        for cut in {*range(0, len(data), 1 + len(data) // 20), len(data) - 2, len(data) - 1}:
            with pytest.raises(REFUSED):
                reader(schema)(data[:cut], 0)


@pytest.mark.parametrize(("schema", "kind", "shape"), FIELDS)
def test_the_fewest_bytes_are_those_of_the_least_value(schema: Any, kind: str, shape: str) -> None:
    least = values_of(kind, shape)[-1 if shape == "nullable" else 0]
    assert min_size(schema) == len(written(schema, {"field": least}))


@pytest.mark.parametrize("api_key", ApiKey, ids=lambda key: key.name)
def test_a_message_with_nothing_in_it_has_the_fewest_bytes(api_key: ApiKey) -> None:
    """More than there are would refuse an array of them at the end of a request."""
    for schema in (schema for (key, *_), schema in SCHEMAS.items() if key == api_key):
        data = written(schema, least_values(schema))
        assert min_size(schema) == max(1, len(data))
        assert reader(schema)(data, 0)[1] == len(data)


def least_values(schema: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in fields_of(schema):
        if field.tag is None and field.array:
            values[field.name] = ()
        elif field.tag is None and field.kind == "struct":
            values[field.name] = None if field.nullable else least_values(field.schema)
        elif field.tag is None:
            values[field.name] = VALUES[field.kind][0]
    return values


@pytest.mark.parametrize("api_key", ApiKey, ids=lambda key: key.name)
def test_a_message_that_is_cut_off_is_refused_wherever_that_is(api_key: ApiKey) -> None:
    schemas = [schema for (key, *_), schema in SCHEMAS.items() if key == api_key]
    for schema in (*schemas[:2], *schemas[-2:]):
        data = written(schema, some_values(schema))
        for cut in range(len(data)):
            with pytest.raises(REFUSED):
                reader(schema)(data[:cut], 0)


def some_values(schema: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in fields_of(schema):
        if field.tag is None:
            value = some_values(field.schema) if field.kind == "struct" else VALUES[field.kind][1]
            values[field.name] = (value,) if field.array else value
    return values


def test_a_structure_is_there_after_any_byte_that_is_not_negative() -> None:
    """Source: Kafka 3.9 `MessageDataGenerator`."""
    read = reader(message("struct", "nullable", flexible=False))
    for marker in range(256):
        data = bytes((0, 1, marker)) + (bytes(6) if marker < 128 else b"") + b"\x00\x02"
        found, end = read(data, 0)
        assert (found.field is None, found.after, end) == (marker >= 128, 2, len(data))


MAY_BE_NULL = ("string", "bytes", "records")


@pytest.mark.parametrize("flexible", [False, True])
@pytest.mark.parametrize(
    ("kind", "shape"), [*itertools.product(MAY_BE_NULL, ("one", "array")), ("struct", "array"), ("int32", "array")]
)
def test_null_goes_only_where_it_may(kind: str, shape: str, flexible: bool) -> None:
    nullable = message(kind, f"nullable {shape}".removesuffix(" one"), flexible=flexible)
    with pytest.raises(Malformed, match=r"field at byte \d+ must not be null"):
        reader(message(kind, shape, flexible=flexible))(written(nullable, {"field": None}), 0)
    with pytest.raises(ValueError, match="field must not be null"):
        written(message(kind, shape, flexible=flexible), {"field": None})


@pytest.mark.parametrize("flexible", [False, True])
@pytest.mark.parametrize(("kind", "shape"), [*itertools.product(MAY_BE_NULL, SHAPES[2:])])
def test_an_entry_of_an_array_is_never_null(kind: str, shape: str, flexible: bool) -> None:
    schema = message(kind, shape, flexible=flexible)
    with pytest.raises(ValueError, match="field must not be null"):
        written(schema, {"field": (VALUES[kind][0], None)})
    whole = written(schema, {"field": (VALUES[kind][0],)})
    size = {"string": 2}.get(kind, 4)
    null = whole[:3] + b"\x00" + whole[4:] if flexible else whole[:6] + b"\xff" * size + whole[6 + size :]
    with pytest.raises(Malformed, match="must not be null"):
        reader(schema)(null, 0)


TAGGED = [
    pytest.param(kind, shape, id=f"{shape} {kind}")
    for kind, shape in itertools.product(VALUES, SHAPES)
    if shape != "nullable" or kind in ("string", "bytes", "records", "struct")
]


@pytest.mark.parametrize("tag", [0, 1, 300])
@pytest.mark.parametrize(("kind", "shape"), TAGGED)
def test_a_tagged_field_is_sent_when_it_says_something_and_read_between_others(kind: str, shape: str, tag: int) -> None:
    schema, plain = message(kind, shape, flexible=True, tag=tag), message(kind, shape, flexible=True)
    silent = b"\x00\x05\x00\x06"
    for value in values_of(kind, shape)[1:]:
        if value is None:
            assert written(schema, {"before": 5, "field": None, "after": 6}) == silent + b"\x00"
            continue
        content = written(plain, {"field": value})[2:-3]
        if kind == "struct" and shape == "nullable":
            content = content[1:]  # that it is there is what the tag says
        data = silent + b"\x01" + uvarint(tag) + uvarint(len(content)) + content
        assert written(schema, {"before": 5, "field": value, "after": 6}) == data
        stranger = uvarint(tag + 1) + b"\x03abc"
        for more in (data, silent + b"\x03" + stranger + data[5:] + stranger):
            read, end = reader(schema)(more + b"?", 0)
            assert (protocol.plain(read.field), read.before, read.after) == (protocol.plain(value), 5, 6)
            assert end == len(more)
        for cut in {4, 5, 6, *range(5, len(data), 1 + len(data) // 20), len(data) - 1}:
            with pytest.raises(REFUSED):
                reader(schema)(data[:cut], 0)
        with pytest.raises(Malformed, match="tagged field field does not end"):
            reader(schema)(silent + b"\x01" + uvarint(tag) + uvarint(len(content) + 1) + content + b"!", 0)


@pytest.mark.parametrize(("kind", "shape"), TAGGED)
def test_what_a_message_leaves_out_has_its_default(kind: str, shape: str) -> None:
    default = None if "nullable" in shape else () if shape == "array" else VALUES[kind][0]
    for flexible in (False, True):
        schema = message(kind, shape, flexible=flexible)
        data = written(schema, {})
        assert data == written(schema, {"field": default})
        assert written(schema, {"before": 0, "after": 0}) == data
    tagged = message(kind, shape, flexible=True, tag=0)
    read, _ = reader(tagged)(b"\x00" * 5, 0)
    assert read.field == (None if kind == "struct" and shape == "one" else default)
    assert written(tagged, {}) == written(tagged, {"field": None}) == b"\x00" * 5


VARINTS = sorted({2 ** (7 * groups) + near for groups in range(5) for near in (-1, 0, 1)} | {0, 2**31 - 1, 2**35 - 1})


@given(st.sampled_from(VARINTS) | st.integers(0, 2**35 - 1))
def test_a_varint_is_seven_bits_a_byte_the_lowest_first_and_no_longer_than_need_be(number: int) -> None:
    groups = [number >> (7 * nth) & 127 for nth in range(max(1, -(-number.bit_length() // 7)))]
    data = bytes([*(group + 128 for group in groups[:-1]), groups[-1]])
    assert uvarint(number) == data
    assert read_uvarint(b"\xff" + data + b"\x01", 1) == (number, 1 + len(data))
    for cut in range(len(data)):
        with pytest.raises(IndexError):
            read_uvarint(data[:cut], 0)


def test_a_varint_ends_with_its_fifth_byte() -> None:
    assert read_uvarint(b"\x81\x80\x80\x80\x00", 0) == (1, 5)
    with pytest.raises(Malformed, match="longer than 5 bytes"):
        read_uvarint(b"\x81\x80\x80\x80\x80\x00", 0)


def test_messages_are_equal_when_all_their_fields_are() -> None:
    schema = message("string", "one", flexible=False)
    given_values = [{"before": b, "field": f, "after": a} for b, f, a in itertools.product((0, 1), ("", "a"), (0, 1))]
    one, other = ([reader(schema)(written(schema, values), 0)[0] for values in given_values] for _ in range(2))
    for (at, left), (to, right) in itertools.product(enumerate(one), enumerate(other)):
        assert (left == right) is (at == to)
        assert at != to or hash(left) == hash(right)
    assert repr(one[-1]) == "Example(before=1, field='a', after=1)"
    assert one[0] != reader(message("int32", "one", flexible=False))(bytes(8), 0)[0]
    assert one[0] != {"before": 0, "field": "", "after": 0}


@pytest.mark.parametrize("api_key", ApiKey, ids=lambda key: key.name)
def test_the_error_codes_of_an_answer_are_those_at_all_its_depths(api_key: ApiKey) -> None:
    for version in (version for key, version, response in SCHEMAS if key == api_key and response):
        schema = SCHEMAS[api_key, version, True]
        body, codes = _with_codes(schema, itertools.count(1))
        assert Counter(protocol.error_codes_of(api_key, version, body)) == Counter(codes)
        data = protocol.encode_body(api_key, version, body, response=True)
        assert Counter(protocol.error_codes_of(api_key, version, data)) == Counter(codes)
        own = [f for f in fields_of(schema) if f.kind == "error_code"]
        assert list(protocol.error_codes_of(api_key, version, {})) == [0] * len(own)


def _with_codes(schema: Any, numbers: itertools.count[int]) -> tuple[dict[str, Any], list[int]]:
    """A body with another error code at each place that has one, and these codes."""
    values, codes = least_values(schema), []
    for field in fields_of(schema):
        if field.kind == "error_code":
            values[field.name] = next(numbers)
            codes.append(values[field.name])
        elif field.kind == "struct" and field.tag is None:
            inner = [_with_codes(field.schema, numbers) for _ in range(2 if field.array else 1)]
            values[field.name] = tuple(body for body, _ in inner) if field.array else inner[0][0]
            codes += [code for _, found in inner for code in found]
    return values, codes
