"""Operations after which brokers must make sense of what they find: files that are lost, torn or of yesterday, logs
that went apart several times, one that begins in the middle of a batch, a dir that has failed when its broker starts.

They came after all others, and are drawn apart from them (see `late`): worlds that were stay what they were.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

from broker_sim.log import checkpoints
from broker_sim.log.leader_epochs import FILE_NAME as EPOCH_FILE
from broker_sim.log.log_dir import parse_folder_name
from controller.sim.shape import SIDE_TOPICS
from controller.sim.steps.combined import lose
from controller.sim.steps.log_troubles import PLAIN, fill, made
from controller.sim.steps.turn import NothingThere, Turn
from controller.wire.protocol import ApiKey
from controller.wire.records import BatchHeader, CorruptBatch, batches
from controller.wire.types import TopicPartition

#: Of a topic whose leader may be anybody who lives.
UNCLEAN: Final = {**PLAIN, "unclean.leader.election.enable": "true"}
#: The most seconds until somebody leads.
LED_S: Final = 10.0


def _running(turn: Turn) -> list[int]:
    return sorted(set(turn.cluster.brokers) - turn.cluster.paused)


# -- logs that go apart --------------------------------------------------------------------------------------------


async def diverge(turn: Turn) -> str:
    """Two replicas lead in turns, each alone, and take records that the other never sees: who follows in the end has
    several epochs to cut, one question after the other. KIP-101, KIP-279; broker.md §13.1."""
    cluster, running = turn.cluster, _running(turn)
    if len(running) < 2:
        raise NothingThere
    pair = turn.chance.sample(running, 2)
    topic = await made(turn, turn.chance.choice(SIDE_TOPICS), pair, UNCLEAN)
    went = [await fill(turn, topic, 0, 2)]
    await cluster.world.sleep(1.0)
    for nth in range(turn.chance.choice((2, 3, 4))):
        alone, other = pair[nth % 2], pair[(nth + 1) % 2]
        if other in cluster.running():
            lose(turn, other)
        cluster.start_one(alone)
        if await leads(turn, topic, alone):
            went.append(await fill(turn, topic, 0, turn.chance.choice((1, 2, 4))))
    for number in pair:
        cluster.start_one(number)
    return f"{topic} of {pair}: {went}"


async def leads(turn: Turn, topic: str, broker: int) -> bool:
    """Waits for it, and until it knows."""
    for _ in range(int(LED_S / 0.2)):
        await turn.cluster.world.sleep(0.2)
        state = turn.cluster.state(topic, 0)
        if state is None:
            return False
        if state["leader"] == broker:
            await turn.cluster.world.sleep(0.3)  # until it knows
            return True
    return False


# -- a log that begins within a batch ------------------------------------------------------------------------------


async def delete_within_a_batch(turn: Turn) -> str:
    """Records are deleted up to somewhere in a batch, and a new replica comes: it takes that batch as it is.
    `Partition.appendRecordsToFollowerOrFutureReplica`; broker.md §13."""
    cluster, running = turn.cluster, _running(turn)
    if len(running) < 2:
        raise NothingThere
    replicas = turn.chance.sample(running, min(2, len(running) - 1))
    topic = await made(turn, turn.chance.choice(SIDE_TOPICS), replicas, PLAIN)
    await fill(turn, topic, 0, turn.chance.choice((2, 4, 8)))
    await cluster.world.sleep(1.0)
    state = cluster.state(topic, 0) or {"leader": -1}
    if state["leader"] not in cluster.running():
        raise NothingThere
    deleted = []
    for offset in sorted(turn.chance.sample(range(1, 12), 2)):
        rows = [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}]
        body = {"topics": rows, "timeout": 1_000}
        deleted.append((offset, await cluster.ask_one(state["leader"], ApiKey.DELETE_RECORDS, 1, body)))
    if (topic, 0) not in cluster.partitions():
        raise NothingThere  # somebody has deleted it meanwhile
    target = [*cluster.assignment(topic, 0), *(n for n in _running(turn) if n not in replicas)][: len(replicas) + 1]
    row = {"name": topic, "partitions": [{"partition_index": 0, "replicas": target}]}
    went = await cluster.ask_once(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"timeout": 5_000, "topics": [row]})
    await cluster.world.sleep(2.0)
    return f"{topic} up to {deleted}, then to {target}: {went}"


# -- files ---------------------------------------------------------------------------------------------------------


async def ruin_files(turn: Turn) -> str:
    """A broker dies; before it starts again its disk has lost or changed what a start makes anew, or knows how to do
    without. Batches are lost of side topics alone. `LogLoader`; broker.md §4.2, §10."""
    cluster = turn.cluster
    number = turn.one_of(sorted(set(_running(turn)) & set(cluster.disks)))
    others = [other for other in _running(turn) if other != number]
    topic = await made(turn, turn.chance.choice(SIDE_TOPICS), [number, *others[:1]], PLAIN)
    await fill(turn, topic, 0, 10)  # several segments, which no checkpoint of recovery points knows yet
    await cluster.world.sleep(0.3)
    if number not in cluster.running():
        raise NothingThere
    lose(turn, number)
    folders = [
        folder
        for log_dir in turn.cluster.log_dirs(number)
        if log_dir.is_dir()
        for folder in sorted(log_dir.iterdir())
        if folder.is_dir() and parse_folder_name(folder.name) is not None
    ]
    done = [folder.name + " torn" for folder in folders if folder.name == f"{topic}-0" and _torn(turn, folder)]
    for folder in turn.chance.sample(folders, min(len(folders), turn.chance.choice((1, 3, 6)))):
        ruin = turn.chance.choice(RUINS)
        if ruin(turn, folder):
            done.append(f"{folder.name} {ruin.__name__.strip('_')}")
    if turn.chance.random() < 0.5:
        cluster.disks[number].forget_replaced()
        done.append("files of before")
    await cluster.world.sleep(turn.chance.choice((0.0, 1.0)))
    cluster.start_one(number)
    await cluster.world.sleep(2.0)
    return f"{turn.name(number)}: {', '.join(done)}"


def _indexes(turn: Turn, folder: Path) -> bool:
    """Some are gone, empty, or say nothing that is true."""
    found = sorted(path for path in folder.iterdir() if path.suffix in (".index", ".timeindex"))
    for path in turn.chance.sample(found, min(2, len(found))):
        match turn.chance.choice(("gone", "empty", "torn")):
            case "gone":
                path.unlink()
            case "empty":
                path.write_bytes(b"")
            case _:
                path.write_bytes(path.read_bytes()[:-3] or b"abc")
    return bool(found)


def _snapshots(turn: Turn, folder: Path) -> bool:
    """Of producers: one is torn, or gone."""
    found = sorted(folder.glob("*.snapshot"))
    for path in turn.chance.sample(found, min(1, len(found))):
        if turn.chance.random() < 0.5:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-1])
    return bool(found)


def _epochs(turn: Turn, folder: Path) -> bool:
    """The file of leader epochs is gone, or no such file."""
    path = folder / EPOCH_FILE
    if not path.exists():
        return False
    if turn.chance.random() < 0.5:
        path.unlink()
    else:
        path.write_text("0\n7\n1 0\n")
    return True


def _recovery_points(turn: Turn, folder: Path) -> bool:
    """Their checkpoint is gone, or cannot be read: all batches are looked at."""
    path = folder.parent / checkpoints.RECOVERY_POINT_FILE
    if not path.exists():
        return False
    if turn.chance.random() < 0.5:
        path.unlink()
    else:
        path.write_text("0\n")
    return True


def _swap(turn: Turn, folder: Path) -> bool:
    """A compaction that left a segment as it was had begun to put it in its place, and perhaps not removed that."""
    found = sorted(folder.glob("*.log"))[:-1]
    if not found:
        return False
    path = turn.chance.choice(found)
    path.with_name(f"{path.name}.swap").write_bytes(path.read_bytes())
    if turn.chance.random() < 0.5:
        for suffix in (".index", ".timeindex", ".log"):
            path.with_suffix(suffix).unlink(missing_ok=True)
    return True


def _cleaned(turn: Turn, folder: Path) -> bool:
    """A compaction had written a segment, not yet put it in place; perhaps the files of a former one wait for their
    removal."""
    found = sorted(folder.glob("*.log"))[:-1]
    if not found:
        return False
    path = turn.chance.choice(found)
    path.with_name(f"{path.name}.cleaned").write_bytes(path.read_bytes()[:-1])
    if turn.chance.random() < 0.5:
        path.with_name(f"{path.name}.deleted").write_bytes(path.read_bytes())
    return True


def _torn(turn: Turn, folder: Path) -> bool:
    """A batch above the recovery point is not what was written, or cut off: the log ends before it. Where a segment
    that is not the last ends right after a batch, a start sees nothing wrong, in Kafka neither
    (`LogLoader.recoverSegment`)."""
    tp = parse_folder_name(folder.name)
    if tp is None or tp.topic not in SIDE_TOPICS:
        return False
    point = recovery_point(folder.parent, tp)
    found = sorted(folder.glob("*.log"))
    above = [path for path, after in pairwise(found) if int(after.stem) > point] + found[-1:]
    path = turn.chance.choice(above) if above else None
    if path is None or not (content := path.read_bytes()):
        return False
    if turn.chance.random() < 0.5:
        at = turn.chance.randrange(len(content))
        is_between = path != found[-1] and any(start == at for start, _ in _whole(content))
        path.write_bytes(content[: at + is_between])
    else:
        flip(turn, path)
    turn.cluster.on_damaged((tp.topic, tp.partition))
    return True


def _whole(content: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of the batches up to where something has cut it off already."""
    with suppress(CorruptBatch):
        yield from batches(content)


