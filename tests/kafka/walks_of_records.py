"""Questions that are drawn: walks through what producers and consumers may ask of one partition; see `questions`."""

from __future__ import annotations

import random
import zlib
from typing import Any, Final

from controller.wire.compression import Codec
from controller.wire.protocol import ApiKey, plain
from controller.wire.records import HEADER_BYTES, Record, build_batch, parse_header

from .batches import BATCHES, NOW
from .questions_of_records import fetch_body, produce_body
from .sides import Side

#: kind of topic -> its configs. Where segments are small nothing is compressed: they would end elsewhere.
WALKED: Final[dict[str, dict[str, str]]] = {
    "walk-plain": {"retention.ms": "-1"},
    "walk-small": {"segment.bytes": "1000", "retention.ms": "-1"},
    "walk-indexed": {"segment.index.bytes": "48", "index.interval.bytes": "1", "retention.ms": "-1"},
    "walk-stamped": {"message.timestamp.type": "LogAppendTime"},
    "walk-bounded": {"message.timestamp.after.max.ms": "3600000", "message.timestamp.before.max.ms": "3600000"},
    "walk-short": {"max.message.bytes": "700", "retention.ms": "-1"},
    "walk-compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"},
    "walk-uncompressed": {"compression.type": "uncompressed", "retention.ms": "-1"},
    **{f"walk-{codec}": {"compression.type": codec, "retention.ms": "-1"} for codec in ("gzip", "lz4", "zstd")},
}
STEPS: Final = 250
KINDS: Final = {"produce": 8, "fetch": 6, "offsets": 5, "epoch": 1, "delete": 1}
#: Where times of the records begin: now, and long ago.
STARTS_MS: Final = (NOW, NOW, 100_000_000, 1_000)
WRAP: Final = 1 << 31


