"""Questions about producing and reading; see `questions`."""

from __future__ import annotations

from typing import Any

from controller.wire.compression import Codec
from controller.wire.protocol import ApiKey, encode_request
from controller.wire.records import Record, build_batch

from .batches import BATCHES, GOOD, batch
from .sides import Side


def produce_body(topic: str, records: bytes | None, *, acks: int = -1, index: int = 0, **more: Any) -> dict[str, Any]:
    topics = [{"name": topic, "partition_data": [{"index": index, "records": records}]}]
    return {"transactional_id": None, "acks": acks, "timeout": 5000, "topic_data": topics, **more}


def produced(side: Side, topic: str, records: bytes | None, version: int = 8, **how: Any) -> Any:
    answer = side.ask(ApiKey.PRODUCE, version, produce_body(topic, records, **how))
    return answer if answer == "closed" else answer["responses"][0]["partition_responses"][0]


def _without_place(answer: Any) -> Any:
    """Where the batch landed depends on what came before."""
    if isinstance(answer, dict):
        answer["base_offset"] = answer["base_offset"] >= 0
    return answer


def producing_each_batch(side: Side) -> Any:
    found = {}
    for kind in ("plain", "strict", "compacted", "stamped", "gzipped", "raw"):
        for name, records in BATCHES.items():
            found[f"{name} into {kind}"] = _without_place(produced(side, side.topic(kind), records))
    return found


def producing_by_version(side: Side) -> Any:
    topic = side.topic("plain")
    found: dict[str, Any] = {}
    for version in range(3, 9):
        found[f"v{version}"] = _without_place(produced(side, topic, GOOD, version))
        found[f"v{version} zstd"] = _without_place(produced(side, topic, batch(1, codec=Codec.ZSTD), version))
    for acks in (-2, 2, 0x7FFF):
        found[f"acks {acks}"] = produced(side, topic, GOOD, acks=acks)
    found["unknown topic"] = produced(side, "nowhere", GOOD)
    found["unknown partition"] = produced(side, topic, GOOD, index=99)
    found["negative partition"] = produced(side, topic, GOOD, index=-1)
    internal = produced(side, "__consumer_offsets", GOOD, index=side.offsets_partition)
    found["internal topic"] = internal["error_code"], internal["log_start_offset"], internal["error_message"]
    found["unknown topic, acks 7"] = produced(side, "nowhere", GOOD, acks=7)
    found["bad batch, acks 7"] = produced(side, topic, b"", acks=7)
    found["not its leader"] = produced(side, side.topic("elsewhere"), GOOD)
    found["no partitions"] = side.ask(
        ApiKey.PRODUCE, 8, {"transactional_id": None, "acks": -1, "timeout": 1, "topic_data": []}
    )
    return found


def producing_without_acks(side: Side) -> Any:
    """Silence, or a closed connection: told by the next answer on the same connection."""
    found = {}
    for name, topic, records in (
        ("good", side.topic("plain"), GOOD),
        ("bad", side.topic("plain"), BATCHES["a wrong checksum"]),
        ("unknown", "nowhere", GOOD),
    ):
        side.send(encode_request(ApiKey.PRODUCE, 8, 0, "raw", produce_body(topic, records, acks=0)))
        found[name] = side.ask(ApiKey.HEARTBEAT, 0, {"group_id": "", "generation_id": 0, "member_id": "x"})
        side.close()
    return found


