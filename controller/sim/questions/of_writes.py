"""Who has an id writes each batch once, and what a topic does not take is not written: InitProducerId, Produce,
DeleteRecords.

Source: spec clients.md §3, broker.md §10; Kafka 3.9 `ProducerAppendInfo`, `LogValidator`.
"""

from __future__ import annotations

from typing import Final

from controller.sim.questions.inquiry import ASKED, MISSING, Inquiry
from controller.sim.questions.of_configs import IN_FORCE_S, alter_all
from controller.sim.questions.of_logs import LATEST, delete_before, fetch, leader_of, offset_of, produce
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.records import Record, build_batch, iterate, parse_header, with_timestamp

OK, GAP = ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
#: (epoch of the producer, first sequence, records) of a batch, and what it is answered: its offset behind the end, or
#: why it is refused.
_SEQUENCES: Final[tuple[tuple[tuple[int, int, int], int | ErrorCode], ...]] = (
    ((0, 0, 2), 0),
    ((0, 2, 1), 2),
    ((0, 0, 2), 0),
    ((0, 2, 1), 2),
    ((0, 1, 2), GAP),
    ((0, 4, 1), GAP),
    ((1, 3, 1), GAP),
    ((1, 0, 1), 3),
    ((1, 2, 1), GAP),
    ((0, 3, 1), ErrorCode.INVALID_PRODUCER_EPOCH),
    ((0, 2, 1), ErrorCode.INVALID_PRODUCER_EPOCH),
    ((1, 0, 1), 3),
)
#: How far from its time a record may come, as topics are told; clocks are less far apart.
LIMIT_MS: Final = 600_000
#: What a request takes at most.
TAKES_MS: Final = 1000
#: What a topic is made to take, and what it is answered that it does not.
STRICT: Final = {"cleanup.policy": "compact,delete", "max.message.bytes": "400"}
LIMITS: Final = (
    {"message.timestamp.difference.max.ms": str(LIMIT_MS)},
    {"message.timestamp.after.max.ms": str(LIMIT_MS), "message.timestamp.before.max.ms": str(LIMIT_MS)},
)
APPEND_TIME: Final = {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact"}


async def sequences(inquiry: Inquiry) -> None:
    """Each batch is written once, however often it is sent; none out of turn, none of a former epoch."""
    leader, epoch = leader_of(inquiry)
    ids = [await _new_id(inquiry) for _ in range(2)]
    inquiry.expect("how many ids two producers have", len({*ids}), 2)
    end, _ = await offset_of(inquiry, leader, epoch, LATEST)
    now_ms = inquiry.cluster.world.clock.now_ms()
    for (producer_epoch, sequence, count), right in _SEQUENCES:
        rows = [Record(n, now_ms, b"k", b"v%d" % (sequence + n)) for n in range(count)]
        batch = build_batch(rows, producer_id=ids[0], producer_epoch=producer_epoch, base_sequence=sequence)
        answer = await produce(inquiry, leader, inquiry.chance.randint(3, 8), batch)
        found = ErrorCode.of(answer.error_code), int(answer.base_offset)
        due = (right, -1) if isinstance(right, ErrorCode) else (OK, end + right)
        inquiry.expect(f"Produce of {count} from sequence {sequence} on in epoch {producer_epoch}", found, due)
    inquiry.expect("where the log ends then", (await offset_of(inquiry, leader, epoch, LATEST))[0], end + 4)


async def _new_id(inquiry: Inquiry) -> int:
    number = inquiry.chance.choice(inquiry.brokers)
    body = {"transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    answer = await inquiry.ask(number, ApiKey.INIT_PRODUCER_ID, inquiry.chance.randint(0, 3), body)
    inquiry.expect("InitProducerId", (ErrorCode.of(answer.error_code), int(answer.producer_epoch)), (OK, 0))
    return int(answer.producer_id)


async def refused(inquiry: Inquiry) -> None:
    """What is sent to nobody, or asks for too much, is refused and not written."""
    leader, epoch = leader_of(inquiry)
    one = build_batch([Record(0, inquiry.cluster.world.clock.now_ms(), b"k", b"v")])
    end, _ = await offset_of(inquiry, leader, epoch, LATEST)
    for what, given, batch, right in (
        ("in a transaction", {"transactional_id": "x"}, one, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("with acks 2", {"acks": 2}, one, ErrorCode.INVALID_REQUIRED_ACKS),
        ("to a missing topic", {"topic": MISSING}, one, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("to a missing partition", {"partition": 99}, one, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("of two batches", {}, one + one, ErrorCode.INVALID_RECORD),
    ):
        answer = await produce(inquiry, leader, inquiry.chance.randint(3, 8), batch, **given)
        inquiry.expect_code(f"Produce {what}", answer.error_code, right)
    inquiry.expect("where the log ends then", (await offset_of(inquiry, leader, epoch, LATEST))[0], end)


async def by_configs(inquiry: Inquiry) -> None:
    """What a topic's configs forbid is refused; a topic that says when records came says so of each."""
    await _strict(inquiry)
    await alter_all(inquiry, ASKED, APPEND_TIME)
    await inquiry.cluster.world.sleep(IN_FORCE_S)
    leader, epoch = leader_of(inquiry)
    now_ms = _now_ms(inquiry, leader)
    answer = await produce(inquiry, leader, 8, build_batch([Record(0, now_ms - LIMIT_MS, b"k", b"v")]))
    came_ms = int(answer.log_append_time)
    inquiry.expect("Produce where records have the time at which they came", answer.error_code, OK)
    inquiry.expect("whether that time is told", 0 <= came_ms - now_ms < TAKES_MS, True)
    row = await fetch(inquiry, leader, int(answer.base_offset), epoch)
    times = [record.timestamp for record in iterate(bytes(row.records or b""))]
    inquiry.expect("with which time it is read", times, [came_ms])
    await _deleted(inquiry, leader, ErrorCode.POLICY_VIOLATION)
    await alter_all(inquiry, ASKED, {})
    await inquiry.cluster.world.sleep(IN_FORCE_S)


async def _strict(inquiry: Inquiry) -> None:
    await alter_all(inquiry, ASKED, STRICT | inquiry.chance.choice(LIMITS))
    await inquiry.cluster.world.sleep(IN_FORCE_S)
    leader, epoch = leader_of(inquiry)
    end, _ = await offset_of(inquiry, leader, epoch, LATEST)
    for what, record, right in (
        ("without a key", {"key": None}, ErrorCode.INVALID_RECORD),
        ("that is too large", {"value": bytes(400)}, ErrorCode.MESSAGE_TOO_LARGE),
        ("of later than can be", {"late_ms": 2 * LIMIT_MS}, ErrorCode.INVALID_TIMESTAMP),
        ("of long ago", {"late_ms": -2 * LIMIT_MS}, ErrorCode.INVALID_TIMESTAMP),
    ):
        answer = await produce(inquiry, leader, 8, _one(inquiry, leader, **record))
        inquiry.expect_code(f"Produce of a record {what}", answer.error_code, right)
    inquiry.expect("where the log ends then", (await offset_of(inquiry, leader, epoch, LATEST))[0], end)
    await _believes_records(inquiry, leader, epoch, end)
    await _deleted(inquiry, leader, OK)


async def _believes_records(inquiry: Inquiry, leader: int, epoch: int, end: int) -> None:
    """Of a batch whose header says a later time than its records, the records are believed."""
    now_ms = max(_now_ms(inquiry, leader), inquiry.cluster.world.clock.now_ms()) + TAKES_MS  # later than any so far
    batch = build_batch([Record(0, now_ms, b"k", b"v")])
    answer = await produce(inquiry, leader, 8, with_timestamp(batch, now_ms + TAKES_MS, is_append_time=False))
    inquiry.expect_code("Produce of a batch that is mistaken in its time", answer.error_code)
    row = await fetch(inquiry, leader, end, epoch)
    inquiry.expect("the latest time of that batch", parse_header(bytes(row.records)).max_timestamp, now_ms)
    later = await offset_of(inquiry, leader, epoch, now_ms + 1)
    inquiry.expect("ListOffsets of a later time", later, (-1, -1))
    inquiry.expect("ListOffsets of its time", await offset_of(inquiry, leader, epoch, now_ms), (end, now_ms))


def _one(inquiry: Inquiry, leader: int, *, key: bytes | None = b"k", value: bytes = b"v", late_ms: int = 0) -> bytes:
    return build_batch([Record(0, _now_ms(inquiry, leader) + late_ms, key, value)])


def _now_ms(inquiry: Inquiry, leader: int) -> int:
    """By the clock of the leader, which may be another than that of clients."""
    return inquiry.cluster.machine(leader).clock.now_ms()


async def _deleted(inquiry: Inquiry, leader: int, right: ErrorCode) -> None:
    """All that there is is deleted (-1), where that may be done."""
    _, epoch = leader_of(inquiry)
    end, _ = await offset_of(inquiry, leader, epoch, LATEST)
    found = await delete_before(inquiry, leader, -1)
    inquiry.expect("DeleteRecords of all", found, (right, -1 if right else end))
