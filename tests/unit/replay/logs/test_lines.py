"""Heads of lines in every layout that is taken, and the hours that clocks pass twice."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import product
from zoneinfo import ZoneInfo

import pytest

from broker_sim.replay.logs.lines import BadTime, Clock, Head, head_of, hours_passed_twice

UTC = ZoneInfo("UTC")
NOON = 1_598_961_600_000  # 2020-09-01 12:00:00 UTC

PREFIXES = ("", "kafka-1  | ", "2020-09-01T12:00:01.5Z stdout F ", "2020-09-01T12:00:01Z stderr P ", "[pod/k-0/kafka] ")
#: what stands for 12:00:00 and some ms, and which
TIMES = [
    ("[2020-09-01 12:00:00,110] ", 110),
    ("[2020-09-01T12:00:00.007] ", 7),
    ("[2020-09-01 12:00:00] ", 0),
    ("2020-09-01 12:00:00,110 ", 110),
    ("2020-09-01T12:00:00 ", 0),
]
#: level and message as they are written -> level, message, logger
MESSAGES = [
    ("INFO hello (a.B)", ("INFO", "hello", "a.B")),
    ("WARN  hello (of all) (kafka.Server$Inner)  ", ("WARN", "hello (of all)", "kafka.Server$Inner")),
    ("[DEBUG] hello (a/B_c)", ("DEBUG", "hello", "a/B_c")),
    ("INFO hello (a.B) [main-thread 1]", ("INFO", "hello", "a.B")),
    ("INFO hello [1] (a.B)", ("INFO", "hello [1]", "a.B")),
    ("INFO hello [1]", ("INFO", "hello [1]", None)),
    ("INFO hello (a b)", ("INFO", "hello (a b)", None)),
    ("INFO (a.B)", ("INFO", "(a.B)", None)),
    ("INFO hello(a.B)", ("INFO", "hello(a.B)", None)),
    ("INFO hello", ("INFO", "hello", None)),
    ("INFO  [main] B:77 - hello", ("INFO", "hello", "B")),
    ("INFO  [main] a.B:? - hello (x.Y)", ("INFO", "hello", "x.Y")),
    ("INFO [main] hello", ("INFO", "[main] hello", None)),
]


@pytest.mark.parametrize(("message", "parts"), MESSAGES)
def test_a_head_is_the_same_in_every_layout(message: str, parts: tuple[str, str, str | None]) -> None:
    """Whether its second is the first of its kind or one that was read before."""
    for prefix, (time, ms) in product(PREFIXES, TIMES):
        clock = Clock(UTC)
        for _ in range(2):
            assert head_of(prefix + time + message, clock) == Head(NOON + ms, *parts)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "\tat java.lang.Thread.run(Thread.java:840)",
        "hello [2020-09-01 12:00:00,110] INFO hello (a.B)",
        "[2020-09-01 12:00:00,110]INFO hello (a.B)",
        "[2020-09-01 12:00,110] INFO hello (a.B)",
        "[2020-09-01 12:00:00,1100] INFO hello (a.B)",
        "[2020-09-01 12:00:00,110] hello (a.B)",
    ],
)
def test_what_continues_a_record_is_no_head(line: str) -> None:
    clock = Clock(UTC)
    head_of("[2020-09-01 12:00:00,110] INFO hello (a.B)", clock)
    assert head_of(line, clock) is None


@pytest.mark.parametrize("second", ["2020-13-01 12:00:00", "2020-02-30 12:00:00", "2020-09-01 24:00:01"])
def test_a_time_that_cannot_be_is_told_of(second: str) -> None:
    with pytest.raises(BadTime):
        head_of(f"[{second},110] INFO hello (a.B)", Clock(UTC))


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
def test_an_hour_is_passed_twice_where_local_times_come_again(zone: str) -> None:
    """Recounted by going through a year."""
    at, twice = datetime(2024, 1, 1, tzinfo=UTC), set[str]()
    seen: set[datetime] = set()
    while at.year < 2025:
        local = at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        if local in seen:
            twice.add(f"{local:%Y-%m-%d %H}")
        seen.add(local)
        at += timedelta(minutes=30)
    found = hours_passed_twice(ZoneInfo(zone))
    assert {hour for hour in found if hour[:4] == "2024"} == twice
    assert list(found) == sorted(set(found))
    years = {hour[:4] for hour in found}
    assert years == ({str(year) for year in range(2011, 2050)} if twice else set())


def test_a_local_time_that_never_was_is_taken_with_the_offset_before() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    for second, utc in (("2024-03-31 02:30:00", "2024-03-31 01:30:00"), ("2024-03-31 03:30:00", "2024-03-31 01:30:00")):
        expected = int(datetime.fromisoformat(utc).replace(tzinfo=UTC).timestamp()) * 1000 + 5
        clock = Clock(berlin)
        assert clock.ms_if_known(second, "005") is None
        assert clock.ms(second, "005") == clock.ms(second, "005") == expected
        assert clock.ms_if_known(second, "005") in (None, expected)


def test_any_number_of_seconds_may_be_read() -> None:
    """And what is kept of them does not grow with a file."""
    clock, begin = Clock(UTC), datetime(2020, 9, 1, 12)
    for n in range(5_000):
        assert clock.ms(str(begin + timedelta(seconds=n)), "000") == NOON + n * 1000
    assert sum(clock.ms_if_known(str(begin + timedelta(seconds=n)), "000") is not None for n in range(5_000)) < 4_100
