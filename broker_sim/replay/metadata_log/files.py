"""Which files of a metadata log there are, and whose: names and `meta.properties`, looked at on the driver."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker_sim.replay.below import below, is_file
from broker_sim.replay.errors import ReplayRefused
from controller.wire.whole import whole

FOLDER: Final = "__cluster_metadata-0"
_SEGMENT: Final = re.compile(r"^(\d{20})\.log$")
_SNAPSHOT: Final = re.compile(r"^(\d{20})-(\d{10})\.checkpoint$")
_OTHER_LOG: Final = re.compile(r"^[\w.-]+-\d+$")
_PROPERTIES: Final = "meta.properties"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFile:
    """A segment or a snapshot. `offset`: of its first record; of a snapshot: of the first record that is not in it."""

    path: Path
    size: int
    offset: int
    #: of a snapshot; None: a segment
    epoch: int | None = None
    #: what `meta.properties` beside the folder says
    cluster: str | None = None
    node: int | None = None

    @property
    def is_snapshot(self) -> bool:
        """Whether it holds a state, not history."""
        return self.epoch is not None

    @property
    def folder(self) -> str:
        """Where it lies: the files of a folder are of one log."""
        return str(self.path.parent)


def metadata_files(paths: Sequence[Path]) -> tuple[list[MetadataFile], list[Path]]:
    """The segments and snapshots at `paths` and in folders below of the name that Kafka gives, sorted; and those of
    `paths` where there is none.

    Raises: ReplayRefused, when a path is missing or unreadable, or there is no such file at all.
    """
    found: dict[Path, MetadataFile] = {}
    without: list[Path] = []
    for path in paths:
        try:
            if not path.exists():
                raise ReplayRefused(f"no such file or folder: {path}")
            here = [file for file in map(_looked_at, _candidates(path)) if file is not None]
        except OSError as error:
            raise ReplayRefused(f"cannot read {error.filename}: {error.strerror}") from error
        found.update((file.path, file) for file in here)
        if not here:
            without.append(path)
    if not found:
        where = ", ".join(map(str, paths))
        raise ReplayRefused(
            f"no metadata log in {where}: expected a folder {FOLDER} with files such as "
            "00000000000000000000.log or 00000000000000000122-0000000001.checkpoint"
        )
    return [found[path] for path in sorted(found)], without


def _candidates(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path.absolute()
        return
    own = path.absolute()
    is_topic = own.resolve().name != FOLDER and _OTHER_LOG.match(own.name)
    for file in sorted(below(own)):
        here = file.parent.name == FOLDER or (file.parent == own and not is_topic)
        if here and is_file(file):
            yield file


def _looked_at(path: Path) -> MetadataFile | None:
    segment, snapshot = _SEGMENT.match(path.name), _SNAPSHOT.match(path.name)
    if segment is None and snapshot is None:
        return None
    with path.open("rb"):
        size = path.stat().st_size
    cluster, node = _properties(path.parent.parent / _PROPERTIES)
    name = segment or snapshot
    assert name is not None
    epoch = int(snapshot[2]) if snapshot is not None else None
    return MetadataFile(path=path, size=size, offset=int(name[1]), epoch=epoch, cluster=cluster, node=node)


def _properties(file: Path) -> tuple[str | None, int | None]:
    """cluster.id and node.id (broker.id before KRaft), as far as they are told."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None, None
    values = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    node = values.get("node.id", values.get("broker.id", "")).strip()
    return values.get("cluster.id", "").strip() or None, whole(node)
