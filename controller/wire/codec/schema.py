"""kio's schema classes as a list of fields: what `reader` and `writer` are compiled from. Pure."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import types
import typing
import uuid
from typing import Any, Final

#: kafka_type -> (struct letter, bytes) for the types of fixed size.
FIXED: Final = {
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "bool": ("?", 1),
    "float64": ("d", 8),
    "error_code": ("h", 2),
    "timedelta_i32": ("i", 4),
    "timedelta_i64": ("q", 8),
    "datetime_i64": ("q", 8),
}
ZERO_UUID: Final = uuid.UUID(int=0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a structure, independent of how kio spells it."""

    name: str
    kind: str  # a kafka_type, or "struct"
    array: bool
    nullable: bool
    tag: int | None
    default: Any  # plain: what is written when a mapping leaves the field out
    schema: Any  # of a "struct"

    @property
    def fixed(self) -> tuple[str, int] | None:
        """Struct letter and size, where the field stands alone with a fixed size."""
        return None if self.array or self.tag is not None else FIXED.get(self.kind)


@functools.cache
def fields_of(schema: Any) -> tuple[Field, ...]:
    """The fields in wire order."""
    hints = typing.get_type_hints(schema)
    return tuple(_field(f, hints[f.name]) for f in dataclasses.fields(schema))


def _field(field: Any, hint: Any) -> Field:
    inner, nullable = _without_none(hint)
    array = typing.get_origin(inner) is tuple
    if array:
        inner, _ = _without_none(typing.get_args(inner)[0])
    is_struct = dataclasses.is_dataclass(inner)
    kind = "struct" if is_struct else field.metadata["kafka_type"]
    return Field(
        name=field.name,
        kind=kind,
        array=array,
        nullable=nullable,
        tag=field.metadata.get("tag"),
        default=_plain_default(field, kind, array=array, nullable=nullable),
        schema=inner if is_struct else None,
    )


def _without_none(hint: Any) -> tuple[Any, bool]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return next(a for a in typing.get_args(hint) if a is not type(None)), True
    return hint, False


def _plain_default(field: Any, kind: str, *, array: bool, nullable: bool) -> Any:
    if field.default is not dataclasses.MISSING:
        return _as_plain_value(field.default)
    if array:
        return None if nullable else ()
    if nullable and kind != "uuid":
        return -1 if kind == "datetime_i64" else None
    empty = {"string": "", "bytes": b"", "records": b"", "bool": False, "float64": 0.0, "uuid": ZERO_UUID}
    return {} if kind == "struct" else empty.get(kind, 0)


def _as_plain_value(default: Any) -> Any:
    if isinstance(default, datetime.timedelta):
        return round(default.total_seconds() * 1000)
    if isinstance(default, datetime.datetime):
        return round(default.timestamp() * 1000)
    return int(default) if isinstance(default, int) and not isinstance(default, bool) else default


@functools.cache
def min_size(schema: Any) -> int:
    """The fewest bytes an instance takes; a count of entries times this is what must still be there."""
    size = 1 if schema.__flexible__ else 0
    for field in fields_of(schema):
        if field.tag is None:
            size += _min_field_size(field, flexible=schema.__flexible__)
    return max(size, 1)


def _min_field_size(field: Field, *, flexible: bool) -> int:
    if field.array:
        return 1 if flexible else 4
    if field.kind in FIXED:
        return FIXED[field.kind][1]
    if field.kind == "struct":
        return 1 if field.nullable else min_size(field.schema)
    if field.kind == "uuid":
        return 16
    return 1 if flexible else (2 if field.kind == "string" else 4)


def untagged(field: Field) -> Field:
    """A tagged field as it stands inside its tag, where absence is already told by the tag."""
    return dataclasses.replace(field, tag=None, nullable=field.nullable and field.kind != "struct")
