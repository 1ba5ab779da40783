"""`kwob load`: sends records at a rate, reads them in groups, tells what it sees, and at the end what is missing."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from controller.local.flags import EXIT_FAILED, EXIT_USAGE, add_data, count, make_parser, plural, seconds
from controller.local.load import client
from controller.local.load.flags import add_cluster, cluster_of, properties
from controller.local.load.measure import KEYS_MAX, RATE_MAX, THREADS_MAX, Ids, missing, parse_size
from controller.local.load.run import Load, LoadPlan, Tally
from controller.wire.types import TopicPartition

_SHOWN: Final = 5
_READ_PATIENCE_S: Final = 15.0


def main(argv: Sequence[str]) -> int:
    """`kwob load`. Returns the exit code (see --help)."""
    options = command_line().parse_args(argv)
    try:
        plan = _plan(options, cluster_of(options))
        partitions = client.partition_counts(plan.bootstrap, plan.topics)
        every = [TopicPartition(topic, n) for topic, many in sorted(partitions.items()) for n in range(many)]
        starts = {tp: high for tp, (_, high) in client.ends(plan.bootstrap, every).items()}
        load = Load(plan, starts)
        load.start()
    except ValueError as error:
        print(f"kwob load: {error}", file=sys.stderr)
        return EXIT_USAGE
    except client.LoadError as error:
        print(f"kwob load: {error}", file=sys.stderr)
        return EXIT_FAILED
    began_s = time.monotonic()
    quiet = options.json
    _watch(load, options.duration, options.every, quiet=quiet)
    _say("ending: waiting for what is under way", quiet=quiet)
    load.join()
    lasted_s = time.monotonic() - began_s
    lost: Ids | None = None
    trouble = ""
    if plan.acks != "0" and not options.no_check:
        _say("reading every record back", quiet=quiet)
        try:
            read = client.read_ids(plan.bootstrap, load.run_id, starts, patience_s=_READ_PATIENCE_S)
            lost = missing(load.tally.ids, read)
        except client.LoadError as error:
            trouble = str(error)
    summary = summarize(load.tally, lasted_s, lost, trouble)
    print(json.dumps(summary) if quiet else summary_text(summary, plan))
    return EXIT_FAILED if lost or trouble or not load.tally.acknowledged else 0


def _plan(options: argparse.Namespace, bootstrap: str) -> LoadPlan:
    """Raises: ValueError."""
    try:
        size_min, size_max = parse_size(options.size)
    except ValueError as error:
        raise ValueError(f"--size {error}") from error
    topics = tuple(dict.fromkeys(name for text in options.topic for name in text.split(",") if name))
    if not topics:
        raise ValueError("--topic names no topic")
    if not options.every:
        raise ValueError("--every: expected a time above 0")
    return LoadPlan(
        bootstrap=bootstrap,
        topics=topics,
        rate=options.rate,
        size_min=size_min,
        size_max=size_max,
        keys=options.keys,
        acks=options.acks,
        producers=options.producers,
        groups=options.groups,
        consumers=options.consumers,
        seed=options.seed,
        producer_settings=properties(options.producer_property),
        consumer_settings=properties(options.consumer_property),
    )


def _watch(load: Load, duration_s: float, every_s: float, *, quiet: bool) -> None:
    """One line per stretch until the time is over or Ctrl-C."""
    began_s = time.monotonic()
    before = (0, 0, 0, 0, 0)
    _say("  time   sent/s  acked/s  p50 ms  p99 ms  max ms   read/s  failed  errors", quiet=quiet)
    try:
        while (passed_s := time.monotonic() - began_s) < duration_s:
            step_s = min(every_s, duration_s - passed_s)
            time.sleep(step_s)
            tally = load.tally
            read = sum(tally.consumed.values())
            now = (tally.sent, tally.acknowledged, read, tally.failed, sum(tally.errors.values()))
            sent, acked, got, failed, errors = (a - b for a, b in zip(now, before, strict=True))
            recent, before = tally.take_latencies(), now
            line = f"{time.monotonic() - began_s:5.0f}s {sent / step_s:8.0f} {acked / step_s:8.0f}"
            line += f" {recent.quantile(0.5):7.1f} {recent.quantile(0.99):7.1f} {recent.max_ms:7.0f}"
            _say(f"{line} {got / step_s:8.0f} {failed:7} {errors:7}", quiet=quiet)
    except KeyboardInterrupt:
        _say("", quiet=quiet)


def _say(line: str, *, quiet: bool) -> None:
    if not quiet:
        print(line, flush=True)


def summarize(tally: Tally, lasted_s: float, lost: Ids | None, trouble: str = "") -> dict[str, Any]:
    """What `--json` prints. `missing` is None when nothing was read back."""
    return {
        "seconds": round(lasted_s, 1),
        "sent": tally.sent,
        "acknowledged": tally.acknowledged,
        "failed": tally.failed,
        "errors": dict(tally.errors.most_common()),
        "latency_ms": {
            **{f"p{n}": round(tally.latencies.quantile(n / 100), 1) for n in (50, 95, 99)},
            "max": round(tally.latencies.max_ms, 1),
        },
        "pauses": [
            {"topic": p.partition.topic, "partition": p.partition.partition, "seconds": round(p.length_s, 2),
             "began_s": round(p.began_s, 2)}
            for p in tally.pauses.longest()
        ],
        "consumed": dict(tally.consumed),
        "group_pause_s": {group: round(pause, 2) for group, pause in tally.group_pause_s.items()},
        "missing": None if lost is None else sum(map(len, lost.values())),
        "missing_by_partition": {str(tp): len(ids) for tp, ids in sorted((lost or {}).items())},
        "not_checked": trouble,
    }  # fmt: skip


def summary_text(summary: dict[str, Any], plan: LoadPlan) -> str:
    """The same for people."""
    took = summary["latency_ms"]
    lines = [
        f"{plural(summary['acknowledged'], 'record')} acknowledged (acks={plan.acks}), {summary['failed']} failed, in "
        f"{summary['seconds']:g} s",
        f"latency: half within {took['p50']:g} ms, 99 of 100 within {took['p99']:g} ms, the longest {took['max']:g} ms",
    ]
    if summary["errors"]:
        lines.append("errors: " + ", ".join(f"{name} {number}" for name, number in summary["errors"].items()))
    for pause in summary["pauses"][:_SHOWN]:
        lines.append(
            f"pause: {pause['topic']}-{pause['partition']} acknowledged nothing for {pause['seconds']:g} s, from "
            f"{pause['began_s']:g} s on"
        )
    if len(summary["pauses"]) > _SHOWN:
        lines.append(f"       and {plural(len(summary['pauses']) - _SHOWN, 'partition')} more")
    for group, records in summary["consumed"].items():
        lines.append(
            f"group {group}: {plural(records, 'record')}, the longest pause {summary['group_pause_s'][group]:g} s"
        )
    return "\n".join([*lines, _verdict(summary, plan)])


def _verdict(summary: dict[str, Any], plan: LoadPlan) -> str:
    if summary["not_checked"]:
        return f"NOT CHECKED: {summary['not_checked']}"
    if summary["missing"] is None:
        return "nothing was read back: with acks=0 nothing is promised" if plan.acks == "0" else "nothing was read back"
    if summary["missing"]:
        where = ", ".join(f"{tp} {number}" for tp, number in list(summary["missing_by_partition"].items())[:_SHOWN])
        return f"MISSING: {plural(summary['missing'], 'acknowledged record')} cannot be read back: {where}"
    return "no acknowledged record is missing"


def command_line() -> argparse.ArgumentParser:
    """The parser."""
    parser = make_parser(
        "kwob load",
        "Sends records to topics at a rate, reads them with consumer groups, and at the end reads everything back: is "
        "anything missing that was acknowledged? Ctrl-C ends it early, with its summary.",
        examples=[
            "kwob load --topic orders",
            "kwob load --topic orders,payments --rate 2000 --size 100-2000 --keys 500 --duration 2m --groups 2",
            "kwob load --topic orders --acks 1 --producer-property linger.ms=50",
        ],
        exit_codes="0 no acknowledged record is missing; 1 some are, or nothing could be sent or read; "
        "2 wrong arguments",
    )
    add_cluster(parser)
    add_data(parser)
    parser.add_argument("--topic", action="append", required=True, metavar="T[,T]", help="topics that there are")
    parser.add_argument(
        "--rate", type=_rate, default=100.0, metavar="N", help="records per second in all; 0: no limit (default: 100)"
    )
    parser.add_argument("--size", default="100", metavar="N[-M]", help="bytes of a value (default: 100)")
    parser.add_argument(
        "--keys", type=count(0, KEYS_MAX), default=0, metavar="N", help="different keys (default: no key)"
    )
    parser.add_argument("--acks", choices=["all", "1", "0"], default="all", help="default: all, with idempotence")
    parser.add_argument("--duration", type=seconds, default=30.0, metavar="TIME", help="default: 30s")
    parser.add_argument("--producers", type=count(1, THREADS_MAX), default=1, metavar="N", help="default: 1")
    parser.add_argument(
        "--groups", type=count(0, THREADS_MAX), default=1, metavar="N", help="consumer groups (default: 1)"
    )
    parser.add_argument(
        "--consumers", type=count(1, THREADS_MAX), default=1, metavar="N", help="in each group (default: 1)"
    )
    parser.add_argument("--every", type=seconds, default=1.0, metavar="TIME", help="between two lines (default: 1s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of sizes, keys and values (default: 0)")
    for side in ("producer", "consumer"):
        parser.add_argument(
            f"--{side}-property", action="append", default=[], metavar="NAME=VALUE",
            help=f"a setting of the {side}, as librdkafka names it; may be repeated",
        )  # fmt: skip
    parser.add_argument("--no-check", action="store_true", help="do not read everything back at the end")
    parser.add_argument("--json", action="store_true", help="only the summary, as one JSON object")
    return parser


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate < RATE_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of records per second")
    return rate
