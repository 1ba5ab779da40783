"""A scenario of many minutes: load all the time, and trouble of every kind, drawn by a seed.

Broker 1 and controller 901 are never killed: what they hold at the end they have gathered all the time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

BROKERS: Final = 4
#: Seconds from one fault to the next; each is over before the next begins.
EVERY_S: Final = 30
#: Nothing is broken after that, until the end.
CALM_S: Final = 45
_FAULTS: Final[tuple[dict[str, Any], ...]] = (
    {"fault": "kill"},
    {"fault": "stop"},
    {"fault": "pause_replication"},
    {"fault": "slow_disk", "delay_ms": 20},
    {"fault": "slow_link", "delay_ms": 50, "jitter_ms": 30},
    {"fault": "cut_link", "peer": 1},
    {"fault": "expire_session"},
    {"fault": "api", "api": "Produce", "action": "error", "error_code": "NOT_LEADER_OR_FOLLOWER", "every": 10},
)
_MOVING: Final = '{"version":1,"partitions":[{"topic":"moved","partition":0,"replicas":%s}]}'


def scenario(seed: int, minutes: float, folder: str) -> dict[str, Any]:
    """As `kwob scenario` reads it. `folder`: where the files of `moves` are."""
    chance, end_s = random.Random(seed), int(60 * minutes)
    return {
        "cluster": {"brokers": BROKERS, "controllers": 2, "racks": ["a", "b"], "settings": {
            "replica.lag.time.max.ms": 5000, "zookeeper.session.timeout.ms": 6000,
            "offsets.retention.minutes": 2, "log.retention.check.interval.ms": 10_000,
        }},
        "topics": [
            {"topic": "orders", "partitions": 6, "replication_factor": 3, "configs": {"min.insync.replicas": 2}},
            {"topic": "moved", "partitions": 1, "replication_factor": 2},
        ],
        "load": [{"topic": "orders", "rate": 20, "for": f"{end_s - CALM_S}s"}],
        "faults": list(_faults(chance, end_s)),
        "steps": list(_steps(chance, end_s, folder)),
        "expect": {"missing": 0, "check": True},
        "end": f"{end_s}s",
    }  # fmt: skip


def _faults(chance: random.Random, end_s: int) -> Iterator[dict[str, Any]]:
    for at_s in range(5, end_s - CALM_S - EVERY_S, EVERY_S):
        drawn = chance.choice(_FAULTS)
        among = range(2, BROKERS + 1) if drawn["fault"] in ("kill", "stop", "cut_link") else range(1, BROKERS + 1)
        yield {"at": f"{at_s}s", "for": f"{chance.randint(3, 20)}s", "broker": chance.choice(among), **drawn}


def _steps(chance: random.Random, end_s: int, folder: str) -> Iterator[dict[str, Any]]:
    """Topics come and go, a partition moves to and fro, the office changes. Each begins right before the next fault,
    when that before is over: a move to a broker that is down is refused.
    """
    for number, at_s in enumerate(range(EVERY_S + 3, end_s - CALM_S - EVERY_S, EVERY_S)):
        yield {"at": f"{at_s}s", "do": "run",
               "command": f"topics --create --topic churn{number} --partitions 8 --replication-factor 2"}  # fmt: skip
        move = f"reassign-partitions --reassignment-json-file {folder}/{number % 2}.json --execute"
        yield {"do": "run", "command": move}
        if chance.random() < 0.2:
            yield {"do": "kill_controller", "controller": 902, "for": "5s"}
        yield {"at": f"{at_s + 15}s", "do": "run", "command": f"topics --delete --topic churn{number}"}
    yield {"at": f"{end_s - CALM_S}s", "do": "wait", "until": "full-isr", "timeout": "40s"}


def moves() -> list[str]:
    """The files that its steps name: two plans for `kwob reassign-partitions`."""
    return [_MOVING % replicas for replicas in ("[1, 2]", "[3, 4]")]
