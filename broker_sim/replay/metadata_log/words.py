"""What is printed of a metadata log that was read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def words(summary: Mapping[str, Any]) -> list[str]:
    """What is printed of `FromMetadata.summary`, a line each."""
    spans = ", ".join(f"{start} to {end - 1}" for start, end in summary["offsets"]) or "none"
    whose = f" of cluster {summary['cluster']}" if summary["cluster"] else ""
    lines = [
        f"metadata log{whose}: {summary['files']} files, offsets {spans}, {summary['changes']} changes of partitions, "
        f"{summary['controllers']} elections of a controller"
    ]
    if not summary["is_complete"]:
        missing = ", ".join(f"{start} to {end - 1}" for start, end in summary["gaps"])
        lines.append(
            "not all of its history is there: what was before the first state is unknown"
            + (f"; offsets {missing} are in no file" if missing else "")
        )
    if (check := summary["check"]) is not None:
        equal = check["partitions"] - check["different"]
        where = f"state at the snapshot of offset {check['snapshot']}"
        lines.append(f"{where}: {equal} of {check['partitions']} partitions equal")
        lines += check["named"]
    counts = {**summary["transactions"], "committed": 0, "superseded records": summary["superseded"]}
    counts |= {"changes without a known state": summary["changes_without_state"], **summary["not_decoded"]}
    names = {"aborted": "aborted transactions", "unfinished": "unfinished transactions"}
    left = ", ".join(f"{n} {names.get(what, what).replace('_', ' ')}" for what, n in counts.items() if n)
    return [*lines, *([f"not used: {left}"] if left else []), *summary["told"]]


def joined_words(summary: Mapping[str, Any]) -> list[str]:
    """What is printed of the log files that were joined with a metadata log (`ingest.join`), a line each."""
    wrong = {why: n for why, n in summary["contradictions"].items() if n}
    differences = ", ".join(f"{n} {why.replace('_', ' ')}" for why, n in wrong.items()) or "none"
    removed = f"{summary['caught_up_known']} of {summary['removed']} removals by leaders have their lastCaughtUpTimeMs"
    lines = [
        f"log files: {summary['agree']} rows tell what the metadata log has, {summary['refused']} a write that was "
        f"refused, {summary['outside']} what it does not reach; {removed}; contradictions: {differences}"
        + (" (table notices)" if wrong else "")
    ]
    if summary["is_other_cluster"]:
        lines.append("most of what the log files tell is not in the metadata log: are both of the same cluster?")
    return lines
