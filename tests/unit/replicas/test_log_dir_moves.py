"""Moves between the log dirs of a broker: copied, throttled, swapped, cancelled, resumed; what dirs report of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker_sim.log import checkpoints
from broker_sim.replicas.types import DeleteRecordsResult
from controller.wire.errors import ErrorCode
from controller.wire.records import build_values, iterate
from controller.wire.types import TopicPartition
from tests.worlds.replicas import Cluster

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
#: Slow enough to look at a move in the middle: pieces of one batch of 1 kB, one every now and then.
PIECES = {"replica_fetch_max_bytes": 1_000, "replica_fetch_response_max_bytes": 1_000, "log_segment_bytes": 5_000}


def run(
    cluster_of: type[Cluster],
    tmp_path: Path,
    scenario: Any,
    *,
    brokers: Any = (1,),
    dirs: Any = ("a", "b"),
    **settings: Any,
) -> Any:
    return cluster_of.run(tmp_path, scenario, brokers=brokers, dirs=dirs, **settings)


def there(tmp_path: Path, *patterns: str) -> list[str]:
    """The folders of logs at broker 1 that look like these."""
    return [path.name for pattern in patterns for path in tmp_path.glob(f"1-*/{pattern}")]


async def filled(cluster: Cluster, count: int = 20) -> None:
    cluster.appoint(TP, 1, (1,), (1,), is_new=True)
    for number in range(count):
        await cluster.produce(TP, 1, [b"%d" % number + b"x" * 900])


def values(cluster: Cluster, broker: int = 1) -> list[bytes]:
    data = b"".join(cluster.nodes[broker].manager.read_records(TP))
    return [r.value.partition(b"x")[0] for r in iterate(data)]


def numbers(end: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def place(cluster: Cluster, broker: int = 1) -> str:
    return cluster.nodes[broker].partition(TP).log.log_dir.name


def described(cluster: Cluster, broker: int = 1) -> dict[str, list[tuple[bool, int, int]]]:
    """dir -> (is future, lag, size) of the partition's logs."""
    return {
        d.path.rpartition("/")[2]: [(r.is_future, r.offset_lag, r.size_bytes) for r in d.replicas]
        for d in cluster.nodes[broker].manager.describe_log_dirs([TP])
    }


def move(cluster: Cluster, tmp_path: Path, name: str, broker: int = 1) -> ErrorCode:
    return cluster.nodes[broker].manager.moves.alter({TP: str(tmp_path / f"{broker}-{name}")})[TP]


def throttle(cluster: Cluster, rate: int | None, broker: int = 1) -> None:
    cluster.nodes[broker].manager.configs.set_throttle_rates(alter_log_dirs=rate)


async def moved(cluster: Cluster, name: str, broker: int = 1) -> None:
    await cluster.world.until(lambda: place(cluster, broker) == f"{broker}-{name}", within_s=600, what="it has moved")


