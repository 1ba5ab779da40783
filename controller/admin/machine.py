"""What the tools are given: network, clock, chance and output streams. The one place that knows the real ones."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from typing import TextIO

from controller.wire.ports import Clock, Network
from controller.wire.real.clock import SystemClock
from controller.wire.real.net import TcpNetwork


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The world of one run of a tool. Tests pass in another one."""

    network: Network
    clock: Clock
    chance: random.Random
    out: TextIO
    err: TextIO


def this_machine() -> Machine:
    """TCP, the machine's clock, unseeded chance, standard output and error."""
    return Machine(network=TcpNetwork(), clock=SystemClock(), chance=random.Random(), out=sys.stdout, err=sys.stderr)
