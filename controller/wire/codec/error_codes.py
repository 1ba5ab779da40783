"""Which error codes an answer carries, found by its schema: a field that was left out counts as its default. Pure."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from controller.wire.codec.schema import fields_of

_NONE: Final = 0

Finder = Callable[[Mapping[str, Any]], Iterator[int]]


@functools.cache
def error_codes(schema: Any) -> Finder | None:
    """What yields the error codes of a body of that schema, at all depths; None for a schema that has none."""
    own, below = [], []
    for field in fields_of(schema):
        if field.kind == "error_code":
            own.append(field.name)
        elif field.kind == "struct" and (inside := error_codes(field.schema)) is not None:
            below.append((field.name, field.array, inside))
    if not own and not below:
        return None

    def find(body: Mapping[str, Any]) -> Iterator[int]:
        for name in own:
            yield int(body.get(name) or _NONE)
        for name, is_array, inside in below:
            value = body.get(name)
            if value is not None:
                for each in value if is_array else (value,):
                    yield from inside(each)

    return find