def idempotent_producing(side: Side) -> Any:
    """(producer, epoch, first sequence, count) one after the other."""
    topic, last = side.topic("idempotent"), 0x7FFFFFFF
    steps = [
        (1, 0, 5, 1), (1, 0, 6, 2), (1, 0, 6, 2), (1, 0, 5, 1), (1, 0, 8, 1), (1, 0, 10, 1), (1, 0, 8, 2), (1, 0, 3, 1),
        (1, 0, 9, 1), (1, 0, 10, 1), (1, 0, 11, 1), (1, 0, 12, 1), (1, 0, 13, 1), (1, 0, 5, 1), (1, 0, 10, 1),
        (1, 1, 4, 1), (1, 1, 0, 1), (1, 0, 14, 1), (1, 1, 0, 1), (1, 1, 1, 1), (1, 3, 0, 2), (1, 3, 2, 1), (1, 1, 2, 1),
        (2, 5, 0, 3), (2, 5, 0, 2), (2, 5, 0, 3), (2, 4, 3, 1), (2, 6, 3, 1),
        (3, 0, last - 1, 2), (3, 0, 0, 1), (3, 0, 1, 1), (3, 0, last - 1, 2),
        (4, 0, last, 2), (4, 0, 1, 1), (4, 0, last, 2), (5, -1, 0, 1), (-1, 0, 0, 1), (6, 0, 0, 1), (6, 0, 2, 1),
        (6, 0, 1, 1),
    ]  # fmt: skip
    found = []
    for pid, epoch, first, count in steps:
        records = batch(count, producer_id=pid, producer_epoch=epoch, base_sequence=first)
        answer = produced(side, topic, records)
        found.append(((pid, epoch, first, count), answer["error_code"], answer["base_offset"]))
    return found


def init_producer_id(side: Side) -> Any:
    found = []
    for pid, epoch in ((-1, -1), (5, -1), (-1, 3), (5, 3)):
        body = {"transactional_id": None, "transaction_timeout": 1000, "producer_id": pid, "producer_epoch": epoch}
        answer = side.ask(ApiKey.INIT_PRODUCER_ID, 3, body)
        found.append({**answer, "producer_id": answer["producer_id"] >= 0})
    return found


# -- reading ---------------------------------------------------------------------------------------------------------


def listing_offsets(side: Side) -> Any:
    topic = side.topic("read")
    for n in range(3):
        records = build_batch([Record(i, 1000 * (3 * n + i), b"k", b"v") for i in range(3)])
        produced(side, topic, records)
    found = {}

    def ask(name: str, version: int, index: int = 0, topic: str = topic, **partition: Any) -> None:
        body = {
            "replica_id": partition.pop("replica_id", -1),
            "topics": [{"name": topic, "partitions": [{"partition_index": index, **partition}]}],
        }
        found[name] = side.ask(ApiKey.LIST_OFFSETS, version, body)

    for version in range(1, 6):
        for at in (-1, -2, 0, 1, 1000, 3500, 8000, 8001):
            ask(f"v{version} {at}", version, timestamp=at)
    for version in range(5, 10):
        for at in (-3, -4, -5, -6):
            ask(f"v{version} {at}", version, timestamp=at)
    ask("unknown partition", 5, 9, timestamp=-1)
    ask("unknown partition and time", 5, 9, timestamp=-6)
    ask("unknown topic", 5, topic="nowhere", timestamp=-1)
    ask("elsewhere", 5, topic=side.topic("elsewhere"), timestamp=-1)
    ask("old epoch", 5, timestamp=-1, current_leader_epoch=-2)
    ask("new epoch", 5, timestamp=-1, current_leader_epoch=99)
    ask("debugging replica", 5, timestamp=-1, replica_id=-2)
    twice = [{"partition_index": 0, "timestamp": -1}, {"partition_index": 0, "timestamp": -2}]
    found["twice"] = side.ask(
        ApiKey.LIST_OFFSETS, 5, {"replica_id": -1, "topics": [{"name": topic, "partitions": twice}]}
    )
    return found


def epochs(side: Side) -> Any:
    found = {}
    for version in range(4):
        for epoch in (-1, 0, 7):
            for current in (-1, 0, 3):
                topics = [
                    {
                        "topic": side.topic("read"),
                        "partitions": [{"partition": 0, "leader_epoch": epoch, "current_leader_epoch": current}],
                    },
                    {"topic": "nowhere", "partitions": [{"partition": 0, "leader_epoch": 0}]},
                    {"topic": side.topic("elsewhere"), "partitions": [{"partition": 0, "leader_epoch": 0}]},
                ]
                if version < 2:
                    for topic in topics:
                        topic["partitions"][0].pop("current_leader_epoch", None)  # type: ignore[attr-defined]
                body = {"replica_id": -2, "topics": topics}
                found[f"v{version} {epoch} {current}"] = side.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, body)
    return found


def fetch_body(topic: str, offset: int, *, index: int = 0, **how: Any) -> dict[str, Any]:
    partition = {
        "partition": index,
        "current_leader_epoch": how.pop("epoch", -1),
        "fetch_offset": offset,
        "log_start_offset": -1,
        "partition_max_bytes": how.pop("partition_max_bytes", 1 << 20),
    }
    return {
        "replica_id": -1,
        "max_wait": 100,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
        **how,
    }


