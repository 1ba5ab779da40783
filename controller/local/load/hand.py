"""`kwob produce` and `kwob consume`: single records, for hands."""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, Message, TopicPartition

from controller.local.flags import EXIT_FAILED, EXIT_USAGE, add_data, count, make_parser, seconds
from controller.local.load import client
from controller.local.load.flags import add_cluster, cluster_of, properties

#: How long the library may need to settle the last records, beyond the time that each of them has.
_FLUSH_S: Final = 60.0
_POLL_S: Final = 0.2


# -- produce -----------------------------------------------------------------------------------------------------------


def produce_main(argv: Sequence[str]) -> int:
    """`kwob produce`. Returns the exit code (see --help)."""
    options = produce_command_line().parse_args(argv)
    try:
        bootstrap = cluster_of(options)
        client.partition_counts(bootstrap, [options.topic])
        more = {"message.timeout.ms": str(round(options.timeout * 1000)), **properties(options.producer_property)}
        failed = _produce(options, client.producer(bootstrap, acks=options.acks, more=more))
    except ValueError as error:
        print(f"kwob produce: {error}", file=sys.stderr)
        return EXIT_USAGE
    except client.LoadError as error:
        print(f"kwob produce: {error}", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_FAILED if failed else 0


def _produce(options: argparse.Namespace, producing: Any) -> int:
    """Sends each value; tells where each came to lie. Returns how many failed."""
    failed = 0

    def settled(error: KafkaError | None, message: Message) -> None:
        nonlocal failed
        if error is not None:
            failed += 1
            print(f"kwob produce: {client.error_text(error)}", file=sys.stderr)
        else:
            print(f"{message.topic()}-{message.partition()} offset {message.offset()}", flush=True)

    partition = {} if options.partition is None else {"partition": options.partition}
    for key, value in _records(options):
        try:
            _queue(producing, options.topic, value, key=key, on_delivery=settled, **partition)
        except KafkaException as error:  # the library refuses it, as one that is too large
            failed += 1
            print(f"kwob produce: {client.error_text(error.args[0])}", file=sys.stderr)
        producing.poll(0)
    left = producing.flush(options.timeout + _FLUSH_S)
    return failed + int(left)


def _queue(producing: Any, topic: str, value: bytes, **more: Any) -> None:
    """Hands a record to the library, once it has room. Raises: KafkaException."""
    while True:
        try:
            producing.produce(topic, value, **more)
            return
        except BufferError:
            producing.poll(_POLL_S)


def _records(options: argparse.Namespace) -> Iterable[tuple[bytes | None, bytes]]:
    """Keys and values, byte by byte as they were given, text or not."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    for text in options.value or (line.rstrip("\n") for line in sys.stdin):
        key, separator, value = text.partition(options.key_separator) if options.key_separator else ("", "", text)
        given, sent = (key, value) if separator else (options.key, text)
        yield None if given is None else _bytes(given), _bytes(sent)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def produce_command_line() -> argparse.ArgumentParser:
    """The parser."""
    parser = make_parser(
        "kwob produce",
        "Sends records: those given, else one per line of standard input. Tells partition and offset of each.",
        examples=["kwob produce --topic orders hello", "kwob produce --topic orders --key-separator : < records.txt"],
        exit_codes="0 all are acknowledged; 1 not all; 2 wrong arguments",
    )
    add_cluster(parser)
    add_data(parser)
    parser.add_argument("value", nargs="*", metavar="VALUE", help="values (default: lines of standard input)")
    parser.add_argument("--topic", required=True, metavar="T")
    parser.add_argument("--key", metavar="K", help="of all records")
    parser.add_argument("--key-separator", metavar="S", help="what stands before it is the key")
    parser.add_argument("--partition", type=count(0, 2**31 - 1), metavar="N", help="default: by key, else any")
    parser.add_argument("--acks", choices=["all", "1", "0"], default="all", help="default: all")
    parser.add_argument("--timeout", type=seconds, default=30.0, metavar="TIME", help="of each record (default: 30s)")
    parser.add_argument(
        "--producer-property", action="append", default=[], metavar="NAME=VALUE",
        help="a setting, as librdkafka names it; may be repeated",
    )  # fmt: skip
    return parser


# -- consume -----------------------------------------------------------------------------------------------------------


def consume_main(argv: Sequence[str]) -> int:
    """`kwob consume`. Returns the exit code (see --help)."""
    options = consume_command_line().parse_args(argv)
    if options.group is not None and (options.partition, options.offset) != (None, None):
        print("kwob consume: a member of a group is given its partitions and offsets; leave out --group, or "
              "--partition and --offset", file=sys.stderr)  # fmt: skip
        return EXIT_USAGE
    try:
        bootstrap = cluster_of(options)
        partitions = client.partition_counts(bootstrap, [options.topic])[options.topic]
        if options.partition is not None and options.partition >= partitions:
            raise client.LoadError(f"{options.topic} has {partitions} partitions, from 0 on")
        own = {
            "group.id": options.group or "kwob-consume",
            "enable.auto.commit": options.group is not None,
            "auto.offset.reset": "earliest" if options.from_beginning else "latest",
            "enable.partition.eof": True,
        }
        reading = client.consumer(bootstrap, {**own, **properties(options.consumer_property)})
        try:
            ids = range(partitions) if options.partition is None else [options.partition]
            return _consume(options, reading, ids)
        finally:
            reading.close()
    except ValueError as error:
        print(f"kwob consume: {error}", file=sys.stderr)
        return EXIT_USAGE
    except (client.LoadError, KafkaException) as error:
        text = client.error_text(error.args[0]) if isinstance(error, KafkaException) else error
        print(f"kwob consume: {text}", file=sys.stderr)
        return EXIT_FAILED


def _consume(options: argparse.Namespace, reading: Any, partitions: Iterable[int]) -> int:
    """Prints records until there are enough, the ends are reached, or the time is over."""
    at_end: set[int] = set()
    if options.group is not None:
        reading.subscribe([options.topic])
    else:
        start = OFFSET_BEGINNING if options.from_beginning else OFFSET_END
        at = start if options.offset is None else options.offset
        reading.assign([TopicPartition(options.topic, number, at) for number in partitions])
    shown, limit_s = 0, None if options.timeout is None else time.monotonic() + options.timeout
    while options.max_messages is None or shown < options.max_messages:
        message = reading.poll(_POLL_S)
        if message is None:
            if limit_s is not None and time.monotonic() > limit_s:
                break
            continue
        error = message.error()
        if error is None:
            print(_line(message, as_json=options.json), flush=True)
            shown += 1
            limit_s = None if options.timeout is None else time.monotonic() + options.timeout
        elif error.code() == KafkaError._PARTITION_EOF:
            at_end.add(message.partition())
            # a member of a group has some of the partitions: those of the others never end here
            mine = {own.partition for own in reading.assignment()}
            if options.until_end and mine and mine <= at_end:
                break
        else:
            print(f"kwob consume: {client.error_text(error)}", file=sys.stderr)
    return 0


def _line(message: Message, *, as_json: bool) -> str:
    _, at_ms = message.timestamp()
    key, value = _text(message.key()), _text(message.value())
    if as_json:
        row = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
        return json.dumps({**row, "timestamp": at_ms, "key": key, "value": value}, ensure_ascii=False)
    when = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    key_told = "" if key is None else f" {key}"
    where = f"{message.topic()}-{message.partition()} {message.offset()}"
    return f"{where} {when}{key_told} {'(null)' if value is None else value}"


def _text(data: bytes | str | None) -> str | None:
    return data.decode("utf-8", "backslashreplace") if isinstance(data, bytes) else data


def consume_command_line() -> argparse.ArgumentParser:
    """The parser."""
    parser = make_parser(
        "kwob consume",
        "Prints records of a topic as they come: partition, offset, time (UTC), key, value. Until Ctrl-C, or as said.",
        examples=[
            "kwob consume --topic orders --from-beginning --until-end",
            "kwob consume --topic orders --group billing --max-messages 10 --json",
        ],
        exit_codes="0 as asked; 1 the topic cannot be read; 2 wrong arguments; 130 Ctrl-C",
    )
    add_cluster(parser)
    add_data(parser)
    parser.add_argument("--topic", required=True, metavar="T")
    parser.add_argument("--from-beginning", action="store_true", help="default: only what comes from now on")
    parser.add_argument("--group", metavar="G", help="as a member of this consumer group, which commits")
    parser.add_argument("--partition", type=count(0, 2**31 - 1), metavar="N", help="only this one (without --group)")
    parser.add_argument("--offset", type=count(0, 2**62), metavar="N", help="from this offset on (without --group)")
    parser.add_argument("--max-messages", type=count(1, 2**62), metavar="N", help="end after so many")
    parser.add_argument("--until-end", action="store_true", help="end where the partitions end now")
    parser.add_argument("--timeout", type=seconds, metavar="TIME", help="end when nothing comes for so long")
    parser.add_argument("--json", action="store_true", help="one JSON object per record")
    parser.add_argument(
        "--consumer-property", action="append", default=[], metavar="NAME=VALUE",
        help="a setting, as librdkafka names it; may be repeated",
    )  # fmt: skip
    return parser
