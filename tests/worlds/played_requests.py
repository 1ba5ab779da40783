"""A request of one API as its handler reads it, and its answer as a client does; who does what is asked is played."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from broker_sim.apis.table import ROWS
from broker_sim.server import Call
from controller.wire.protocol import ApiKey, Request, build, plain


def versions(api: ApiKey) -> range:
    """Those that brokers offer."""
    first, last = ROWS[api].versions
    return range(first, last + 1)


def answered(api: ApiKey, version: int, body: dict[str, Any], *, client_id: str | None = "client", **parts: Any) -> Any:
    """What a client at 10.0.0.9 is answered by a broker of these parts; None: it gets no answer."""
    request = Request(api, version, 7, client_id, build(api, version, body))
    context: Any = SimpleNamespace(**parts)
    asked: Any = ROWS[api].handle(context, Call(request, "10.0.0.9", "a connection"))
    answer = asyncio.run(asked)
    return None if answer is None else read(api, version, answer)


def read(api: ApiKey, version: int, answer: Any) -> Any:
    """An answer as it is read in this version."""
    return plain(build(api, version, answer, response=True))


def topics(*rows: tuple[str, list[Any]], named: str = "name", within: str = "partitions") -> list[dict[str, Any]]:
    """Rows of partitions below their topics."""
    return [{named: name, within: partitions} for name, partitions in rows]