class Walk:
    """One walk: what is asked next follows from its seed and from the ends of the log, which both sides share."""

    def __init__(self, side: Side, kind: str) -> None:
        self.side, self.topic, self.kind = side, side.topic(kind), kind
        self.chance = random.Random(zlib.crc32(kind.encode()))
        self.begin_ms = self.chance.choice(STARTS_MS)
        self.codecs = [Codec.NONE] if kind in ("walk-small", "walk-indexed") else list(Codec)
        #: producer id -> (epoch, next sequence)
        self.producers = {self.chance.randrange(1_000, 1_000_000): (0, 0) for _ in range(3)}
        self.start, self.end = 0, 0

    def steps(self) -> list[Any]:
        """(what was asked, the answer, where the log starts and ends then) of each step."""
        found = []
        for number in range(STEPS):
            (kind,) = self.chance.choices(list(KINDS), list(KINDS.values()))
            answer = getattr(self, kind)(number)
            self.start, self.end = self._edge(-2), self._edge(-1)
            found.append((number, kind, answer, self.start, self.end))
        return found

    def produce(self, number: int) -> Any:
        chance = self.chance
        how = {"version": chance.choice([7, 8]), "acks": chance.choice([-1, 1])}
        if chance.random() < 0.08:
            return self._produced(BATCHES[chance.choice(sorted(BATCHES))], **how)
        count = chance.choice([1, 1, 2, 3, 5, 10, 40])
        times = [self.begin_ms + chance.choice([0, number * 10, chance.randint(-5000, 5000)]) for _ in range(count)]
        records = [Record(n, time, self._key(), self._value()) for n, time in enumerate(times)]
        return self._produced(build_batch(records, codec=chance.choice(self.codecs), **self._producer(count)), **how)

    def _producer(self, count: int) -> dict[str, int]:
        """None, or one that goes on, sends again, leaves something out, or is of another epoch."""
        chance = self.chance
        if chance.random() < 0.6:
            return {}
        producer = chance.choice(sorted(self.producers))
        epoch, sequence = self.producers[producer]
        turn = chance.random()
        if turn < 0.25:
            sequence = chance.choice([max(0, sequence - count), 0, sequence + 1, WRAP - 1, WRAP - 2])
        epoch = max(-1, epoch + chance.choice([0] * 9 + [1, -1]))
        if turn > 0.15:
            self.producers[producer] = epoch, (sequence + count) % WRAP
        return {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}

    def _key(self) -> bytes | None:
        return None if self.chance.random() < 0.1 else b"k%d" % self.chance.randrange(6)

    def _value(self) -> bytes | None:
        return (
            None if self.chance.random() < 0.1 else bytes(self.chance.choices(b"abc", k=self.chance.choice([0, 9, 99])))
        )

    def _produced(self, data: bytes, *, version: int, acks: int) -> Any:
        return self.side.ask(ApiKey.PRODUCE, version, produce_body(self.topic, data, acks=acks))

    def fetch(self, _: int) -> Any:
        chance = self.chance
        at = chance.choice([chance.randint(self.start, self.end), self.start, self.end, self.end + 3, self.start - 1])
        limits = {
            "partition_max_bytes": chance.choice([1, 100, 500, 1 << 20]),
            "max_bytes": chance.choice([1, 1 << 20]),
        }
        body = fetch_body(
            self.topic,
            at,
            epoch=chance.choice([-1, -1, 0, 1]),
            isolation_level=chance.choice([0, 1]),
            max_wait=20,
            **limits,
        )
        answer = plain(self.side.call(ApiKey.FETCH, chance.choice([4, 7, 9, 10, 11]), body))
        for topic in answer["responses"]:
            for row in topic["partitions"]:
                row["records"] = None if row["records"] is None else self._headers(row["records"])
        return self.side.shared(answer)

    def _headers(self, data: bytes) -> list[Any]:
        """Of the whole batches: Kafka's last one may be cut. Compressed ones are of as many bytes as they are."""
        found, at = [], 0
        while at + HEADER_BYTES <= len(data):
            header = parse_header(data, at)
            if at + header.size > len(data):
                break
            at += header.size
            times = () if self.kind == "walk-stamped" else (header.base_timestamp, header.max_timestamp)
            who = header.producer_id, header.producer_epoch, header.base_sequence
            found.append(
                (header.base_offset, header.count, header.codec.name, times, who, header.partition_leader_epoch)
            )
        return found

    def offsets(self, _: int) -> Any:
        """Times only while nothing was deleted: docs/deviations.md (times below the log start)."""
        by_time = [0, self.begin_ms, self.begin_ms + self.chance.randint(-6000, 6000), NOW + 10**9, -3]
        timestamp = self.chance.choice([-1, -2, *by_time])
        if timestamp not in (-1, -2) and (self.start > 0 or self.kind == "walk-stamped"):
            return "not asked"
        row = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
        topics = [{"name": self.topic, "partitions": [row]}]
        version = self.chance.choice([7, 7, 5, 2, 1]) if timestamp != -3 else 7
        return self.side.ask(ApiKey.LIST_OFFSETS, version, {"replica_id": -1, "isolation_level": 0, "topics": topics})

    def epoch(self, _: int) -> Any:
        row = {
            "partition": 0,
            "leader_epoch": self.chance.choice([-1, 0, 1]),
            "current_leader_epoch": self.chance.choice([-1, 0, 1]),
        }
        topics = [{"topic": self.topic, "partitions": [row]}]
        return self.side.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 3, {"replica_id": -2, "topics": topics})

    def delete(self, _: int) -> Any:
        offset = self.chance.choice([self.chance.randint(self.start, self.end), -1, -2, 1_000_000])
        topics = [{"name": self.topic, "partitions": [{"partition_index": 0, "offset": offset}]}]
        return self.side.ask(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout": 5000})

    def _edge(self, which: int) -> int:
        row = {"partition_index": 0, "timestamp": which, "current_leader_epoch": -1}
        topics = [{"name": self.topic, "partitions": [row]}]
        answer = self.side.call(ApiKey.LIST_OFFSETS, 5, {"replica_id": -1, "isolation_level": 0, "topics": topics})
        return int(answer.topics[0].partitions[0].offset)


def walking_through_records(side: Side) -> Any:
    return {kind: Walk(side, kind).steps() for kind in WALKED}
