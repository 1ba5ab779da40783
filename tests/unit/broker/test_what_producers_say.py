"""What producers are answered, in every version: by the logs, or before a log is asked.

Source: Kafka 3.9 `KafkaApis.handleProduceRequest`, `ProduceRequest.json`, `InitProducerIdRequest.json`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import pytest

from broker_sim.replicas.types import ProduceResult
from broker_sim.server import CloseConnection
from controller.wire.errors import NO_TRANSACTIONS, TRANSACTIONS_REFUSED, ErrorCode, KafkaError
from controller.wire.protocol import ApiKey
from controller.wire.records import build_values
from controller.wire.types import GROUP_METADATA_TOPIC, TopicPartition
from tests.worlds.played_requests import answered, read, topics, versions

E: Final = ErrorCode
A0, B2, INTERNAL = TopicPartition("a", 0), TopicPartition("b", 2), TopicPartition(GROUP_METADATA_TOPIC, 3)
BATCH: Final = build_values([(None, b"v")], timestamp=1)
TWO: Final = BATCH + BATCH
TRANSACTIONAL: Final = BATCH[:21] + b"\x00\x10" + BATCH[23:]
MALFORMED: Final = b"\x00" * 12


@pytest.mark.parametrize("acks", [-1, 0, 1])
@pytest.mark.parametrize("error", [E.NONE, E.MESSAGE_TOO_LARGE])
@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
def test_produce(version: int, error: ErrorCode, acks: int) -> None:
    noted: dict[str, Any] = {}
    results = {
        A0: ProduceResult(base_offset=1, log_append_time_ms=2, log_start_offset=3),
        B2: ProduceResult(error=error, log_start_offset=4, message="m", record_errors=((5, "five"), (6, "six"))),
    }

    async def produce(records: Any, **how: int) -> Any:
        noted.update(how, records=records)
        return results

    rows = topics(
        ("a", [{"index": 0, "records": BATCH}]), ("b", [{"index": 2, "records": BATCH}]), within="partition_data"
    )
    body = {"acks": acks, "timeout": 99, "topic_data": rows, "transactional_id": None}
    context = {
        "producing": SimpleNamespace(produce=produce),
        "metadata": SimpleNamespace(knows=lambda tp: True),
    }
    if acks == 0 and error is not E.NONE:
        with pytest.raises(CloseConnection, match=r"b-2.*MESSAGE_TOO_LARGE"):
            answered(ApiKey.PRODUCE, version, body, **context)
        return
    found = answered(ApiKey.PRODUCE, version, body, **context)
    assert noted == {"records": {A0: BATCH, B2: BATCH}, "acks": acks, "timeout_ms": 99}
    first = {"index": 0, "error_code": 0, "base_offset": 1, "log_append_time": 2, "log_start_offset": 3}
    last = {"index": 2, "error_code": error, "base_offset": -1, "log_append_time": -1, "log_start_offset": 4}
    faults = [{"batch_index": n, "batch_index_error_message": text} for n, text in ((5, "five"), (6, "six"))]
    last |= {"record_errors": faults, "error_message": "m"}
    answers = ("a", [first | {"record_errors": (), "error_message": None}]), ("b", [last])
    responses = topics(*answers, within="partition_responses")
    assert found == (None if acks == 0 else read(ApiKey.PRODUCE, version, {"responses": responses}))


NOWHERE: Final = TopicPartition("nowhere", 1)
ALL: Final = {A0: BATCH, B2: TWO, INTERNAL: BATCH, NOWHERE: BATCH}
#: what is wrong with some, whatever else: their errors
WRONG: Final = {B2: E.INVALID_RECORD, NOWHERE: E.UNKNOWN_TOPIC_OR_PARTITION}
#: what is sent, with how many acks, by whom -> the errors of those of which no log is asked, and a text of all of them
REFUSED: Final[dict[str, tuple[dict[TopicPartition, bytes], int, str | None, dict[TopicPartition, ErrorCode], str]]] = {
    "a client": (ALL, 1, "c", {**WRONG, INTERNAL: E.INVALID_TOPIC_EXCEPTION}, ""),
    "a client without a name": (ALL, 1, None, {**WRONG, INTERNAL: E.INVALID_TOPIC_EXCEPTION}, ""),
    "an administrator": (ALL, 1, "__admin_client", WRONG, ""),
    "wrong acks": (ALL, 2, "c", {**dict.fromkeys(ALL, E.INVALID_REQUIRED_ACKS), **WRONG}, ""),
    "nothing that is allowed": ({B2: TWO}, 1, "c", {B2: E.INVALID_RECORD}, ""),
    "no records": ({A0: b""}, 1, "c", {A0: E.INVALID_RECORD}, ""),
    "no batches": ({**ALL, A0: MALFORMED}, 1, "c", dict.fromkeys(ALL, E.CORRUPT_MESSAGE), "Record size 0"),
    "a transaction": ({**ALL, A0: TRANSACTIONAL}, 2, "c", dict.fromkeys(ALL, TRANSACTIONS_REFUSED), NO_TRANSACTIONS),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
def test_what_is_refused_before_a_log_is_asked(version: int, case: str) -> None:
    sent, acks, client_id, errors, text = REFUSED[case]
    asked: list[TopicPartition] = []

    async def produce(records: Any, **_: int) -> Any:
        asked.extend(records)
        return {tp: ProduceResult(base_offset=5) for tp in records}

    rows = topics(*((tp.topic, [{"index": tp.partition, "records": data}]) for tp, data in sent.items()),
                  within="partition_data")  # fmt: skip
    found = answered(
        ApiKey.PRODUCE,
        version,
        {"acks": acks, "timeout": 99, "topic_data": rows, "transactional_id": None},
        client_id=client_id,
        producing=SimpleNamespace(produce=produce),
        metadata=SimpleNamespace(knows=lambda tp: tp != NOWHERE),
    )
    assert asked == [tp for tp in sent if tp not in errors]
    partitions = [(row["name"], partition) for row in found["responses"] for partition in row["partition_responses"]]
    assert [TopicPartition(topic, partition["index"]) for topic, partition in partitions] == list(sent)
    for tp, (_, partition) in zip(sent, partitions, strict=True):
        assert partition["error_code"] == errors.get(tp, E.NONE), tp
        assert partition["base_offset"] == (-1 if tp in errors else 5), tp
        if version >= 8:
            assert (partition["error_message"] or "").startswith(text), tp


def test_who_writes_in_a_transaction_is_refused_whatever_it_writes() -> None:
    rows = topics(("a", [{"index": 0, "records": BATCH}]), within="partition_data")
    body = {"acks": 1, "timeout": 99, "topic_data": rows, "transactional_id": ""}
    [[row]] = [topic["partition_responses"] for topic in answered(ApiKey.PRODUCE, 8, body)["responses"]]
    assert (row["error_code"], row["error_message"]) == (TRANSACTIONS_REFUSED, NO_TRANSACTIONS)


#: what a producer says of itself (its transactions, id, epoch) -> what it is told
PRODUCERS: Final = [
    (None, -1, -1, E.NONE),
    (None, 5, 0, E.NONE),
    (None, 5, -1, E.INVALID_REQUEST),
    (None, -1, 0, E.INVALID_REQUEST),
    ("x", 5, -1, E.INVALID_REQUEST),
    ("x", -1, -1, TRANSACTIONS_REFUSED),
    ("", -1, -1, TRANSACTIONS_REFUSED),
]


@pytest.mark.parametrize(("transactional_id", "producer_id", "epoch", "error"), PRODUCERS)
@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
def test_init_producer_id(
    version: int, transactional_id: str | None, producer_id: int, epoch: int, error: ErrorCode
) -> None:
    """Since version 3 a producer says who it was."""

    async def take() -> int:
        return 2000

    body = {"transactional_id": transactional_id, "producer_id": producer_id, "producer_epoch": epoch}
    found = answered(ApiKey.INIT_PRODUCER_ID, version, body, producer_ids=SimpleNamespace(take=take))
    if version < 3:
        error = E.NONE if transactional_id is None else TRANSACTIONS_REFUSED
    refused = {"error_code": error, "producer_id": -1, "producer_epoch": -1}
    fresh = {"error_code": E.NONE, "producer_id": 2000, "producer_epoch": 0}
    assert found == read(ApiKey.INIT_PRODUCER_ID, version, fresh if error is E.NONE else refused)


def test_a_broker_that_gets_no_producer_ids_says_why() -> None:
    async def take() -> int:
        raise KafkaError(E.COORDINATOR_LOAD_IN_PROGRESS, "no block")

    context = {"producer_ids": SimpleNamespace(take=take), "log": SimpleNamespace(warning=lambda *_, **__: None)}
    found = answered(ApiKey.INIT_PRODUCER_ID, 2, {"transactional_id": None}, **context)
    refused = {"error_code": E.COORDINATOR_LOAD_IN_PROGRESS, "producer_id": -1, "producer_epoch": -1}
    assert found == read(ApiKey.INIT_PRODUCER_ID, 2, refused)
