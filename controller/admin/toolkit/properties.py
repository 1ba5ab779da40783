"""Property files as Java's tools read them: each byte is a character (ISO 8859-1), others are written `\\u20ac`.

Source: Java's Properties, Kafka 3.9 `Utils.loadProps`.
"""

from __future__ import annotations

from pathlib import Path

from controller.rules.configs.settings import Settings, parse_properties


def read_properties(path: Path) -> Settings:
    """The names and values of a file. Raises OSError, SettingError; ValueError for what is no path."""
    return parse_properties(path.read_bytes().decode("iso-8859-1"))
