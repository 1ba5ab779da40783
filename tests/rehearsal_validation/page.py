"""`docs/rehearsal-validation.md`: every figure that was measured, beside the rehearsed one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.rehearsal_validation.agreement import LEAST_MS, LINK, PART, Recording, Row, compare
from tests.rehearsal_validation.runs import KINDS, RUNS

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "rehearsal-validation.md"

_HEAD: Final = f"""\
# Are rehearsals true?

Written by `python -m tests.rehearsal_validation report` from `tests/rehearsal_validation/recorded`; each file there
is one run on a live cluster of four brokers on one machine, recorded by `python -m tests.rehearsal_validation
record --kind …`. A run takes the cluster's shape by `kwob snapshot`, does what it is about with kwob's tools, and
looks at every partition about 20 times a second (ZooKeeper's znodes, or Metadata under KRaft). The rehearsal gets
the snapshot and nothing of what came after, but for how long the machine takes to start and to end a broker's
process, and its links ({LINK} per second).

A prediction **holds** when it is off by no more than {PART:.0%} or {LEAST_MS / 1000:g} s, the larger of the two.
Times of a move count from the moment the first partition began to move; "off" is rehearsed minus real, and of many
partitions the worst.
"""

_WHY: Final = """\
## What the figures asked for

* **A throttle is not what copies get.** A quota's rate is its windows' bytes over the time since the oldest began,
  which sees n + 1 bursts in the time of n. A follower that has nothing else to ask its leader for sleeps a second
  when its throttle is used up, and so gets 10/11 of it; one that waits at the leader 20/21. (A first model without
  this was 14 % off.) Where clients write to what is copied, each append looks again at the fetch that waits, and
  the copy gets nearly all (without this, the run with 1 MB/s written was 1.3 to 1.9 s off).
* **Large batches cost more than their bytes.** A follower asks for `replica.fetch.max.bytes` (1 MiB) of a
  partition; a batch that the answer cuts is thrown away and fetched again. With batches of 480 kB that is 8 % of
  the throttle: `batch_bytes` in a scenario.
* **In-sync followers use up the leader's throttle** and are not held back by it; what clients write while a
  partition moves leaves its copy so much less, for each follower in sync.
* How these are modelled: `broker_sim/fluid/fetching.py` and `broker_sim/fluid/plane.py`.
"""


def page(listed: Sequence[Recording]) -> str:
    """The whole page."""
    rows = {(r.kind, r.run.name): list(compare(r)) for r in listed}
    every = [row for found in rows.values() for row in found]
    off = [row for row in every if not row.holds]
    lines = [_HEAD, f"**{len(every) - len(off)} of {len(every)} figures hold**, of {len(listed)} runs.", ""]
    for kind, words in KINDS.items():
        mine = [r for r in listed if r.kind == kind]
        if mine:
            lines += [f"## {words}", "", *_table(mine, rows), ""]
    lines += [_WHY, *_disagreements(off)]
    return "\n".join(lines).rstrip() + "\n"


def _table(listed: Sequence[Recording], rows: dict[tuple[str, str], list[Row]]) -> Iterator[str]:
    yield "| run | figure | real | rehearsed | off | holds |"
    yield "| --- | --- | ---: | ---: | ---: | --- |"
    for recording in listed:
        found = rows[recording.kind, recording.run.name]
        for place, (figure, group) in enumerate(_grouped(found).items()):
            worst = max(group, key=lambda row: abs(row.off_ms))
            what = recording.run.what if place == 0 else ""
            holds = sum(row.holds for row in group)
            verdict = "yes" if holds == len(group) else f"{holds} of {len(group)}"
            name = figure if len(group) == 1 else f"{figure} (worst of {len(group)})"
            figures = f"{_s(worst.real_ms)} | {_s(worst.rehearsed_ms)} | {worst.off_ms / 1000:+.1f} s"
            yield f"| {what} | {name} | {figures} | {verdict} |"


def _grouped(rows: Sequence[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.figure if row.figure == "end" else row.figure.partition(" ")[2], []).append(row)
    return groups


def _disagreements(off: Sequence[Row]) -> Iterator[str]:
    if not off:
        return
    yield "## Where it disagrees"
    yield ""
    reasons = {run.name: run.disagrees for run in RUNS}
    for (kind, run), rows in _by_run(off).items():
        yield f"* {KINDS[kind]}, {run}: {', '.join(row.figure for row in rows)}. {reasons[run]}"


def _by_run(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.kind, row.run), []).append(row)
    return found


def _s(ms: float) -> str:
    return f"{ms / 1000:.1f} s"
