"""Groups of real consumers, each in its own process: they share, crash, come back, leave, and every record is read."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .clients import CLIENTS
from .test_clients import create, records

pytestmark = [pytest.mark.zk, pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
LIMIT_S = 60.0
PARTITIONS = 6
KINDS = [
    ("confluent-kafka", "range"),
    ("confluent-kafka", "roundrobin"),
    ("confluent-kafka", "cooperative-sticky"),
    ("kafka-python", "range"),
    ("kafka-python", "roundrobin"),
    ("kafka-python", "sticky"),
    ("kafka-python", "cooperative-sticky"),
    ("aiokafka", "range"),
    ("aiokafka", "roundrobin"),
    ("aiokafka", "sticky"),
]


class Member:
    """A process of `member.py`."""

    def __init__(self, client: str, bootstrap: str, group: str, topic: str, assignor: str, instance: str = "-") -> None:
        program = Path(__file__).with_name("member.py")
        command = [sys.executable, str(program), client, bootstrap, group, topic, assignor, instance]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assignments: list[list[int]] = []
        self.values: list[str] = []
        self.errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for text in self.process.stdout:
            line = json.loads(text)
            self.values += line.get("values", ())
            if "assigned" in line:
                self.assignments.append(line["assigned"])

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors += self.process.stderr

    @property
    def assigned(self) -> list[int]:
        return self.assignments[-1] if self.assignments else []

    def kill(self) -> None:
        self.process.kill()
        self._end()

    def leave(self) -> None:
        self.process.terminate()
        self._end()

    def _end(self) -> None:
        self.process.wait(LIMIT_S)
        for reader in self._readers:
            reader.join(LIMIT_S)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def member(bootstrap: str) -> Iterator[Callable[..., Member]]:
    started: list[Member] = []

    def start(client: str, group: str, topic: str, assignor: str, instance: str = "-") -> Member:
        started.append(Member(client, bootstrap, group, topic, assignor, instance))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.kill()


def until(what: str, holds: Callable[[], Any], *members: Member) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        if time.monotonic() > deadline:
            seen = [(m.assignments, len(m.values), m.errors[-5:]) for m in members]
            pytest.fail(f"not within {LIMIT_S} s: {what}; members: {seen}", pytrace=False)
        threading.Event().wait(0.05)


def shared(*members: Member) -> bool:
    """Whether they have all partitions, each one, in equal parts."""
    parts = [member.assigned for member in members]
    fair = PARTITIONS // len(members)
    return sorted(number for part in parts for number in part) == list(range(PARTITIONS)) and all(
        len(part) == fair for part in parts
    )


@pytest.mark.parametrize(("client", "assignor"), KINDS, ids=["-".join(kind) for kind in KINDS])
def test_members_share_crash_and_leave(bootstrap: str, member: Any, client: str, assignor: str) -> None:
    topic = group = f"group-{client}-{assignor}"
    create(bootstrap, topic, PARTITIONS, retention_ms="-1")
    first_half, second_half = records(client, "first", 120), records(client, "second", 120)
    CLIENTS[0].produce(bootstrap, topic, first_half, "lz4", idempotent=True)
    first = member(client, group, topic, assignor)
    until("the only member has all", lambda: shared(first), first)
    second = member(client, group, topic, assignor)
    until("two share", lambda: shared(first, second), first, second)
    third = member(client, group, topic, assignor)
    until("three share", lambda: shared(first, second, third), first, second, third)
    third.kill()
    until("a killed one is missed", lambda: shared(first, second), first, second)
    CLIENTS[0].produce(bootstrap, topic, second_half, "zstd", idempotent=True)
    wanted = {value.decode() for _, value, _ in (*first_half, *second_half)}
    members = (first, second, third)
    until("all is read", lambda: {v for m in members for v in m.values} == wanted, *members)
    first.leave()
    until("one that left is not waited for", lambda: shared(second), second)


STATIC = ["confluent-kafka", "kafka-python", "aiokafka"]


@pytest.mark.parametrize("client", STATIC)
def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    bootstrap: str, member: Any, client: str
) -> None:
    topic = group = f"static-{client}"
    create(bootstrap, topic, PARTITIONS, retention_ms="-1")
    first, second = (member(client, group, topic, "range", name) for name in ("one", "two"))
    until("two share", lambda: shared(first, second), first, second)
    before, rebalances = second.assigned, len(first.assignments)
    second.kill()
    again = member(client, group, topic, "range", "two")
    until("it has its partitions again", lambda: again.assigned == before, first, again)
    rows = records(client, "static", 60)
    CLIENTS[0].produce(bootstrap, topic, rows, "none", idempotent=True)
    until("all is read", lambda: len({*first.values, *again.values}) == len(rows), first, again)
    assert len(first.assignments) == rebalances