def test_a_replica_moves_with_all_it_has_while_it_is_written_to(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await filled(cluster)
        cluster.nodes[1].partition(TP).log.raise_log_start(3)
        throttle(cluster, 2_000)
        assert move(cluster, tmp_path, "b") is ErrorCode.NONE
        await cluster.world.sleep(2)
        before = described(cluster)
        assert before["1-a"][0][:2] == (False, 0)
        is_future, lag, size = before["1-b"][0]
        assert is_future
        assert 0 < lag < 20
        assert 0 < size < before["1-a"][0][2]
        (folder,) = (tmp_path / "1-b").glob("t-0.*-future")
        assert len(folder.name) == len("t-0.") + 32 + len("-future")
        for number in range(20, 25):
            await cluster.produce(TP, 1, [b"%d" % number + b"x" * 900], acks=-1)
        await moved(cluster, "b")
        assert values(cluster) == numbers(25, 3)
        assert described(cluster)["1-a"] == []
        assert (tmp_path / "1-b" / "t-0").is_dir()
        assert len(list((tmp_path / "1-a").glob("t-0.*-delete"))) == 1
        await cluster.produce(TP, 1, [b"25"], acks=-1)
        await cluster.world.sleep(61)
        assert not list((tmp_path / "1-a").glob("t-0*")), "the old log goes after file.delete.delay.ms"
        await cluster.stop(1, clean=False)
        await cluster.start(1)
        cluster.appoint(TP, 1, (1,), (1,))
        assert (values(cluster), place(cluster)) == (numbers(26, 3), "1-b")

    run(cluster_of, tmp_path, scenario, **PIECES)


def test_what_was_cut_while_it_moved_is_not_in_the_new_place(cluster_of: type[Cluster], tmp_path: Path) -> None:
    """A follower's log is cut and grows again, between two looks of who copies it: the copy has both ends the same."""

    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 9, (9,), (9, 1), to=(1,), is_new=True)  # of a leader that is not there
        partition = cluster.nodes[1].partition(TP)
        assert partition.log is not None

        def append(values: range, letter: bytes) -> None:
            for number in values:
                batch = build_values([(None, b"%d" % number + letter * 900)], timestamp=1)
                partition.log.append_as_leader(batch, leader_epoch=0, now_ms=1)

        append(range(20), b"x")
        throttle(cluster, 2_000)
        assert move(cluster, tmp_path, "b") is ErrorCode.NONE
        await cluster.world.sleep(4)
        assert partition.future_log is not None and 4 < partition.future_log.leo < 20
        partition.truncate(3)
        append(range(20, 40), b"y")
        throttle(cluster, None)
        await moved(cluster, "b")
        found = [r.value for r in iterate(b"".join(cluster.nodes[1].manager.read_records(TP)))]
        assert [value.strip(b"xy") for value in found] == [*numbers(3), *numbers(40, 20)]

    run(cluster_of, tmp_path, scenario, **PIECES)


@pytest.mark.parametrize("of_one_topic", [True, False])
def test_settings_count_in_both_places_and_stay(
    cluster_of: type[Cluster], tmp_path: Path, *, of_one_topic: bool
) -> None:
    """Whenever they change: before it moves, while it does, and when it is there."""

    async def scenario(cluster: Cluster) -> None:
        await filled(cluster)
        cluster.appoint(TopicPartition("u", 0), 1, (1,), (1,), is_new=True)
        configs, moving = cluster.nodes[1].manager.configs, cluster.nodes[1].partition(TP)
        default = moving.log.config.retention_ms

        def counts(value: int | None) -> None:
            values = {} if value is None else {"retention.ms" if of_one_topic else "log.retention.ms": str(value)}
            if of_one_topic:
                configs.set_topic_config("t", values)
            else:
                configs.set_broker_config(values)
            logs = [log for log in (moving.log, moving.future_log) if log is not None]
            assert {log.config.retention_ms for log in logs} == {default if value is None else value}
            other = cluster.nodes[1].partition(TopicPartition("u", 0)).log
            assert other.config.retention_ms == (default if of_one_topic or value is None else value)

        counts(1)
        throttle(cluster, 2_000)
        assert move(cluster, tmp_path, "b") is ErrorCode.NONE
        await cluster.world.sleep(2)
        assert moving.future_log.config.retention_ms == 1
        for value in (2, None, 3):
            counts(value)
        throttle(cluster, None)
        await moved(cluster, "b")
        assert moving.log.config.retention_ms == 3
        counts(4)

    run(cluster_of, tmp_path, scenario, **PIECES)


@pytest.mark.parametrize("rate", [2_000, 5_000])
def test_the_rate_is_kept(cluster_of: type[Cluster], tmp_path: Path, rate: Any) -> None:
    async def scenario(cluster: Cluster) -> None:
        await filled(cluster, 60)
        throttle(cluster, rate)
        begin = cluster.world.loop.time()
        move(cluster, tmp_path, "b")
        await moved(cluster, "b")
        took = cluster.world.loop.time() - begin
        assert 0.6 < took * rate / 60_000 < 1.4

    run(cluster_of, tmp_path, scenario, **PIECES)


