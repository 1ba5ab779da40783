"""`kwob explain` where there is no cluster."""

from __future__ import annotations

import asyncio
import io
import random
from typing import Any

from controller.admin.explain import main_async as explain
from controller.admin.toolkit.machine import Machine
from controller.world.ports import Network


class NoNetwork:
    """What needs no cluster connects to none."""

    async def connect(self, host: str, port: int) -> Any:
        raise AssertionError("connected")

    listen = connect

    def address_of(self, host: str) -> str:
        raise AssertionError("asked")


class Epoch:
    def now_ms(self) -> int:
        return 0


def said(*argv: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    network: Network = NoNetwork()  # type: ignore[assignment]
    machine = Machine(network=network, clock=Epoch(), chance=random.Random(5), out=out, err=err)
    return asyncio.run(explain(argv, machine)), out.getvalue(), err.getvalue()
