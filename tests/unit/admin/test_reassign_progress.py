"""The view of a reassignment: how fast it is, what it waits for, and how that is shown."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from controller.admin.cluster.queries import PartitionInfo
from controller.admin.reassignment.progress import DirCopy, Progress, Tally, waits
from controller.admin.reassignment.progress_view import ProgressView, describe, panel
from controller.wire.types import BrokerId, PartitionReplica, ReplicaAssignment, TopicPartition

FOO_0, FOO_1 = TopicPartition("foo", 0), TopicPartition("foo", 1)


def ids(*brokers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))


def moving(*adding: int) -> ReplicaAssignment:
    return ReplicaAssignment(replicas=ids(1, 2, *adding), adding_replicas=ids(*adding), removing_replicas=ids(2))


def state(leader: int | None, *isr: int) -> PartitionInfo:
    return PartitionInfo(
        partition=0, leader=None if leader is None else BrokerId(leader), replicas=ids(1, 2, 3), isr=ids(*isr)
    )


def sizes(partition: TopicPartition, **known: int) -> dict[PartitionReplica, int]:
    return {PartitionReplica(partition, BrokerId(int(b[1:]))): size for b, size in known.items()}


def test_what_each_partition_waits_for() -> None:
    running = {FOO_0: moving(3), FOO_1: moving(3)}
    told = waits(
        running,
        {FOO_0: state(1, 1, 2), FOO_1: state(1, 1, 2)},
        sizes(FOO_0, b1=9000, b3=8000) | sizes(FOO_1, b1=5000, b3=1000),
        ids(1, 2, 3),
    )
    assert told == ("foo-1 waits for broker 3 (1.0 kB of 5.0 kB)", "foo-0 waits for broker 3 (8.0 kB of 9.0 kB)")


def test_other_things_to_wait_for() -> None:
    def one(at: PartitionInfo | None, *live: int) -> str:
        states = {} if at is None else {FOO_0: at}
        return waits({FOO_0: moving(3)}, states, sizes(FOO_0, b1=10), ids(*live))[0]

    assert one(state(1, 1, 2), 1, 2) == "foo-0 waits for broker 3, which is not alive"
    assert one(state(1, 1, 2), 1, 2, 3) == "foo-0 waits for broker 3 to begin"
    assert one(state(None), 1, 2, 3) == one(None, 1, 2, 3) == "foo-0 waits for a leader to copy from"
    assert one(state(1, 1, 2, 3), 1, 2, 3) == "foo-0 waits for the controller"


#: sizes by broker at each look, where 1 leads and 3 is added: who does not answer is as large as it was -> bytes done
LOOKS = [
    [({1: 1000, 3: 200}, 200), ({1: 1000}, 200), ({1: 1000, 3: 300}, 300)],
    [({1: 1000, 3: 200}, 200), ({3: 400}, 400), ({}, 400), ({1: 2000, 3: 1500}, 1500)],
    [({3: 400}, 0), ({1: 1000}, 400)],
    [({1: 1000}, 0), ({3: 7}, 7)],
]


@pytest.mark.parametrize("looks", LOOKS)
def test_a_broker_that_does_not_answer_has_what_it_had(looks: list[tuple[dict[int, int], int]]) -> None:
    tally = Tally(frozenset({FOO_0}))
    done = [
        tally.see(at, {FOO_0: moving(3)}, {FOO_0: BrokerId(1)}, sizes(FOO_0, **{f"b{b}": n for b, n in known.items()}))
        for at, (known, _) in enumerate(looks)
    ]
    assert [progress.bytes_done for progress in done] == [copied for _, copied in looks]


#: when it was looked, and what the copy then had -> bytes/s at each look
RATES = [
    ([(5, 0)], [None]),
    ([(5, 0), (5, 100), (6, 100), (7, 300)], [None, None, 100, 150]),
    ([(0, 400), (2, 100), (4, 800)], [None, 0, 100]),
    # A throttle lets much through at once, and then nothing: the last half minute counts.
    ([(10 * n, 600 * (n // 2)) for n in range(8)], [None, 0, 30, 20, 40, 20, 40, 20]),
    ([(10 * n, min(300, 100 * n)) for n in range(8)], [None, 10, 10, 10, 20 / 3, 10 / 3, 0, 0]),
    ([(0, 0), (100, 1000), (101, 1000), (129, 1000), (130, 1000)], [None, 10, 1000 / 101, 1000 / 129, 0]),
    ([(0, 0), (100, 1000), (130, 1000)], [None, 10, 0]),
]


@pytest.mark.parametrize(("looks", "rates"), RATES)
def test_the_rate_is_that_of_the_last_half_minute(looks: list[tuple[float, int]], rates: list[float | None]) -> None:
    tally = Tally(frozenset({FOO_0}))
    seen = [
        tally.see(at, {FOO_0: moving(3)}, {FOO_0: BrokerId(1)}, sizes(FOO_0, b1=10_000, b3=copied))
        for at, copied in looks
    ]
    assert [progress.bytes_per_s for progress in seen] == pytest.approx(rates)
    left = [None if not rate else (10_000 - copied) / rate for rate, (_, copied) in zip(rates, looks, strict=True)]
    assert [progress.seconds_left for progress in seen] == pytest.approx(left)


#: what brokers 1, which leads, and 3, which is added, tell at looks a second apart; who is missing is silent -> bytes/s
FIRST_HEARD = [
    ([{1: 9000}, {1: 9000, 3: 5000}, {1: 9000, 3: 5100}], [None, None, 100]),
    ([{3: 5000}, {1: 9000, 3: 5000}, {1: 9000, 3: 5100}], [None, None, 100]),
    ([{}, {1: 9000}, {3: 5000}, {3: 5200}], [None, None, None, 200]),
    ([{1: 9000, 3: 5000}, {1: 9000}, {1: 9000, 3: 5200}], [None, 0, 100]),
]


@pytest.mark.parametrize(("looks", "rates"), FIRST_HEARD)
def test_what_a_silent_broker_tells_first_was_not_copied_since(
    looks: list[dict[int, int]], rates: list[float | None]
) -> None:
    """Else the end would seem to be near for as long as the rate looks back."""
    tally = Tally(frozenset({FOO_0}))
    seen = [
        tally.see(
            at,
            {FOO_0: moving(3)},
            {FOO_0: BrokerId(1)},
            sizes(FOO_0, **{f"b{broker}": size for broker, size in told.items()}),
            silent=ids(*({1, 3} - told.keys())),
        )
        for at, told in enumerate(looks)
    ]
    assert [progress.bytes_per_s for progress in seen] == rates


#: bytes done and in all, partitions done and in all -> percent
PERCENTS = [
    ((0, 0, 0, 0), 100), ((0, 0, 1, 3), 33), ((0, 0, 3, 3), 100), ((0, 10, 1, 1), 0), ((199, 200, 0, 1), 99),
    ((300, 200, 0, 1), 100), ((1, 1000, 2, 3), 0),
]  # fmt: skip


@pytest.mark.parametrize(("numbers", "percent"), PERCENTS)
def test_percents_are_of_bytes_and_where_there_are_none_of_partitions(
    numbers: tuple[int, int, int, int], percent: int
) -> None:
    done, total, partitions, every = numbers
    progress = Progress(bytes_done=done, bytes_total=total, partitions_done=partitions, partitions_total=every)
    assert (progress.percent, progress.is_done) == (percent, partitions == every)


HALF = Progress(
    bytes_done=500, bytes_total=1000, partitions_done=1, partitions_total=11, bytes_per_s=0.0,
    waits_for=tuple(f"foo-{n} waits for broker 3 to begin" for n in range(10)),
)  # fmt: skip


def drawn(progress: Progress) -> str:
    out = io.StringIO()
    Console(file=out, width=80).print(panel("Reassigning", progress))
    return out.getvalue()


def test_a_terminal_shows_a_bar_and_who_is_waited_for() -> None:
    text = drawn(HALF)
    assert "━" in text and "50%" in text and "500 bytes of 1.0 kB" in text and "1 of 11 partitions done" in text
    assert text.count("waits for") == 8 and "and 2 more" in text
    assert "nothing is being copied; kwob why foo-0 tells why" in text
    done = Progress(bytes_done=1000, bytes_total=1000, partitions_done=2, partitions_total=2, bytes_per_s=10.0)
    assert "100%" in drawn(done) and "left" not in drawn(done)
    assert "more" not in drawn(replace(HALF, waits_for=HALF.waits_for[:8]))
    assert "why" not in drawn(replace(HALF, waits_for=()))


_WAITS = ("foo-0 waits for the controller", "foo-1 waits for broker 3 to begin")
#: what differs from the half of 1000 bytes, 1 of 2 partitions -> the line in a pipe, the lines below a terminal's bar
SHOWN: list[tuple[dict[str, Any], str, list[str]]] = [
    ({}, "500 bytes of 1.0 kB, 1 of 2 partitions done", ["500 bytes of 1.0 kB", "1 of 2 partitions done"]),
    (
        {"bytes_per_s": 7.9, "waits_for": _WAITS[:1]},
        "500 bytes of 1.0 kB, 7 bytes/s, 1 of 2 partitions done, about 1:03 left; foo-0 waits for the controller",
        ["500 bytes of 1.0 kB  7 bytes/s, about 1:03 left", "1 of 2 partitions done", "  " + _WAITS[0]],
    ),
    (
        {"bytes_per_s": 0.0, "waits_for": _WAITS},
        "500 bytes of 1.0 kB, 0 bytes/s, 1 of 2 partitions done; foo-0 waits for the controller and 1 more",
        [
            "500 bytes of 1.0 kB  0 bytes/s",
            "1 of 2 partitions done",
            *("  " + line for line in _WAITS),
            "nothing is being copied; kwob why foo-0 tells why",
        ],
    ),
    (
        {"bytes_done": 1000, "bytes_per_s": 0.0, "waits_for": _WAITS},
        "1.0 kB of 1.0 kB, 0 bytes/s, 1 of 2 partitions done; foo-0 waits for the controller and 1 more",
        ["1.0 kB of 1.0 kB  0 bytes/s", "1 of 2 partitions done", *("  " + line for line in _WAITS)],
    ),
    (
        {"partitions_done": 2, "bytes_per_s": 100.0, "waits_for": _WAITS[1:]},
        "500 bytes of 1.0 kB, 100 bytes/s, 2 of 2 partitions done",
        ["500 bytes of 1.0 kB  100 bytes/s", "2 of 2 partitions done", "  " + _WAITS[1]],
    ),
]


@pytest.mark.parametrize(("differs", "line", "below"), SHOWN)
def test_what_is_shown(differs: dict[str, Any], line: str, below: list[str]) -> None:
    values: dict[str, Any] = {"bytes_done": 500, "bytes_total": 1000, "partitions_done": 1, "partitions_total": 2}
    progress = Progress(**values | differs)
    assert describe(progress) == line
    assert [text.rstrip() for text in drawn(progress).splitlines()[1:]] == below


def test_a_pipe_gets_a_line_for_each_few_percent_and_each_partition_that_is_done() -> None:
    out = io.StringIO()
    with ProgressView(out, "Moving") as view:
        for done, partitions in ((0, 0), (40, 0), (49, 0), (50, 0), (99, 0), (99, 1), (120, 1), (1000, 2), (1000, 2)):
            values = {"bytes_done": done, "bytes_total": 1000, "partitions_done": partitions, "partitions_total": 2}
            view.update(Progress(**values, bytes_per_s=1.0))
    assert [line.split("%")[0] for line in out.getvalue().splitlines()] == [
        f"Moving {percent:>3}" for percent in (0, 5, 9, 12, 100)
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_same_view_on_a_terminal_and_through_a_pipe() -> None:
    for out, mark in ((Terminal(), "━"), (io.StringIO(), "Reassigning  50%  500 bytes of 1.0 kB, 0 bytes/s, 1 of 11")):
        with ProgressView(out) as view:
            view.update(HALF)
        assert mark in out.getvalue()


def test_a_pipe_gets_a_line_after_a_standstill() -> None:
    """Ten seconds without a byte."""
    out = io.StringIO()
    with ProgressView(out) as view:
        for rate, looks, lines in ((0.0, 19, 1), (5.0, 1, 1), (0.0, 19, 1), (0.0, 1, 2), (0.0, 50, 2)):
            for _ in range(looks):
                view.update(replace(HALF, bytes_per_s=rate))
            assert len(out.getvalue().splitlines()) == lines


def test_a_move_whose_broker_is_silent_is_not_done() -> None:
    tally = Tally(frozenset({FOO_0}))
    replica = PartitionReplica(FOO_0, BrokerId(1))
    under_way = DirCopy(copied_bytes=4, full_bytes=10, is_over=False)
    assert not tally.see(0.0, {}, {}, {}, {replica: under_way}).is_done
    silent = tally.see(1.0, {}, {}, {}, {})
    assert (silent.bytes_done, silent.bytes_total, silent.is_done) == (4, 10, False)
    empty = replace(under_way, copied_bytes=0, full_bytes=0)
    for copy, is_done in ((empty, False), (replace(empty, is_over=True), True)):  # nor one of an empty log
        assert Tally(frozenset({FOO_0})).see(0.0, {}, {}, {}, {replica: copy}).is_done is is_done


def test_a_partition_that_was_done_before_the_first_look_counts_with_its_log() -> None:
    tally = Tally(frozenset({FOO_0, FOO_1}), added={p: frozenset(ids(3)) for p in (FOO_0, FOO_1)})
    assert tally.unseen == {FOO_0, FOO_1}
    leaders = {FOO_0: BrokerId(1), FOO_1: BrokerId(2)}
    first = tally.see(0.0, {FOO_1: moving(3)}, leaders, sizes(FOO_0, b1=700) | sizes(FOO_1, b2=300, b3=100))
    assert (first.bytes_done, first.bytes_total, tally.unseen) == (800, 1000, frozenset())
    grown = tally.see(1.0, {}, leaders, sizes(FOO_0, b1=900) | sizes(FOO_1, b2=300, b3=300))
    assert (grown.bytes_done, grown.bytes_total) == (1000, 1000), "what comes after its end is no copy"


def test_a_replica_that_is_made_in_its_directory_counts_once() -> None:
    """Nothing is copied between directories: only the reassignment's bytes are. Begun elsewhere, both count."""
    replica = PartitionReplica(FOO_0, BrokerId(3))
    under_way, over = (DirCopy(copied_bytes=0, full_bytes=n, is_over=n > 0) for n in (0, 10))
    for copy, total in ((under_way, 10), (DirCopy(copied_bytes=2, full_bytes=5, is_over=False), 20)):
        tally = Tally(frozenset({FOO_0}))
        tally.see(0.0, {FOO_0: moving(3)}, {FOO_0: BrokerId(1)}, sizes(FOO_0, b1=10, b3=5), {replica: copy})
        last = tally.see(1.0, {}, {FOO_0: BrokerId(1)}, {}, {replica: over})
        assert (last.bytes_done, last.bytes_total, last.is_done) == (total, total, True)


def test_on_kraft_the_words_are_krafts() -> None:
    def one(at: PartitionInfo, *live: int) -> str:
        return waits({FOO_0: moving(3)}, {FOO_0: at}, sizes(FOO_0, b1=10, b3=1), ids(*live), is_kraft=True)[0]

    fenced = "foo-0 waits for broker 3, which is fenced: no session, so nothing is copied to it"
    assert one(state(1, 1, 2), 1, 2) == fenced
    assert one(state(1, 1, 2, 3), 1, 2, 3) == "foo-0 waits for the active controller of the quorum"