def test_a_follower_moves_too_and_stays_in_sync(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, (1, 2), (1, 2), is_new=True)
        throttle(cluster, 1_500, broker=2)
        for number in range(20):
            await cluster.produce(TP, 1, [b"%d" % number + b"x" * 900], acks=-1)
        assert move(cluster, tmp_path, "b", broker=2) is ErrorCode.NONE
        for number in range(20, 30):
            await cluster.produce(TP, 1, [b"%d" % number + b"x" * 900], acks=-1)
        assert place(cluster, 2) == "2-a"
        throttle(cluster, None, broker=2)
        await moved(cluster, "b", broker=2)
        await cluster.produce(TP, 1, [b"30"], acks=-1)
        assert values(cluster, 2) == numbers(31)
        assert cluster.isr(TP) == (1, 2)
        epochs = [cluster.nodes[b].partition(TP).log.epochs.entries for b in (1, 2)]
        assert epochs[0] == epochs[1]

    run(cluster_of, tmp_path, scenario, brokers=(1, 2), **PIECES)


def test_a_move_is_given_up_when_another_dir_is_asked_for(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await filled(cluster)
        throttle(cluster, 1_000)
        move(cluster, tmp_path, "b")
        await cluster.world.sleep(2)
        assert move(cluster, tmp_path, "c") is ErrorCode.NONE
        assert (described(cluster)["1-b"], len(described(cluster)["1-c"])) == ([], 1)
        assert list((tmp_path / "1-b").glob("*-delete"))
        assert move(cluster, tmp_path, "a") is ErrorCode.NONE
        assert described(cluster)["1-c"] == []
        throttle(cluster, None)
        await cluster.world.sleep(100)
        assert place(cluster) == "1-a"
        assert not there(tmp_path, "*-delete", "*-future")
        assert values(cluster) == numbers(20)

    run(cluster_of, tmp_path, scenario, dirs=("a", "b", "c"), **PIECES)


#: what, batches that each leader epoch brought; the test also removes records from the log's start
EPOCHS = [
    ("one", [8]),
    ("one in which nothing came", [0]),
    ("several", [8, 3, 5]),
    ("a last one in which nothing came yet", [8, 3, 0]),
    ("some between in which nothing came", [8, 0, 0, 3]),
    ("nothing at all since", [8, 0, 0]),
]


@pytest.mark.parametrize("removed", [0, 9])
@pytest.mark.parametrize(("_", "counts"), EPOCHS, ids=[row[0] for row in EPOCHS])
def test_a_log_that_moved_has_the_leader_epochs_that_it_had(
    cluster_of: type[Cluster], tmp_path: Path, _: str, counts: list[int], removed: int
) -> None:
    async def scenario(cluster: Cluster) -> None:
        for count in counts:
            cluster.appoint(TP, 1, (1,), (1,), is_new=True)
            for _number in range(count):
                await cluster.produce(TP, 1, [b"x" * 900])
        log = cluster.nodes[1].partition(TP).log
        log.raise_log_start(min(removed, log.leo))
        expected, asked = list(log.epochs.entries), range(-1, len(counts) + 2)
        ends = [log.end_offset_for_epoch(epoch) for epoch in asked]
        assert move(cluster, tmp_path, "b") is ErrorCode.NONE
        await moved(cluster, "b")
        for _restart in range(2 if sum(counts) else 1):  # an empty log has no file
            log = cluster.nodes[1].manager.table.dirs.get(TP)
            assert (log.log_dir.name, log.epochs.entries) == ("1-b", expected)
            assert [log.end_offset_for_epoch(epoch) for epoch in asked] == ends
            await cluster.stop(1, clean=False)
            await cluster.start(1)

    run(cluster_of, tmp_path, scenario, **PIECES)


@pytest.mark.parametrize("clean", [True, False])
def test_a_move_goes_on_after_a_restart_from_where_it_was(
    cluster_of: type[Cluster], tmp_path: Path, clean: Any
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await filled(cluster)
        throttle(cluster, 1_000)
        move(cluster, tmp_path, "b")
        await cluster.world.sleep(8)
        copied = described(cluster)["1-b"][0][2]
        assert copied > 2_000
        moving = cluster.nodes[1].partition(TP)
        await cluster.stop(1, clean=clean)
        said = checkpoints.read_offsets(tmp_path / "1-b" / checkpoints.HIGH_WATERMARK_FILE)
        assert (said == {TP: moving.future_hw}) is clean
        await cluster.start(1)
        ((is_future, lag, size),) = described(cluster)["1-b"]
        assert (is_future, lag) == (True, -1), "not served yet: no lag"
        assert size >= copied
        throttle(cluster, 1_000)
        cluster.appoint(TP, 1, (1,), (1,))
        assert described(cluster)["1-b"][0][2] >= copied
        throttle(cluster, None)
        await moved(cluster, "b")
        assert values(cluster) == numbers(20)

    run(cluster_of, tmp_path, scenario, **PIECES)


def test_what_the_leader_cuts_is_cut_from_the_future_log_too(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, (1, 2), (1, 2), is_new=True)
        for number in range(10):
            await cluster.produce(TP, 1, [b"%d" % number + b"x" * 900], acks=-1)
        cluster.nodes[2].paused.add(TP)
        await cluster.world.sleep(1)
        for _ in range(2):
            await cluster.produce(TP, 1, [b"lost" + b"x" * 900])
        appended = []

        def stop_at_the_tail(operation: str, path: Any) -> None:
            appended.extend([path] if "-future" in str(path) and operation == "append" else [])
            if len(appended) == 11:
                throttle(cluster, 1)

        cluster.nodes[1].manager.table.dirs.files.before = stop_at_the_tail
        move(cluster, tmp_path, "b")
        await cluster.world.until(lambda: len(appended) == 11, within_s=60, what="the tail is copied")
        assert cluster.nodes[1].partition(TP).future_log.leo == 11
        cluster.nodes[2].paused.clear()
        cluster.appoint(TP, 2, (2,), (1, 2))
        for number in range(10, 15):
            await cluster.produce(TP, 2, [b"%d" % number + b"x" * 900])
        await cluster.world.until(lambda: 1 in cluster.isr(TP), within_s=60, what="1 follows 2")
        throttle(cluster, None)
        await moved(cluster, "b")
        assert values(cluster, 1) == values(cluster, 2)
        assert b"lost" not in values(cluster, 1)

    run(cluster_of, tmp_path, scenario, brokers=(1, 2), **PIECES)


def test_a_deleted_replica_takes_its_future_log_along(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await filled(cluster)
        throttle(cluster, 1_000)
        move(cluster, tmp_path, "b")
        await cluster.world.sleep(2)
        assert cluster.stop_replica(TP, 1, delete=True) is ErrorCode.NONE
        assert described(cluster) == {"1-a": [], "1-b": []}
        assert [len(list((tmp_path / name).glob("t-0.*-delete"))) for name in ("1-a", "1-b")] == [1, 1]
        await cluster.world.sleep(61)
        assert not there(tmp_path, "t-0*")

    run(cluster_of, tmp_path, scenario, **PIECES)


def test_the_move_of_a_replica_that_is_stopped_waits_and_goes_on_when_it_is_wanted_again(
    cluster_of: type[Cluster], tmp_path: Path
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await filled(cluster)
        throttle(cluster, 1_000)
        move(cluster, tmp_path, "b")
        await cluster.world.sleep(4)
        assert cluster.stop_replica(TP, 1, delete=False) is ErrorCode.NONE
        throttle(cluster, None)
        ((is_future, _, copied),) = described(cluster)["1-b"]
        await cluster.world.sleep(60)
        assert is_future and [size for *_, size in described(cluster)["1-b"]] == [copied]
        cluster.appoint(TP, 1, (1,), (1,))
        assert described(cluster)["1-b"][0][2] >= copied > 2_000, "it does not begin anew"
        await moved(cluster, "b")
        assert values(cluster) == numbers(20)

    run(cluster_of, tmp_path, scenario, **PIECES)


@pytest.mark.parametrize("is_offline", [True, False])
def test_a_deletion_that_fails_leaves_no_move_to_a_later_topic(
    cluster_of: type[Cluster], tmp_path: Path, is_offline: bool
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await filled(cluster)
        throttle(cluster, 1_000)
        move(cluster, tmp_path, "b")
        await cluster.world.sleep(2)
        manager = cluster.nodes[1].manager

        def broken(operation: str, path: Any) -> None:
            if "/1-a/" in str(path):
                raise OSError(5, "Input/output error")

        if is_offline:
            manager.fail_log_dir(str(tmp_path / "1-a"))
        else:
            manager.table.dirs.files.before = broken
        assert cluster.stop_replica(TP, 1, delete=True) is ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster.nodes[1].failed_dirs == [str(tmp_path / "1-a")]
        assert described(cluster)["1-b"] == []
        assert len(list((tmp_path / "1-b").glob("t-0.*-delete"))) == 1

    run(cluster_of, tmp_path, scenario, **PIECES)


@pytest.mark.parametrize(("failing", "survives"), [("b", True), ("a", False)])
def test_a_dir_that_fails_ends_a_move(cluster_of: type[Cluster], tmp_path: Path, failing: Any, survives: Any) -> None:
    async def scenario(cluster: Cluster) -> None:
        await filled(cluster)
        throttle(cluster, 1_000)
        move(cluster, tmp_path, "b")
        await cluster.world.sleep(2)
        manager = cluster.nodes[1].manager
        manager.fail_log_dir(str(tmp_path / f"1-{failing}"))
        throttle(cluster, None)
        await cluster.world.sleep(30)
        codes = {d.path.rpartition("/")[2]: d.error for d in manager.describe_log_dirs()}
        assert codes[f"1-{failing}"] is ErrorCode.KAFKA_STORAGE_ERROR
        if survives:
            assert (values(cluster), place(cluster)) == (numbers(20), "1-a")
            deleted = await manager.offsets.delete_records({TP: 5}, timeout_ms=1_000)
            assert deleted == {TP: DeleteRecordsResult(low_watermark=5)}, "the future log has none of them any more"
            assert move(cluster, tmp_path, "b") is ErrorCode.KAFKA_STORAGE_ERROR
            assert move(cluster, tmp_path, "c") is ErrorCode.KAFKA_STORAGE_ERROR, "not while any dir is offline"
        else:
            assert (await cluster.produce(TP, 1)).error is ErrorCode.KAFKA_STORAGE_ERROR
            assert described(cluster)["1-b"][0][:2] == (True, -1)
            assert move(cluster, tmp_path, "b") is ErrorCode.KAFKA_STORAGE_ERROR

    run(cluster_of, tmp_path, scenario, dirs=("a", "b", "c"), **PIECES)


@pytest.mark.parametrize("failing", ["append", "replace", "rename"])
def test_a_disk_that_fails_while_it_is_copied_to_ends_the_move_and_nothing_else(
    cluster_of: type[Cluster], tmp_path: Path, failing: str
) -> None:
    """Be it that the log is there, and only its folder cannot be given its name."""

    async def scenario(cluster: Cluster) -> None:
        await filled(cluster)
        files = cluster.nodes[1].manager.table.dirs.files

        def full(operation: str, path: Any) -> None:
            if "-future" in str(path) and operation == failing:
                raise OSError(28, "No space left on device")

        files.before = full
        assert move(cluster, tmp_path, "b") is ErrorCode.NONE
        await cluster.world.sleep(1)
        assert cluster.nodes[1].failed_dirs == [str(tmp_path / "1-b")]
        assert (values(cluster), place(cluster)) == (numbers(20), "1-a")
        assert (await cluster.produce(TP, 1, acks=-1)).error is ErrorCode.NONE

    run(cluster_of, tmp_path, scenario, **PIECES)


def test_what_cannot_be_moved_is_refused_in_kafkas_order(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await filled(cluster, 1)
        manager = cluster.nodes[1].manager
        cluster.metadata.known.add(OTHER)
        there, nowhere = str(tmp_path / "1-b"), "/nowhere"
        too_long, stranger = TopicPartition("l" * 214, 0), TopicPartition("stranger", 0)
        answers = manager.moves.alter({too_long: nowhere, OTHER: there, stranger: there, TP: nowhere})
        assert answers == {
            too_long: ErrorCode.INVALID_TOPIC_EXCEPTION,
            OTHER: ErrorCode.REPLICA_NOT_AVAILABLE,
            stranger: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            TP: ErrorCode.LOG_DIR_NOT_FOUND,
        }
        assert move(cluster, tmp_path, "a") is ErrorCode.NONE
        assert described(cluster)["1-b"] == []
        cluster.appoint(OTHER, 1, (1,), (1,), is_new=True)
        assert cluster.nodes[1].partition(OTHER).log.log_dir.name == "1-b", "the wish is remembered"

    run(cluster_of, tmp_path, scenario, dirs=("a", "b", "c"))


def test_moves_of_one_mover_go_one_after_another(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        partitions = [TopicPartition("t", number) for number in range(3)]
        for tp in partitions:
            cluster.appoint(tp, 1, (1,), (1,), is_new=True)
            for _ in range(10):
                await cluster.produce(tp, 1, [b"x" * 900])
        throttle(cluster, 3_000)
        manager, table = cluster.nodes[1].manager, cluster.nodes[1].manager.table
        target = {tp: "1-b" if table.partitions[tp].log.log_dir.name == "1-a" else "1-a" for tp in partitions}
        manager.moves.alter({tp: str(tmp_path / target[tp]) for tp in reversed(partitions)})
        done: list[TopicPartition] = []

        def is_done() -> bool:
            for tp in partitions:
                partition = table.partitions[tp]
                if tp not in done and partition.log.log_dir.name == target[tp]:
                    assert all(
                        table.partitions[rest].future_log.leo == 0
                        for rest in partitions
                        if rest.partition > tp.partition + 1
                    )
                    done.append(tp)
            return len(done) == 3

        await cluster.world.until(is_done, within_s=100, what="all have moved")
        assert done == partitions

    run(cluster_of, tmp_path, scenario, num_replica_alter_log_dirs_threads=1, **PIECES)


@pytest.mark.parametrize("how", ["it is copied", "it is given up", "its dir fails"])
def test_records_are_deleted_when_the_future_log_has_none_of_them(
    cluster_of: type[Cluster], tmp_path: Path, how: str
) -> None:
    """Source: Kafka 3.9 `Partition.lowWatermarkIfLeader`."""

    async def scenario(cluster: Cluster) -> None:
        await filled(cluster)
        throttle(cluster, 1_000)
        move(cluster, tmp_path, "b")
        await cluster.world.sleep(3)
        node = cluster.nodes[1]
        future = node.partition(TP).future_log
        assert 2 < future.leo < 20
        deleting = asyncio.ensure_future(node.manager.offsets.delete_records({TP: 2}, timeout_ms=60_000))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not deleting.done() and future.log_start_offset == 0
        if how == "it is given up":
            move(cluster, tmp_path, "a")
        elif how == "its dir fails":
            node.manager.fail_log_dir(str(tmp_path / "1-b"))
        async with asyncio.timeout(20):
            answer = (await deleting)[TP]
        assert (answer.error, answer.low_watermark) == (ErrorCode.NONE, 2)

    run(cluster_of, tmp_path, scenario, **PIECES)
