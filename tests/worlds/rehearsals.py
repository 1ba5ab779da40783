"""Small scenarios for tests of rehearsals, and what comes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from controller.rehearse.outcome import Outcome
from controller.rehearse.run import rehearse
from controller.rehearse.scenario import Scenario
from controller.rehearse.scenario_file import load

GB = 1_000_000_000


def brokers(count: int, racks: str = "abc", **each: Any) -> list[dict[str, Any]]:
    return [
        {"id": n, "rack": racks[(n - 1) % len(racks)], "link_bytes_per_s": 125e6, **each} for n in range(1, count + 1)
    ]


def topic(*replicas: list[int], **each: Any) -> dict[str, Any]:
    """One topic: a partition for each list of replicas, with what `each` says of all of them."""
    configs = each.pop("configs", {})
    return {"partitions": [{"replicas": ids, **each} for ids in replicas], "configs": configs}


def write(folder: Path, *, cluster: dict[str, Any], **rest: Any) -> Path:
    """A scenario file in `folder`."""
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump({"cluster": cluster, **rest}, sort_keys=False), encoding="utf-8")
    return path


def scenario(folder: Path, *, cluster: dict[str, Any], **rest: Any) -> Scenario:
    return load(write(folder, cluster=cluster, **rest))


def play(folder: Path, *, cluster: dict[str, Any], **rest: Any) -> Outcome:
    """The outcome of a scenario."""
    return rehearse(scenario(folder, cluster=cluster, **rest))
