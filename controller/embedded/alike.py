"""A test cluster in the shape of a cluster file: the brokers, racks, settings and topics of a real one."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from controller.embedded.cluster import EmbeddedPlan
from controller.local.cluster_file import ClusterError
from controller.local.like import RECORD_BYTES, Likeness, make_topics, parse_scale, read_like


def likeness_of(path: Path, scale: Fraction | float | str, **shape: Any) -> Likeness:
    """What to make of a file. Raises: ClusterError, and ValueError for what the caller may not say beside it."""
    for name, value in shape.items():
        if value is not None:
            raise ValueError(f"{name} is not for like=: the file says it")
    return read_like(path, parse_scale(str(scale)), free_bytes=shutil.disk_usage(Path.cwd()).free)


def alike(plan: EmbeddedPlan, like: Likeness) -> EmbeddedPlan:
    """The plan with the brokers of the file. Settings of the plan go before those of the file."""
    given = dict(setting.split("=", 1) for setting in like.settings)
    return replace(
        plan,
        brokers=len(like.brokers),
        ids=tuple(like.brokers),
        racks=tuple(rack for rack in like.brokers.values() if rack is not None),
        log_dirs=like.log_dirs,
        settings={**given, **plan.settings},
    )


async def make_alike(bootstrap: str, like: Likeness) -> None:
    """Creates its topics and fills them. Raises: ClusterError for what is refused, ClusterUnreachable, LoadError."""
    refused = await make_topics(bootstrap, like, made=lambda n, of: None)
    if refused:
        raise ClusterError("; ".join(refused))
    if like.records:
        from controller.local.load import fill  # a client library, for who asks for data

        await asyncio.to_thread(fill.fill, bootstrap, like.records, record_bytes=RECORD_BYTES, tell=lambda n, of: None)
