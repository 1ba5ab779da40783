"""What clients write, read and could not write, whatever changes: each moment counts as it was."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from broker_sim.fluid.clients import Clients
from controller.wire.types import TopicPartition

#: partition -> bytes per second that its clients would write and read
RATES = {TopicPartition("t", 0): (10.0, 5.0), TopicPartition("u", 0): (3.0, 0.0)}


def steps(chance: random.Random) -> Iterator[Any]:
    """Seconds pass, a burst of some topics begins or ends, a partition has a leader and may be written to or not, or
    what was refused until now does not count."""
    for _ in range(500):
        yield chance.choice([1, 2, 5, 9, 0.04, 0.08])
        yield chance.choice([0.0, 0.5, 3.0]), chance.choice([None, ["t"], ["t", "u"], []])
        yield chance.choice(list(RATES)), chance.random() < 0.7, chance.random() < 0.7
        yield "look" if chance.random() < 0.7 else "begin"


def test_what_is_refused_counts_at_the_rate_of_its_moment() -> None:
    now_s = 0.0
    flows = dict.fromkeys(RATES, (0.0, 0.0))
    clients = Clients(lambda: now_s, lambda tp, *flow: flows.update({tp: flow}))
    for tp, (bytes_in, bytes_out) in RATES.items():
        clients.expect(tp, in_bytes_per_s=bytes_in, out_bytes_per_s=bytes_out)
    factors, roles = dict.fromkeys(RATES, 1.0), dict.fromkeys(RATES, (False, False))
    refused, lacked = dict.fromkeys(RATES, (0.0, 0.0)), dict.fromkeys(RATES, (0.0, 0.0))

    def all_refused(tp: TopicPartition) -> tuple[float, float]:
        """What was lacked for no longer than a producer waits before it tries again was written then."""
        parts = [refused[tp], *([lacked[tp]] if lacked[tp][1] > 0.1 else [])]
        return sum(volume for volume, _ in parts), sum(seconds for _, seconds in parts)

    for step in steps(random.Random(7)):
        match step:
            case int() | float():
                now_s += step
                for tp, (volume, seconds) in lacked.items():
                    rate = RATES[tp][0] * factors[tp]
                    if rate and roles[tp] != (True, True):
                        lacked[tp] = volume + rate * step, seconds + step
            case (float() as factor, topics):
                clients.scale(factor, topics)
                factors.update({tp: factor for tp in RATES if topics is None or tp.topic in topics})
            case (TopicPartition() as tp, has_leader, is_open):
                flows[tp] = clients.open(tp, has_leader=has_leader, is_open=is_open)
                roles[tp] = has_leader, is_open
                if has_leader and is_open:
                    refused[tp], lacked[tp] = all_refused(tp), (0.0, 0.0)
            case "look":
                found = {tp: all_refused(tp) for tp in RATES}
                assert clients.refused() == {tp: pytest.approx(each) for tp, each in found.items() if each[1]}
            case "begin":
                clients.begin()
                refused.update(dict.fromkeys(RATES, (0.0, 0.0)))
                lacked.update(dict.fromkeys(RATES, (0.0, 0.0)))
        for tp, (bytes_in, bytes_out) in RATES.items():
            has_leader, is_open = roles[tp]
            assert flows[tp] == (
                bytes_in * factors[tp] if has_leader and is_open else 0.0,
                bytes_out * factors[tp] if has_leader else 0.0,
            )
