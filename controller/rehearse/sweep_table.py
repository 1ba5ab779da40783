"""What a sweep prints: which loss hurts most, at which moment, under which throttle; the worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from controller.rehearse import files
from controller.rehearse.answer import moves_and_links, partitions
from controller.rehearse.clock import clock
from controller.rehearse.printing import bare_table, wide_console
from controller.rehearse.variants import severity

#: Rows that a terminal shows; all are in the file.
_ROWS_MAX: Final = 25
_VARIED: Final = ("loss", "at_ms", "throttle", "seed")


def show(rows: Sequence[Mapping[str, Any]], worst: Mapping[str, Any], out: Path) -> None:
    """The table, the answer in a sentence, and where the worst rehearsal is."""
    console = wide_console()
    lost = [row for row in rows if "loss" in row["varied"]]
    varied = [name for name in _VARIED if any(name in row["varied"] for row in rows)]
    table = bare_table(
        [*(name.removesuffix("_ms") for name in varied), *(name for name, _ in costs(worst))], left=len(varied)
    )
    listed = [*sorted(lost or rows, key=severity, reverse=True)[:_ROWS_MAX], *(rows[len(lost) :] if lost else ())]
    for row in listed:
        table.add_row(*(_varied(row, name) for name in varied), *(text for _, text in costs(row)))
    console.print(table)
    if len(lost or rows) > _ROWS_MAX:
        console.print(f"and {len(lost or rows) - _ROWS_MAX:,} more in {out / 'sweep.json'}", markup=False)
    for line in answers(rows):
        console.print(line, markup=False)
    console.print(f"worst     {worst['variant']}: {out / files.PAGE_FILE}", markup=False)


def _varied(row: Mapping[str, Any], name: str) -> str:
    value = row["varied"].get(name)
    if value is None:
        return "nothing lost" if name == "loss" else ""
    return clock(value) if name == "at_ms" else str(value)


def costs(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What one rehearsal cost, as text."""
    troubles = row["troubles"]
    moving = troubles["moving"]["partitions"]
    end_ms = row["moves_end_ms"]
    return [
        ("move ends", "–" if not moving else "never" if end_ms is None else clock(end_ms)),
        ("offline", f"{troubles['offline']['partitions']:,}"),
        ("under min ISR", f"{troubles['under_min_isr']['partitions']:,}"),
        ("under-replicated", f"{troubles['under_replicated']['partitions']:,}"),
        ("refused", _megabytes(row["refused_bytes"])),
        ("lost", _megabytes(row["lost_bytes"])),
        ("at risk", _megabytes(row["at_risk_bytes"])),
        ("unclean", f"{row['unclean_elections']:,}"),
        (
            "fullest link",
            "–" if row["peak_link_broker"] is None else f"{row['peak_link']:.0%} ({row['peak_link_broker']})",
        ),
    ]


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB" if size else "0"


def answers(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each throttle and seed a sentence or two: the move as it is, and the loss that hurts most meanwhile."""
    lines = []
    for base in rows:
        if "loss" in base["varied"]:
            continue
        lost = [row for row in rows if "loss" in row["varied"] and base["varied"].items() <= row["varied"].items()]
        if not lost:
            continue
        worst = max(lost, key=severity)
        offline, under = (_more(worst, base, name) for name in ("offline", "under_min_isr"))
        prefix = f"{base['variant']}: " if base["varied"] else ""
        lines.append(
            prefix + " ".join(moves_and_links(base)) + " "
            f"A loss of {worst['varied']['loss']} at its worst moment, {clock(worst['varied']['at_ms'])}, takes "
            f"{partitions(offline)} offline and {under:,} under their min ISR."
        )
    return lines


def _more(row: Mapping[str, Any], base: Mapping[str, Any], trouble: str) -> int:
    """Partitions in trouble by the loss: those that are not without it."""
    counts: list[int] = [one["troubles"][trouble]["partitions"] for one in (row, base)]
    return max(0, counts[0] - counts[1])
