"""What the page is told of a cluster: the same as the cluster's own tools say, and notes for what it cannot answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from controller.admin.cluster.client import AdminClient, Timeouts
from controller.admin.cluster.failures import ToolFailure
from controller.admin.cluster.queries import PartitionInfo, TopicInfo
from controller.embedded.handles import KafkaCluster
from controller.local.cluster_file import ClusterRow, write_cluster
from controller.ui import cluster_looks, local_looks
from controller.ui.board import Board
from controller.ui.cluster_looks import ClusterLooks
from controller.ui.local_looks import EVENTS_KEPT, LocalLooks
from controller.wire.types import BrokerId
from controller.world.real.net import TcpNetwork

QUICK = Timeouts(request_s=2.0, call_s=3.0, bootstrap_s=2.0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=3, racks=["a", "b", "c"]) as running:
        yield running


def look(cluster: KafkaCluster, *names: str, until: Callable[[Board], bool] = lambda board: True) -> Board:
    """The board after these looks, repeated until it holds."""

    async def work() -> Board:
        board = Board()
        async with AdminClient(TcpNetwork(), cluster.bootstrap_servers, timeouts=QUICK) as admin:
            looks = ClusterLooks(admin, board)
            async with asyncio.timeout(20):
                while True:
                    for name in names:
                        await getattr(looks, name)()
                    if until(board):
                        return board
                    await asyncio.sleep(0.05)

    return asyncio.run(work())


def test_brokers_topics_and_disks(cluster: KafkaCluster) -> None:
    cluster.create_topic("orders", replicas={0: [1, 2], 1: [2, 3]})
    board = look(cluster, "topics", "office", "disks")
    assert {id_: row["rack"] for id_, row in board.get("brokers").items()} == {"1": "a", "2": "b", "3": "c"}
    rows = board.get("topic:orders")
    assert [row[1] for row in rows] == [[1, 2], [2, 3]]
    assert [row[0] for row in rows] == [cluster.leader("orders", n) for n in (0, 1)]
    assert [sorted(row[2]) for row in rows] == [sorted(cluster.isr("orders", n)) for n in (0, 1)]
    assert [sum(d["replicas"] for d in board.get(f"disks:{n}")) for n in (1, 2, 3)] == [1, 2, 1]
    assert board.get("controller") in (1, 2, 3)


def test_a_partition_keeps_its_number_where_brokers_have_not_heard_of_one_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard_of = [
        PartitionInfo(partition=n, leader=BrokerId(1), replicas=(BrokerId(1),), isr=(BrokerId(1),)) for n in (0, 2)
    ]

    async def topics(_: object) -> list[TopicInfo]:
        return [TopicInfo(name="t", topic_id=None, partitions=tuple(heard_of))]

    async def brokers() -> dict[BrokerId, Any]:
        return {}

    monkeypatch.setattr(cluster_looks, "all_topics", topics)
    admin: Any = SimpleNamespace(brokers=brokers)
    board = Board()
    asyncio.run(ClusterLooks(admin, board).topics())
    assert board.get("topic:t") == [[1, [1], [1], -1], [1, [1], [1], -1, 2]]


def test_a_topic_that_is_deleted_is_gone(cluster: KafkaCluster) -> None:
    async def work() -> None:
        board = Board()
        async with AdminClient(TcpNetwork(), cluster.bootstrap_servers, timeouts=QUICK) as admin:
            from controller.admin.cluster.queries import delete_topics

            looks = ClusterLooks(admin, board)
            await looks.topics()
            assert board.get("topic:gone") is not None
            await delete_topics(admin, ["gone"])
            async with asyncio.timeout(20):
                while board.get("topic:gone") is not None:
                    await looks.topics()
                    await asyncio.sleep(0.05)

    cluster.create_topic("gone")
    asyncio.run(work())


def test_groups_with_their_lag(cluster: KafkaCluster) -> None:
    cluster.create_topic("lag", partitions=2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(10):
        producer.produce("lag", b"x", partition=number % 2)
    assert producer.flush(10) == 0
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "readers",
                         "auto.offset.reset": "earliest", "enable.auto.commit": False})  # fmt: skip
    consumer.subscribe(["lag"])
    messages: list[Any] = []
    while len(messages) < 10:
        messages += consumer.consume(10 - len(messages), timeout=5)
    first = next(m for m in messages if m.partition() == 0 and m.offset() == 1)
    consumer.commit(message=first, asynchronous=False)
    row = look(cluster, "topics", "groups").get("groups")["rows"]["readers"]
    assert (row["state"], row["members"], row["lag"], row["partitions"]) == ("Stable", 1, 3, {"lag-0": 3})
    consumer.close()


def test_a_move_with_what_it_waits_for(cluster: KafkaCluster) -> None:
    cluster.create_topic("moved", replicas={0: [1]})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "1"})
    producer.produce("moved", b"x" * 100_000)
    assert producer.flush(10) == 0
    paused = cluster.pause_replication(3)
    cluster.reassign("moved", {0: [3]})

    async def work() -> Any:
        board = Board()
        async with AdminClient(TcpNetwork(), cluster.bootstrap_servers, timeouts=QUICK) as admin:
            watching = asyncio.ensure_future(ClusterLooks(admin, board).moves())
            async with asyncio.timeout(20):
                while not (board.get("moves") or {}).get("waits_for"):
                    await board.wait(board.version, 5)
                seen = board.get("moves")
                await asyncio.to_thread(cluster.heal, paused)
                await watching
        return seen, board.get("moves")

    during, after = asyncio.run(work())
    assert during["partitions"] == {"moved-0": [[3, 1], [3], [1]]} and during["left"] == 1
    assert during["bytes_total"] > during["bytes_done"] == 0
    assert "moved-0 waits for broker 3" in during["waits_for"][0]
    assert after is None and cluster.isr("moved") == {3}


def test_a_cluster_that_is_away_is_a_note() -> None:
    async def work() -> list[Any]:
        board, seen = Board(), list[Any]()
        async with AdminClient(TcpNetwork(), "127.0.0.1:1", timeouts=QUICK) as admin:
            looking = asyncio.ensure_future(ClusterLooks(admin, board).run())
            async with asyncio.timeout(20):
                while not board.get("notes"):
                    await board.wait(board.version, 5)
            seen.append(board.get("notes"))
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        return seen

    (notes,) = asyncio.run(work())
    assert any("127.0.0.1:1" in text or "node" in text for text in notes.values()), notes


def test_what_nobody_foresaw_is_a_note_and_ends_no_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a page would be live whose numbers stand still."""
    monkeypatch.setattr(local_looks, "_EVERY_S", 0.01)
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "broker-1.log"
    cluster_row = ClusterRow(bootstrap="127.0.0.1:1", zookeeper="127.0.0.1:2", controllers=[], brokers=[])
    write_cluster(tmp_path, cluster_row)

    async def work() -> None:
        board = Board()

        async def until(holds: Callable[[], bool]) -> None:
            while not holds():
                assert await board.wait(board.version, 5)

        strange: Any = SimpleNamespace()  # an admin of which each question fails
        looks = [ClusterLooks(strange, board).run(), LocalLooks(tmp_path, board).run()]
        running = [asyncio.ensure_future(each) for each in looks]
        log.write_text('{"event": []}\n')
        await until(lambda: len(board.get("notes") or ()) == 6)
        assert all("SimpleNamespace" in text or "unhashable" in text for text in board.get("notes").values())
        log.write_text('{"event": []}\n{"event": "broker.started"}\n')
        await until(lambda: board.get("events") is not None)
        assert "data folder" not in board.get("notes") and not any(task.done() for task in running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    asyncio.run(work())


def test_others_have_their_turn_while_long_logs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look at a folder reads what its cluster has logged for days; the newest of it all is kept."""
    monkeypatch.setattr(local_looks, "_STEP_BYTES", 500)
    (tmp_path / "logs").mkdir()
    write_cluster(tmp_path, ClusterRow(bootstrap="b:1", zookeeper="z:2", controllers=[], brokers=[]))
    times = [f"2026-11-20T10:{n // 60:02}:{n % 60:02}.000Z" for n in range(2000)]
    elected = [{"event": "controller.elected", "controller": 901 + n % 2, "controller_epoch": n} for n in range(3)]
    rows = [
        {"ts": at, **(elected[n // 500] if n % 500 == 0 and n < 1500 else {"event": "e"})} for n, at in enumerate(times)
    ]
    for name, mine in (("broker-1", rows[:1900]), ("controller-901", rows[1900:])):
        (tmp_path / "logs" / f"{name}.log").write_text("".join(json.dumps(row) + "\n" for row in mine))

    async def turns() -> int:
        board, count = Board(), 0
        looking = asyncio.ensure_future(LocalLooks(tmp_path, board).run())
        while board.get("events") is None:
            await asyncio.sleep(0)
            count += 1
        looking.cancel()
        assert [event["at"] for event in board.get("events")] == [at[11:23] for at in times[-EVENTS_KEPT:]]
        assert board.get("office") == {"controller": 901, "epoch": 2}
        return count

    assert asyncio.run(turns()) > 100


def test_logs_that_go_or_begin_anew_cost_no_line_of_others(tmp_path: Path) -> None:
    """As when a folder is emptied, and a new cluster started there, while a page looks at it."""
    logs, board = tmp_path / "logs", Board()
    logs.mkdir()
    write_cluster(tmp_path, ClusterRow(bootstrap="b:1", zookeeper="z:2", controllers=[], brokers=[]))
    looks = LocalLooks(tmp_path, board)

    def shown_after(**lines: str | None) -> list[str]:
        for name, event in lines.items():
            path = logs / f"{name}.log"
            path.unlink(missing_ok=True)
            if event is None:
                path.symlink_to(tmp_path / "gone")  # it is listed, and is not there any more when it is read
            else:
                path.write_text(json.dumps({"event": event}) + "\n")
        looks.look()
        return [row["event"] for row in board.get("events")]

    assert shown_after(a="first", b="a longer one", c=None) == ["first", "a longer one"]
    assert shown_after(b=None, c="second") == ["first", "a longer one", "second"]
    assert shown_after(b="anew") == ["first", "a longer one", "second", "anew"]
    assert shown_after(b="a") == ["first", "a longer one", "second", "anew", "a"]


def test_bytes_between_brokers_are_those_that_followers_logs_grew_by(cluster: KafkaCluster) -> None:
    cluster.create_topic("flowing", replicas={0: [1, 2]})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})

    def flows(board: Board) -> bool:
        producer.produce("flowing", b"x" * 10_000, partition=0)
        producer.flush(10)
        into = board.get("flows:2") or {"from": {}}
        return "1" in into["from"] and board.get("flows:1")["clients"] > 0

    board = look(cluster, "topics", "disks", until=flows)
    assert set(board.get("flows:2")["from"]) == {"1"} and board.get("flows:2")["from"]["1"] > 0
    assert board.get("flows:1")["to"] == {"2": board.get("flows:2")["from"]["1"]}
    assert board.get("flows:3") == {"from": {}, "to": {}, "clients": 0}


def test_a_broker_that_has_left_fetches_nothing_any_more(cluster: KafkaCluster) -> None:
    """It went in order, between two looks: there was none that it did not answer."""
    cluster.create_topic("left", replicas={0: [1, 2]})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})

    async def work() -> None:
        board = Board()
        async with AdminClient(TcpNetwork(), cluster.bootstrap_servers, timeouts=QUICK) as admin:
            looks = ClusterLooks(admin, board)
            await looks.topics()
            async with asyncio.timeout(20):
                while "2" not in (board.get("flows:1") or {"to": {}})["to"]:
                    producer.produce("left", b"x" * 10_000, partition=0)
                    producer.flush(10)
                    await looks.disks()
                await asyncio.to_thread(cluster.stop_broker, 2)
                while BrokerId(2) in await admin.brokers():  # noqa: ASYNC110 - Metadata wakes nobody
                    await asyncio.sleep(0.02)
                await looks.disks()
        assert board.get("flows:2") is None and board.get("flows:1")["to"] == {}

    try:
        asyncio.run(work())
    finally:
        cluster.heal()
        cluster.wait_for_full_isr()


@pytest.mark.long
def test_groups_of_the_brokers_that_answer_are_shown_and_who_is_silent_is_told(cluster: KafkaCluster) -> None:
    cluster.create_topic("read", replicas={0: [1, 2, 3]})
    for name in ("g1", "g2", "g3", "g4"):
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": name})
        consumer.subscribe(["read"])
        consumer.poll(2)
        consumer.close()

    async def work() -> None:
        board = Board()
        async with AdminClient(TcpNetwork(), cluster.bootstrap_servers, timeouts=QUICK) as admin:
            looks = ClusterLooks(admin, board)
            await looks.topics()
            await looks.groups()
            before = board.get("groups")["count"]
            await asyncio.to_thread(cluster.cut_link, 3)
            with pytest.raises(ToolFailure, match="broker 3 does not answer"):
                await looks.groups()
            assert 0 < board.get("groups")["count"] <= before

    try:
        asyncio.run(work())
    finally:
        cluster.heal()
        cluster.wait_for_full_isr()
