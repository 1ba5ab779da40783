"""Every command that README and docs show in a block of code, as a reader would type it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
#: What a line begins with that is typed; settings of the environment may stand before it.
_PROGRAMS: Final = (
    r"(?:[A-Z_]+=\S+ )*(?:kwob|make|pip|docker|prometheus|pytest|python|spark-submit|\.venv/bin/\w+|\.ci/\w+)"
)
_TYPED: Final = re.compile(rf"^{_PROGRAMS}(?: .*)?$")
_FENCE: Final = re.compile(r"^```(\w*)$")
#: Blocks of these languages hold other things.
_NOT_TYPED: Final = frozenset({"python", "yaml", "json", "mermaid"})
#: What stands for something else: a synopsis, which says what could be typed.
_STANDS_FOR: Final = re.compile(r"\b(?:PATH|DIR|HOST|PORT|FILE|ID)\b|\.\.\.|…| \| |\[--")


@dataclass(frozen=True)
class Typed:
    """A command of a page, without the remark behind it."""

    page: str
    line: str

    @property
    def is_synopsis(self) -> bool:
        """Whether a reader has to put something in its place."""
        return _STANDS_FOR.search(self.line) is not None


def commands(text: str) -> list[str]:
    """The commands in the blocks of code of a page, in their order."""
    found = []
    for block in _blocks(text):
        lines = re.sub(r"\\\n\s*", "", block).splitlines()
        has_prompt = any(line.startswith("$ ") for line in lines)  # the rest is what it prints
        typed = (_TYPED.match(line.removeprefix("$ ")) for line in lines if line.startswith("$ ") or not has_prompt)
        found += [re.sub(r"\s+# .*$", "", line[0]).strip() for line in typed if line is not None]
    return found


def _blocks(text: str) -> list[str]:
    blocks: list[str] = []
    language, is_open = None, False
    for row in text.splitlines():
        fence = _FENCE.match(row)
        if fence is not None:
            language, is_open = (fence[1] if language is None else None), False
        elif language in _NOT_TYPED or not (language is not None or row.startswith("    ")):
            is_open = False
        else:
            line = row if language is not None else row[4:]
            blocks = [*blocks[:-1], f"{blocks[-1]}\n{line}"] if is_open else [*blocks, line]
            is_open = True
    return blocks


def of_page(name: str) -> list[Typed]:
    """Those of one page, such as `faults.md`."""
    path = ROOT / name if name == "README.md" else ROOT / "docs" / name
    return [Typed(name, line) for line in commands(path.read_text(encoding="utf-8"))]


def of_all_pages() -> list[Typed]:
    """README's and those of docs."""
    return [typed for page in PAGES for typed in of_page(page.name)]
