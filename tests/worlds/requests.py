"""Requests of all kinds as hypothesis draws them: every field of every version, right and wrong values together."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from controller.wire.codec.kio_schemas import load_request_schema
from controller.wire.codec.schema import Field, fields_of
from controller.wire.protocol import ApiKey
from controller.wire.records import build_values

#: Names that are there, that are not, and that cannot be.
TEXTS = st.one_of(
    st.sampled_from(["t", "t", "t", "u", "g", "1", "2", "retention.ms", "-1", "", ".", "a/b", "x" * 300, "\u0000"]),
    st.text(max_size=4),
)
_BITS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "error_code": 15, "timedelta_i32": 31}
_SMALL = st.integers(-2, 4)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_RECORDS = st.one_of(
    st.none(),
    st.binary(max_size=80),
    st.builds(lambda value: build_values([(None, value)], timestamp=0), st.binary(max_size=5)),
)


def values_of(schema: Any) -> st.SearchStrategy[dict[str, Any]]:
    """A structure, as a mapping."""
    return st.fixed_dictionaries({field.name: _values(field) for field in fields_of(schema)})


def _values(field: Field) -> st.SearchStrategy[Any]:
    one = _one(field)
    if field.array:
        lists = st.lists(one, max_size=2)
        return st.one_of(lists, st.none()) if field.nullable else lists
    return st.one_of(one, st.none()) if field.nullable and field.kind not in ("records", "uuid") else one


def _one(field: Field) -> st.SearchStrategy[Any]:
    match field.kind:
        case "struct":
            return values_of(field.schema)
        case "string":
            return TEXTS
        case "bytes":
            return st.binary(max_size=20)
        case "records":
            return _RECORDS
        case "uuid":
            return st.sampled_from([uuid.UUID(int=0), uuid.UUID(int=7)])
        case "bool":
            return st.booleans()
        case "float64":
            return _FLOATS
    top = 2 ** _BITS.get(field.kind, 63)
    low = 0 if field.kind == "uint16" else -top
    return st.one_of(_SMALL.filter(lambda n: n >= low), st.sampled_from([low, top - 1, min(1_000, top - 1)]))


@st.composite
def requests(draw: Any, apis: Mapping[ApiKey, tuple[int, int]]) -> tuple[ApiKey, int, dict[str, Any]]:
    """(API, version, body) of one of these, in any version that is served."""
    api_key = draw(st.sampled_from(sorted(apis)))
    version = draw(st.integers(*apis[api_key]))
    return api_key, version, draw(values_of(load_request_schema(int(api_key), version)))
