"""The texts of kafka-configs: what `--add-config` says, a line of `--describe`. Source: spec admin.md §4.3."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from controller.admin.cluster.failures import ToolFailure
from controller.admin.cluster.queries import ConfigEntry
from controller.admin.toolkit.options import without_empty_end
from controller.admin.toolkit.properties import read_properties

#: A separator outside of square brackets.
_COMMA: Final = re.compile(r",(?=[^\]]*(?:\[|$))")
_EQUALS: Final = re.compile(r"\s*=\s*(?=[^\]]*(?:\[|$))")
_KEY: Final = re.compile(r"[a-zA-Z0-9._-]*")


def parse_add_config(text: str | None, end: str = ".") -> dict[str, str]:
    """Keys and values of `k1=v1,k2=[v1,v2]`; brackets group commas and are taken off.

    `end` is that of the complaint. Raises ToolFailure.
    """
    configs: dict[str, str] = {}
    for part in without_empty_end(_COMMA.split(text), text) if text is not None else []:
        pieces = _EQUALS.split(part)
        if len(pieces) != 2:
            raise _illegal(
                'requirement failed: Invalid entity config: all configs to be added must be in the format "key=val"'
                + end
            )
        key, value = pieces[0].strip(), re.sub(r"[\[\]]", "", pieces[1]).strip()
        configs[key] = value
    return configs


def check_keys(configs: Iterable[str]) -> None:
    """Raises ToolFailure for the first that has a character which no key has."""
    for key in configs:
        if not _KEY.fullmatch(key):
            raise _illegal(f"Invalid character found for config key: {key}")


def parse_delete_config(given: Sequence[str]) -> list[str]:
    """The keys of all comma lists. Empty ones are passed over, where there are others (joptsimple's tokens)."""
    return [key.strip() for text in given for key in list(filter(None, text.split(","))) or [text]]


def read_config_file(path: str | None) -> dict[str, str]:
    """The properties of a file; none without one. Raises ToolFailure."""
    if path is None:
        return {}
    try:
        return dict(read_properties(Path(path)))
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            raise ToolFailure(path, java_class="java.nio.file.NoSuchFileException") from error
        raise ToolFailure(f"{path}: {error}", java_class="java.io.IOException") from error


def entry_line(entry: ConfigEntry) -> str:
    """One property as `--describe` prints it."""
    synonyms = ", ".join(f"{source.name}:{name}={_shown(value)}" for source, name, value in entry.synonyms)
    sensitive = str(entry.is_sensitive).lower()
    return f"  {entry.name}={_shown(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _shown(value: str | None) -> str:
    return "null" if value is None else value


def _illegal(message: str) -> ToolFailure:
    return ToolFailure(message, java_class="java.lang.IllegalArgumentException")
