"""Whether a text is a regular expression of RE2's syntax, said as RE2/J says it. Pure.

Arrow carries RE2 itself; RE2/J, which brokers of 4.x use, has other words for the same.
Source: `com.google.re2j.Parser` 1.8, RE2 `RegexpStatus::CodeText`; compared by running both.
"""

from __future__ import annotations

import re
from typing import Final

#: RE2's words, and RE2/J's; where both say the same there is no row.
_WORDS: Final = (
    ("missing ]", "missing closing ]"),
    ("missing )", "missing closing )"),
    ("unexpected )", "regexp/syntax: internal error"),
    ("no argument for repetition operator", "missing argument to repetition operator"),
    ("bad repetition operator", "invalid nested repetition operator"),
    ("invalid repetition size", "invalid repeat count"),
    ("trailing \\", "trailing backslash at end of expression"),
    ("invalid perl operator", "invalid or unsupported Perl syntax"),
    ("invalid named capture group", "invalid named capture"),
)
#: How often at most a repetition repeats, by itself. RE2 multiplies those within each other; RE2/J does not.
_MOST: Final = 1000
_TIMES: Final = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_NAME: Final = re.compile(r"\(\?P?<(\w+)>")
_HEAD: Final = "Invalid regular expression: "


def why_invalid(regex: str) -> str | None:
    """What is wrong with it; None for a valid one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.array([""]), regex)
    except pa.ArrowInvalid as error:
        message = str(error).removeprefix(_HEAD)
        if message.startswith("invalid repetition size") and all(map(_is_legal, _TIMES.findall(regex))):
            return None
        return next((theirs for ours, theirs in _WORDS if message.startswith(ours)), message.partition(":")[0])
    names = _NAME.findall(regex)
    return "duplicate capture group name" if len(set(names)) < len(names) else None


def _is_legal(times: tuple[str, str]) -> bool:
    least, most = times
    return int(least) <= int(most or least) <= _MOST
