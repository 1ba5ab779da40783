"""`kwob up --like` on the way up: what may be asked, and topics and data made on the running cluster, with bars."""

from __future__ import annotations

import argparse
import asyncio
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from controller.admin.cluster.failures import ClusterUnreachable
from controller.local.cluster_file import CLUSTER_FILE, ClusterError, read_cluster
from controller.local.flags import headed, plural
from controller.local.like import RECORD_BYTES, Likeness, differs, make_topics, parse_scale, read_like
from controller.rules.configs import settings

#: The share of the data that is made, unless --scale says another.
_SCALE: Final = Fraction(1, 1000)


def add_like(parser: argparse.ArgumentParser) -> None:
    """The flags --like and --scale."""
    parser.add_argument(
        "--like", type=Path, metavar="FILE",
        help="a cluster file (kwob snapshot): its brokers, racks, topics, configs, and a share of its data",
    )  # fmt: skip
    parser.add_argument(
        "--scale", type=parse_scale, metavar="SHARE",
        help="how much of the data of --like, as 1/1000 or 0.01; 0: topics without data (default: 1/1000)",
    )  # fmt: skip


def require_alone(options: argparse.Namespace) -> None:
    """Raises: SettingError for flags that say what the file of --like says."""
    if options.like is None and options.scale is not None:
        raise settings.SettingError("--scale is of --like FILE, which is not given")
    for name in ("brokers", "racks", "log_dirs") if options.like is not None else ():
        if getattr(options, name) is not None:
            raise settings.SettingError(f"--{name.replace('_', '-')} is not for --like: the file says it")


def likeness_asked(options: argparse.Namespace) -> Likeness | None:
    """What the file of --like asks for. Raises: ClusterError, also where the folder holds another cluster."""
    if options.like is None:
        return None
    existing = next(folder for folder in (options.data, *options.data.resolve().parents) if folder.exists())
    scale = _SCALE if options.scale is None else options.scale
    shape = read_like(options.like, scale, free_bytes=shutil.disk_usage(existing).free)
    if (options.data / CLUSTER_FILE).exists():
        other = differs(shape, [broker.id for broker in read_cluster(options.data).brokers])
        if other is not None:
            raise ClusterError(f"{options.data} holds another cluster ({other}): choose another --data")
    return shape


async def make_alike(bootstrap: str, like: Likeness, console: Console) -> None:
    """Topics, then their data; a bar each on a terminal. What cannot be made is said, and the cluster runs."""
    with bars(console) as progress:
        task = progress.add_task("topics", total=len(like.topics))
        try:
            refused = await make_topics(
                bootstrap, like, made=lambda n, of: progress.update(task, completed=n, total=of)
            )
        except ClusterUnreachable as error:
            refused = [str(error)]
    for line in refused:
        console.print(headed("note", line))
    there = {name for name in like.topic_names if not any(line.startswith(f"topic {name}:") for line in refused)}
    records = {tp: records for tp, records in like.records.items() if tp.topic in there}
    from controller.local.load import client, fill  # a client library, for who asks for data

    with bars(console) as progress:
        task = progress.add_task("records", total=sum(records.values()))

        def tell(n: int, of: int) -> None:
            progress.update(task, completed=n, total=of)

        try:
            made = await asyncio.to_thread(fill.fill, bootstrap, records, record_bytes=RECORD_BYTES, tell=tell)
            console.print(f"{plural(len(there), 'topic')}, {made:,} records made ({like.bytes:,} bytes of replicas)")
        except client.LoadError as error:
            console.print(headed("note", f"not all data could be made: {error}; start again to go on"))


def bars(console: Console) -> Progress:
    """A bar with counts and time; silent where there is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
