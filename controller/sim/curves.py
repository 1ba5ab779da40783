"""How a figure went, as one line of text: for terminals and files alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rich.table import Table

_STEPS: Final = "▁▂▃▄▅▆▇█"
#: Characters of a curve; of more samples each stands for several.
WIDTH: Final = 48


def curve(values: Sequence[float]) -> str:
    """From 0 to the largest: a character for each, or for the largest of each few."""
    top = max(values, default=0)
    if top <= 0:
        return _STEPS[0] * min(len(values), WIDTH)
    each = -(-len(values) // WIDTH)
    heights = [max(values[place : place + each]) for place in range(0, len(values), each)]
    return "".join(_STEPS[min(len(_STEPS) - 1, int(height / top * len(_STEPS)))] for height in heights)


def curves(title: str, rows: Mapping[str, Sequence[float]]) -> Table:
    """A row for each figure: first value, curve, last value, largest."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in ("", "first", "", "last", "most"):
        table.add_column(name, justify="left" if name == "" else "right", no_wrap=True)
    for name, values in rows.items():
        table.add_row(name, f"{values[0]:,.0f}", curve(values), f"{values[-1]:,.0f}", f"{max(values):,.0f}")
    return table
