"""What each handle of a test cluster does to the world: the same checks for a cluster in this process, in processes of
their own, and in a container. A check leaves the cluster whole."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from controller.admin.cluster.failures import Refused
from controller.wire.fault_rows import FaultError

#: What the checks are made for.
SHAPE: Final[dict[str, Any]] = {"controllers": 2, "racks": ["a", "b", "c"], "log_dirs": 2}
#: Every broker is asked: a fault that all brokers have is in force in all of them when the last has it.
SOON_S: Final = 30.0


def until(what: str, holds: Callable[[], bool], limit_s: float = SOON_S) -> None:
    limit = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < limit, what
        threading.Event().wait(0.02)


def produce(cluster: Any, topic: str, **settings: object) -> Any:
    """The error of one record, None if it was acknowledged."""
    errors: list[Any] = []
    own = {"bootstrap.servers": cluster.bootstrap_servers, "message.timeout.ms": 5000, "log_level": 0}
    producer = Producer({**own, **settings})
    producer.produce(topic, b"x", on_delivery=lambda error, message: errors.append(error))
    producer.flush(10)
    return errors[0]


def bootstrap_servers(cluster: Any) -> None:
    for address in cluster.bootstrap_servers.split(","):
        found = AdminClient({"bootstrap.servers": address}).list_topics(timeout=10)
        assert set(found.brokers) == {1, 2, 3} == set(cluster.broker_ids), address


def create_topic(cluster: Any) -> None:
    cluster.create_topic("made", replicas={0: [3, 1], 1: [2, 1]}, configs={"min.insync.replicas": "2"})
    assert [cluster.leader("made", n) for n in (0, 1)] == [3, 2]
    assert [cluster.isr("made", n) for n in (0, 1)] == [{1, 3}, {1, 2}]
    with pytest.raises(Refused, match=r"[Rr]eplication factor"):
        cluster.create_topic("wide", replication_factor=9)


def reassign_and_wait_for_no_moves(cluster: Any) -> None:
    cluster.create_topic("moved", replicas={0: [1, 2]})
    cluster.reassign("moved", {0: [3, 2]})
    cluster.wait_for_no_moves("moved")
    cluster.wait_for_leader("moved")
    assert cluster.isr("moved") == {2, 3}


def kill_broker_and_start_broker(cluster: Any) -> None:
    cluster.create_topic("killed", replicas={0: [2, 3, 1]})
    cluster.kill_broker(2)
    cluster.wait_for_leader("killed")
    assert cluster.leader("killed") == 3, "who is dead does not answer: the wait is not over before all know the next"
    assert cluster.isr("killed") == {1, 3}
    assert "broker 2 is not alive" in cluster.why("killed")
    cluster.start_broker(2)
    cluster.wait_for_full_isr("killed")
    with pytest.raises(ValueError, match="broker 2 is not down"):
        cluster.start_broker(2)


def stop_broker(cluster: Any) -> None:
    cluster.create_topic("stopped", replicas={0: [1, 2]})
    cluster.stop_broker(1)
    cluster.wait_for_leader("stopped")
    assert cluster.leader("stopped") == 2, "who is about to end is not waited for as a leader"
    until("a shutdown in order", lambda: any(e["event"] == "broker.shutdown_controlled" for e in cluster.events()))
    cluster.heal()
    cluster.wait_for_full_isr()


def kill_controller_and_start_controller(cluster: Any) -> None:
    killed = cluster.kill_controller()

    def elected() -> list[int]:
        return [e["controller"] for e in cluster.events() if e["event"] == "controller.elected"]

    until("the other one takes over", lambda: bool(elected()) and elected()[-1] != killed)
    until("a topic can be made again", lambda: _can_create(cluster, "by-another"))
    cluster.start_controller(killed)


def _can_create(cluster: Any, name: str) -> bool:
    try:
        cluster.create_topic(name)
    except (Refused, OSError, TimeoutError, Exception):
        return name in AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=5).topics
    return True


def pause_replication_and_isr_history(cluster: Any) -> None:
    cluster.create_topic("paused", replicas={0: [1, 2, 3]})
    pause = cluster.pause_replication(3, "paused")

    def shrunk() -> bool:
        produce(cluster, "paused", acks=1)
        return bool(cluster.isr("paused") == {1, 2})

    until("a smaller ISR", shrunk)
    cluster.heal(pause)
    cluster.wait_for_full_isr("paused")
    told = [(row["ev"], row["isr"]) for row in cluster.isr_history("paused")]
    shrink = told.index(("isr_shrink", [1, 2]))
    assert any(kind == "isr_expand" and sorted(isr) == [1, 2, 3] for kind, isr in told[shrink:])
    assert {row["topic"] for row in cluster.isr_history("paused")} == {"paused"}


def fail_log_dir(cluster: Any) -> None:
    cluster.create_topic("disks", replicas={0: [1, 2], 1: [1, 2], 2: [1, 2], 3: [1, 2]})
    failed = cluster.fail_log_dir(1, 2)
    until("some led by the other", lambda: {cluster.leader("disks", n) for n in range(4)} == {1, 2})
    cluster.heal(failed)
    cluster.kill_broker(1)
    until("all led by the other", lambda: {cluster.leader("disks", n) for n in range(4)} == {2})
    cluster.start_broker(1)
    cluster.wait_for_full_isr()


def expire_session(cluster: Any) -> None:
    def epochs() -> list[int]:
        registered = [e for e in cluster.events() if e["event"] == "broker.registered"]
        return [e["broker_epoch"] for e in registered if e["broker_id"] == 3]

    before = epochs()
    name = cluster.expire_session(3)
    until("registered again", lambda: max(epochs(), default=0) > max(before, default=0))
    cluster.heal(name)
    cluster.wait_for_full_isr()


def api_error(cluster: Any) -> None:
    cluster.create_topic("errors", replicas={0: [1]})
    wrong = cluster.api_error("Produce", "MESSAGE_TOO_LARGE", broker_id=1)
    until("it is refused", lambda: _name(produce(cluster, "errors", acks=1, retries=0)) == "MSG_SIZE_TOO_LARGE")
    cluster.heal(wrong)
    until("it is taken again", lambda: produce(cluster, "errors", acks=1) is None)
    before = _end(cluster, "errors")
    cluster.api_error("Produce", "NOT_LEADER_OR_FOLLOWER", every=10)
    sent: list[object] = []

    def one_is_there_twice() -> bool:
        sent.append(produce(cluster, "errors", acks=1))
        return _end(cluster, "errors") > before + len(sent)

    until("a client sends a record again that was taken", one_is_there_twice)
    assert set(sent) == {None} and len(sent) >= 10
    cluster.heal()
    with pytest.raises(FaultError, match="no API is called 'Produced'"):
        cluster.api_error("Produced", "NONE")


def _end(cluster: Any, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "look", "log_level": 0})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    consumer.close()
    return int(end)


def _name(error: Any) -> str | None:
    return None if error is None else str(error.name())


def cut_link(cluster: Any) -> None:
    cluster.create_topic("cut", replicas={0: [1]})
    cut = cluster.cut_link(1)
    until("nothing reaches it", lambda: produce(cluster, "cut", acks=1, **{"message.timeout.ms": 1000}) is not None)
    cluster.heal(cut)
    until("it is reached again", lambda: produce(cluster, "cut", acks=1) is None)
    cluster.wait_for_full_isr()


def slow_link(cluster: Any) -> None:
    cluster.create_topic("slow", replicas={0: [1]})
    slow = cluster.slow_link(1, delay_ms=300)

    def took() -> float:
        began = time.monotonic()
        assert produce(cluster, "slow", acks=1) is None
        return time.monotonic() - began

    until("an answer is under way twice 300 ms", lambda: took() > 0.6)
    cluster.heal(slow)
    until("it is quick again", lambda: took() < 0.3)


def wait_for_leader_and_wait_for_full_isr(cluster: Any) -> None:
    cluster.create_topic("waited", replicas={0: [1]})
    cluster.kill_broker(1)
    until("no leader", lambda: cluster.leader("waited") is None)
    with pytest.raises(TimeoutError, match="waited"):
        cluster.wait_for_leader("waited", timeout_s=0.3)
    with pytest.raises(TimeoutError, match="not in waited-0"):
        cluster.wait_for_full_isr("waited", timeout_s=0.3)
    cluster.start_broker(1)
    cluster.wait_for_leader("waited")
    cluster.wait_for_full_isr()
    with pytest.raises(TimeoutError, match="there is no topic nosuch"):
        cluster.wait_for_full_isr("nosuch", timeout_s=0.1)


def why(cluster: Any) -> None:
    cluster.create_topic("asked", replicas={0: [1, 2]})
    assert "asked" in cluster.why("asked")


def fault(cluster: Any) -> None:
    cluster.create_topic("columns", replicas={0: [1]})
    name = cluster.fault(fault="slow_disk", broker=1, delay_ms=400)

    def is_slow() -> bool:
        began = time.monotonic()
        assert produce(cluster, "columns", acks=1) is None
        return time.monotonic() - began > 0.4

    until("appends wait", is_slow)
    cluster.heal(name)


CHECKS: Final = (
    bootstrap_servers, create_topic, reassign_and_wait_for_no_moves, kill_broker_and_start_broker, stop_broker,
    kill_controller_and_start_controller, pause_replication_and_isr_history, fail_log_dir, expire_session, api_error,
    cut_link, slow_link, wait_for_leader_and_wait_for_full_isr, why, fault,
)  # fmt: skip


def processes_of(session: int) -> list[str]:
    """What runs in that session, but for its zombies."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, of = (place / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(of) == session and state != "Z":
            found.append(place.name)
    return found
