"""Reads a document that a person wrote, and says what is wrong with it in plain words and with its line. Pure.

Pydantic names the place within the value and speaks of Python's types; a person looks for a line, and writes lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import yaml
from pydantic import ValidationError

Place = tuple[str | int, ...]

#: Kinds of pydantic's whose own text speaks of Python.
_WORDS: Final = {
    "extra_forbidden": "not known",
    "missing": "is missing",
    "tuple_type": "expected a list",
    "list_type": "expected a list",
    "mapping_type": "expected a mapping",
    "dict_type": "expected a mapping",
    "model_type": "expected a mapping",
    "model_attributes_type": "expected a mapping",
    "string_type": "expected a text",
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "float_parsing": "expected a number",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
}


class NotYaml(ValueError):
    """A text that is no YAML. The message begins with its name, and its line where that is known."""


class _EachKeyOnce(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML allows each key of a mapping once; PyYAML takes the last. The parser in C, where it is there, reads 20,000
    partitions in seconds rather than a minute."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is there twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: Any) -> Any:
        """Of old, YAML takes 1:30 for 90 and 1:30:00 for 5400; who writes that means a time, and 01:30 is a text."""
        is_time = ":" in node.value
        made = self.construct_yaml_float if node.tag.endswith("float") else self.construct_yaml_int
        return self.construct_scalar(node) if is_time else made(node)


for _kind in ("int", "float"):
    _EachKeyOnce.add_constructor(f"tag:yaml.org,2002:{_kind}", _EachKeyOnce.construct_number)


def read(text: str, name: str) -> Any:
    """The value of the YAML text of that name. Raises NotYaml, also where a key is in one mapping twice, and for what
    looks like a value and is none, as the date 2026-13-45."""
    try:
        with _only_yaml(name):
            return yaml.load(text, Loader=_EachKeyOnce)
    except ValueError as error:
        if isinstance(error, NotYaml):
            raise
        root = compose(text, name)
        line = 1 + min((node.start_mark.line for node in _scalars(root) if not _is_value(node)), default=0)
        raise NotYaml(f"{name}, line {line}: {error}; text may stand in quotes") from error


def compose(text: str, name: str) -> Any:
    """The nodes of the YAML text of that name, which know their lines; None of an empty one. Raises NotYaml."""
    with _only_yaml(name):
        return yaml.compose(text, Loader=yaml.SafeLoader)


@contextmanager
def _only_yaml(name: str) -> Iterator[None]:
    try:
        yield
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise NotYaml(f"{name}, line {line}: not YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise NotYaml(f"{name}: not YAML: {error}") from error


def _scalars(root: yaml.Node) -> Iterator[yaml.Node]:
    """Each once, in any order; an alias may lead back to where it stands."""
    left, seen = [root], set[int]()
    while left:
        node = left.pop()
        if isinstance(node, yaml.ScalarNode):
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            is_mapping = isinstance(node, yaml.MappingNode)
            left += [each for pair in node.value for each in pair] if is_mapping else node.value


def _is_value(node: yaml.Node) -> bool:
    try:
        yaml.SafeLoader("").construct_object(node)
    except ValueError:
        return False
    return True


class WrongPlace(ValueError):
    """Raised within a validator: what is wrong, and at which place below the value that is validated."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place = place


def first_error(error: ValidationError, *, hidden: Sequence[str] = ()) -> tuple[Place, str]:
    """The place of the first thing that is wrong, and `place: what (n more)`. Where the place begins with one of
    `hidden`, that is pydantic's, not the document's."""
    first, *rest = error.errors(include_url=False)
    wrong = first.get("ctx", {}).get("error")
    below = wrong.place if isinstance(wrong, WrongPlace) else ()
    place = (*first["loc"], *below)
    place = place[1:] if place[:1] and place[0] in hidden else place
    more = f" ({len(rest)} more)" if rest else ""
    return place, f"{'.'.join(map(str, place)) or 'the file'}: {words_of(first)}{more}"


def words_of(detail: Any) -> str:
    """What is wrong, by pydantic's account of it."""
    kind, given = detail["type"], detail.get("input")
    if kind in ("too_short", "tuple_too_short"):
        return f"expected at least {detail['ctx']['min_length']}, there are {detail['ctx']['actual_length']}"
    words = _WORDS.get(kind)
    if words is None:
        return str(detail["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    return f"{words}, not {given!r}" if words.startswith("expected") and isinstance(given, (str, int, float)) else words


def line_of(text: str, place: Place) -> int | None:
    """The line, from 1 on, of that place in a YAML text, or of the deepest part of it that is there. Only for messages:
    the text is parsed once more."""
    try:
        node = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    line = None if node is None else 1
    for part in place:
        found = _step(node, part)
        if found is None:
            break
        line, node = found
    return line


def _step(node: Any, part: str | int) -> tuple[int, Any] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(part):
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part].start_mark.line + 1, node.value[part]
    return None
