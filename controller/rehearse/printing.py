"""How the commands of a rehearsal print tables: never squeezed, since a narrow terminal breaks long lines itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

_WIDE: Final = 1_000


def wide_console() -> Console:
    """On standard output."""
    return Console(highlight=False, soft_wrap=True, width=_WIDE)


def bare_table(heads: Sequence[str], *, left: int = 1) -> Table:
    """Without lines; columns after the first `left` are figures."""
    table = Table(box=None, pad_edge=False)
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if number < left else "right")
    return table