def flip(turn: Turn, path: Path, *, above: int = 0) -> int | None:
    """In a file of batches the last byte of one, which its checksum is of, is another; where. None: it has none that
    begins at this offset or later."""
    content = path.read_bytes()
    ends = [start + header.size - 1 for start, header in _whole(content) if header.base_offset >= above]
    at = turn.chance.choice(ends) if ends else None
    if at is not None:
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
    return at


def recovery_point(log_dir: Path, tp: TopicPartition) -> int:
    """What its checkpoint says, 0 where it says nothing."""
    try:
        return checkpoints.read_offsets(log_dir / checkpoints.RECOVERY_POINT_FILE).get(tp, 0)
    except checkpoints.CheckpointError:
        return 0


_Ruin = Callable[[Turn, Path], bool]
RUINS: Final[tuple[_Ruin, ...]] = (*(_indexes, _snapshots, _epochs, _recovery_points, _swap, _swap, _cleaned, _torn),)


# -- dirs ----------------------------------------------------------------------------------------------------------


async def start_without_a_dir(turn: Turn) -> str:
    """A broker starts while one of its dirs fails: it serves what is in the others, and makes none of what may be in
    that one. broker.md §6.4, §11."""
    cluster, shape = turn.cluster, turn.cluster.shape
    candidates = sorted(set(_running(turn)) & set(cluster.disks)) if shape is not None and shape.log_dirs > 1 else []
    number = turn.one_of(candidates)
    chosen = turn.one_of([path for path in turn.cluster.log_dirs(number) if any(path.glob("*/*.log"))])
    lose(turn, number)
    cluster.disks[number].failing[chosen] = errno.EIO
    cluster.disks_failed.add(number)
    await cluster.world.sleep(turn.chance.choice((0.0, 1.0)))
    cluster.start_one(number)
    await cluster.world.sleep(3.0)
    return f"{turn.name(number)} without {chosen.name}"


RUINED: Final[dict[str, Callable[[Turn], Awaitable[str]]]] = {
    each.__name__: each for each in (diverge, delete_within_a_batch, ruin_files, start_without_a_dir)
}