def fetching(side: Side) -> Any:
    topic = side.topic("read")
    found = {}
    cases: list[tuple[str, int, dict[str, Any]]] = []
    for version in range(4, 12):
        cases += [(f"v{version} {at}", version, fetch_body(topic, at)) for at in (0, 4, 9, 10, -1)]
    cases += [
        ("unknown partition", 11, fetch_body(topic, 0, index=7)),
        ("unknown topic", 11, fetch_body("nowhere", 0)),
        ("elsewhere v11", 11, fetch_body(side.topic("elsewhere"), 0)),
        ("elsewhere v10", 10, fetch_body(side.topic("elsewhere"), 0)),
        ("old epoch", 11, fetch_body(topic, 0, epoch=-2)),
        ("new epoch", 11, fetch_body(topic, 0, epoch=99)),
        ("a small partition limit", 11, fetch_body(topic, 0, partition_max_bytes=1)),
        ("a limit of two batches", 11, fetch_body(topic, 0, partition_max_bytes=180)),
        ("a small limit", 11, fetch_body(topic, 0, max_bytes=1)),
        ("committed", 11, fetch_body(topic, 0, isolation_level=1)),
        ("an unknown session", 11, fetch_body(topic, 0, session_id=12345, session_epoch=3)),
        ("a replica that is none", 11, fetch_body(topic, 0, replica_id=77)),
        ("a replica that is none, with an epoch", 11, fetch_body(topic, 0, replica_id=77, epoch=0)),
        ("nothing", 11, fetch_body(topic, 0, topics=[])),
    ]
    for name, version, body in cases:
        answer = side.ask(ApiKey.FETCH, version, body)
        if isinstance(answer, dict):
            for row in answer["responses"]:
                for partition in row["partitions"]:
                    records = partition.get("records")
                    partition["records"] = None if records is None else len(records)
        found[name] = answer
    return found


def fetch_sessions(side: Side) -> Any:
    """A session is opened, continued, confused and closed."""
    topic, found = side.topic("read"), []

    def fetch(**how: Any) -> Any:
        answer = side.call(ApiKey.FETCH, 11, fetch_body(topic, how.pop("offset", 9), **how))
        found.append(
            (
                answer.error_code,
                answer.session_id != 0,
                [(r.topic == topic, len(r.partitions)) for r in answer.responses],
            )
        )
        return answer.session_id

    session = fetch(session_epoch=0)
    fetch(session_id=session, session_epoch=1, topics=[])
    fetch(session_id=session, session_epoch=2, offset=0)
    fetch(session_id=session, session_epoch=2, topics=[])
    fetch(session_id=session, session_epoch=3, topics=[])
    fetch(session_id=session, session_epoch=-1)
    fetch(session_id=session, session_epoch=4, topics=[])
    fetch(session_id=0, session_epoch=5, topics=[])
    return found


def deleting_records(side: Side) -> Any:
    found = {}

    def ask(name: str, topic: str, offset: int, index: int = 0) -> None:
        topics = [{"name": topic, "partitions": [{"partition_index": index, "offset": offset}]}]
        found[name] = side.ask(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout": 5000})

    topic = side.topic("cut")
    for _ in range(3):
        produced(side, topic, GOOD)
    ask("too far", topic, 7)
    ask("negative", topic, -2)
    ask("into a batch", topic, 3)
    ask("backwards", topic, 1)
    ask("unknown topic", "nowhere", 1)
    ask("unknown partition", topic, 1, 9)
    ask("elsewhere", side.topic("elsewhere"), 0)
    ask("compacted", side.topic("compacted"), 0)
    ask("internal", "__consumer_offsets", 0, side.offsets_partition)
    found["internal"]["topics"][0]["partitions"][0].pop("partition_index")
    listed = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -2}]}]
    found["start"] = side.ask(ApiKey.LIST_OFFSETS, 5, {"replica_id": -1, "topics": listed})
    ask("to the end", topic, -1)
    found["at 0"] = side.ask(ApiKey.FETCH, 11, fetch_body(topic, 0))
    return found
