"""What a test asks for, as a plan: numbers, racks, settings, or the shape of a cluster file. Refuses what cannot be."""

from __future__ import annotations

import asyncio
import shutil
from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Final

from controller.embedded.cluster import EmbeddedPlan
from controller.local.cluster_file import ClusterError
from controller.local.like import RECORD_BYTES, Likeness, make_topics, parse_scale, read_like

#: Settings that a test cluster gives each program itself -> what says them.
_OWN_SETTINGS: Final = {
    "log.dirs": "log_dirs=N gives each broker N directories",
    "log.dir": "log_dirs=N gives each broker N directories",
    "broker.id": "brokers=N gives ids 1 to N",
    "node.id": "brokers=N gives ids 1 to N",
    "broker.rack": "racks=[...] gives them to the brokers in turn",
    "listeners": "ports are free ones",
    "advertised.listeners": "ports are free ones",
    "zookeeper.connect": "the cluster has a ZooKeeper of its own",
}


def planned(
    folder: Path,
    *,
    brokers: int | None,
    controllers: int,
    racks: Sequence[str] | None,
    settings: Mapping[str, str] | None,
    log_dirs: int | None,
    seed: int | None,
    metrics: bool,
    like: Path | str | None,
    scale: Fraction | float | str,
) -> tuple[EmbeddedPlan, Likeness | None]:
    """What to run in a folder, and what to make of the file of `like`. Settings that are given go before the file's.

    Raises: ValueError for what cannot be, or what the call and the file both say; ClusterError for a file that cannot
    be used.
    """
    _require_numbers({"brokers": brokers, "controllers": controllers, "log_dirs": log_dirs})
    if not (racks is None or (isinstance(racks, (list, tuple)) and all(isinstance(rack, str) for rack in racks))):
        raise ValueError(f'racks is {racks!r}; a list of names is expected, such as ["a", "b"]')
    plan = EmbeddedPlan(
        folder=folder, brokers=3 if brokers is None else brokers, controllers=controllers, racks=racks or (),
        settings=_settings(settings or {}), log_dirs=log_dirs or 1, seed=seed, metrics=metrics,
    )  # fmt: skip
    if like is None:
        if scale:
            raise ValueError("scale is for like=: how much of that file's data is made")
        return plan, None
    for name, value in (("brokers", brokers), ("racks", racks), ("log_dirs", log_dirs)):
        if value is not None:
            raise ValueError(f"{name} is not for like=: the file says it")
    found = read_like(Path(like), _scale(scale), free_bytes=shutil.disk_usage(Path.cwd()).free)
    return _alike(plan, found), found


def _require_numbers(numbers: Mapping[str, int | None]) -> None:
    for name, number in numbers.items():
        if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
            raise ValueError(f"{name} is {number!r}; a whole number from 1 on is expected")


def _settings(given: Mapping[str, str]) -> dict[str, str]:
    """Numbers and truth values are taken as Kafka writes them."""
    if not isinstance(given, Mapping):
        raise ValueError(
            f'settings is {given!r}; names and values are expected, such as {{"min.insync.replicas": "2"}}'
        )
    for name in given:
        if name in _OWN_SETTINGS:
            raise ValueError(f"{name} is not for settings here: {_OWN_SETTINGS[name]}")
    return as_text(given)


def as_text(configs: Mapping[str, object]) -> dict[str, str]:
    """Values as Kafka writes them: `true` for True, `2` for 2."""
    return {str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in configs.items()}


def _scale(scale: Fraction | float | str) -> Fraction:
    try:
        return parse_scale(str(scale))
    except ArgumentTypeError:
        raise ValueError(f'scale is {scale!r}; a share from 0 to 1 is expected, such as "1/1000"') from None


def _alike(plan: EmbeddedPlan, like: Likeness) -> EmbeddedPlan:
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
