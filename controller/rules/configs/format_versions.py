"""Which texts `message.format.version` may have. Pure.

Source: Kafka 3.9 `MetadataVersion.fromVersionString`.
"""

from __future__ import annotations

from typing import Final

#: Those that have no other name than their release's.
_ALONE: Final = ("0.8.0", "0.8.1", "0.8.2", "0.9.0")
#: How many versions each release went through: IV0 and so on.
_STEPS: Final = {
    "0.10.0": 2, "0.10.1": 3, "0.10.2": 1, "0.11.0": 3, "1.0": 1, "1.1": 1, "2.0": 2, "2.1": 3, "2.2": 2, "2.3": 2,
    "2.4": 2, "2.5": 1, "2.6": 1, "2.7": 3, "2.8": 2, "3.0": 2, "3.1": 1, "3.2": 1, "3.3": 4, "3.4": 1, "3.5": 3,
    "3.6": 3, "3.7": 5, "3.8": 1, "3.9": 1, "4.0": 2,
}  # fmt: skip
#: It was not out yet: its steps alone are names.
_NOT_OUT: Final = "4.0"
_NAMES: Final = frozenset(
    {*_ALONE, *(release for release in _STEPS if release != _NOT_OUT)}
    | {f"{release}-IV{step}" for release, steps in _STEPS.items() for step in range(steps)}
)


def is_format_version(text: str) -> bool:
    """Whether it names a version; what follows the release, such as the 1 of 2.6.1, does not count."""
    parts = text.rstrip(".").split(".")  # as Java splits
    count = 3 if text.startswith("0.") else 2
    return (text if len(parts) <= count else ".".join(parts[:count])) in _NAMES
