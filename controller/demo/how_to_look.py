"""The five commands that are worth typing after the demo."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import Final

FILE_NAME: Final = "how-to-look.txt"


def commands(out: Path, python: str = sys.executable) -> dict[str, str]:
    """What it shows -> the command, complete and quoted, for a shell in any folder."""
    kwob = quote(str(Path(python).with_name("kwob")))
    data, results = quote(str(out / "cluster")), out / "replay"
    return {
        "The report: ISR timelines, under-replicated windows, catch-up times": (
            f"{quote(python)} -m webbrowser {quote((results / 'report.html').as_uri())}"
        ),
        "The same cluster again, as the demo left it (Ctrl-C ends it; the next line is for another terminal)": (
            f"{kwob} up --data {data} --brokers 3 --controllers 2 --racks a,b,c"
        ),
        "Its topics, with Kafka's own flags": f"KWOB_DATA={data} {kwob} topics --describe",
        "The last changes of any ISR: what the leaders wrote, and what the replay derived": (
            f"{kwob} replay show {quote(str(results))} --last --limit 20"
        ),
        "What the controllers decided, event by event": (
            f"grep -h partition.leader_elected {quote(str(out / 'cluster' / 'logs'))}/controller-*.log | tail -20"
        ),
    }


def write(out: Path) -> Path:
    """Writes them to `how-to-look.txt`. Returns its path."""
    path = out / FILE_NAME
    path.write_text("".join(f"# {what}\n{command}\n\n" for what, command in commands(out).items()), encoding="utf-8")
    return path
