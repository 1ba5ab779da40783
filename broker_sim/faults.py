"""Faults are rows: what shall go wrong, where, and when. Everything about faults lives here; only the broker's server
and the replica fetchers ask.

A fault file holds one JSON object per line (blank lines and lines that start with `#` do not count):

    {"fault": "pause_replication", "broker": 2, "topic": null}
    {"fault": "api", "broker": 1, "api": "Fetch", "nth": 3, "action": "drop"}
    {"fault": "api", "broker": 1, "api": "Produce", "action": "error", "error_code": 6, "chance": 0.5}
    {"fault": "api", "broker": null, "api": "Metadata", "action": "delay", "delay_ms": 250}
    {"fault": "fail_log_dir", "broker": 3, "log_dir": "/data/a"}
    {"fault": "expire_session", "broker": 3}

`broker` null is every broker. A row is in force from when it is in the file until it is not. `decode` refuses a file as
a whole; the rows that were in force stay in force then.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey, api_name
from controller.wire.types import BrokerId

API_NAMES: Final = {api_name(key): key for key in ApiKey}


class FaultError(ValueError):
    """A fault file that cannot be used. The message names the line and what is wrong with it."""


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    #: the broker it is about; None for every broker.
    broker: int | None = None

    def concerns(self, broker_id: BrokerId) -> bool:
        """Whether this broker is meant."""
        return self.broker is None or self.broker == broker_id


class PauseReplication(_Row):
    """The broker's followers stop fetching: of one topic, or of all."""

    fault: Literal["pause_replication"] = "pause_replication"
    topic: str | None = None


class FailLogDir(_Row):
    """A log directory fails, as a broken disk would make it. It stays failed until the broker starts again."""

    fault: Literal["fail_log_dir"] = "fail_log_dir"
    log_dir: str


class ExpireSession(_Row):
    """The ZooKeeper session ends as if it had expired; the broker opens another. Once per time the row appears."""

    fault: Literal["expire_session"] = "expire_session"


class Action(StrEnum):
    """What happens to a request instead of (drop, error) or before (delay) its handling."""

    DROP = "drop"
    DELAY = "delay"
    ERROR = "error"


class ApiFault(_Row):
    """Requests of one API go wrong: only the `nth` since the row appeared (from 1), or each with the given chance.

    drop closes the connection and does nothing; delay waits `delay_ms` first; error carries the request out and puts
    `error_code` into every place of the answer that has one, as if the true answer had been lost on the way.
    """

    fault: Literal["api"] = "api"
    api: str
    action: Action
    nth: Annotated[int, Field(ge=1)] | None = None
    chance: Annotated[float, Field(ge=0, le=1)] = 1.0
    delay_ms: Annotated[int, Field(ge=0)] = 0
    error_code: int = ErrorCode.UNKNOWN_SERVER_ERROR

    @field_validator("api")
    @classmethod
    def _known_api(cls, value: str) -> str:
        if value not in API_NAMES:
            raise ValueError(f"no API is called {value!r}; there are {', '.join(sorted(API_NAMES))}")
        return value

    @property
    def api_key(self) -> ApiKey:
        """The API that is meant."""
        return API_NAMES[self.api]


Fault = PauseReplication | FailLogDir | ExpireSession | ApiFault
_ROW: Final[TypeAdapter[Fault]] = TypeAdapter(Annotated[Fault, Field(discriminator="fault")])


def decode(text: str) -> tuple[Fault, ...]:
    """The rows of a fault file, in order. Raises FaultError, naming the first line that is none."""
    rows: list[Fault] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            rows.append(_decode_line(number, line))
    return tuple(rows)


def _decode_line(number: int, line: str) -> Fault:
    try:
        return _ROW.validate_python(json.loads(line))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise FaultError(f"fault file, line {number}: {where}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise FaultError(f"fault file, line {number}: not a JSON object: {error}") from error


def encode(rows: Iterable[Fault]) -> str:
    """The text of a fault file with these rows; `decode` gives them back."""
    return "".join(json.dumps(row.model_dump(mode="json"), separators=(",", ":")) + "\n" for row in rows)


class FaultBoard:
    """The rows that are in force, as one broker asks about them. Chance comes from the generator that is passed in."""

    def __init__(self, broker_id: BrokerId, chance: random.Random) -> None:
        self._broker_id, self._random = broker_id, chance
        self._rows: tuple[Fault, ...] = ()
        self._seen: dict[Fault, int] = {}

    @property
    def rows(self) -> tuple[Fault, ...]:
        """The rows in force that concern this broker."""
        return self._rows

    def replace(self, rows: Iterable[Fault]) -> tuple[tuple[Fault, ...], tuple[Fault, ...]]:
        """Puts these rows in force. Returns (started, ended); a row that was there before keeps its count."""
        new = tuple(dict.fromkeys(row for row in rows if row.concerns(self._broker_id)))
        started = tuple(row for row in new if row not in self._rows)
        ended = tuple(row for row in self._rows if row not in new)
        self._rows = new
        self._seen = {row: count for row, count in self._seen.items() if row in new}
        return started, ended

    def is_replication_paused(self, topic: str) -> bool:
        """Whether this broker's follower of that topic shall not fetch."""
        return any(isinstance(row, PauseReplication) and row.topic in (None, topic) for row in self._rows)

    def strike(self, api_key: int) -> ApiFault | None:
        """The fault that hits a request of this API which arrives now, if any; counts the request."""
        hit: ApiFault | None = None
        for row in self._rows:
            if isinstance(row, ApiFault) and row.api_key == api_key:
                self._seen[row] = self._seen.get(row, 0) + 1
                if hit is None and self._hits(row):
                    hit = row
        return hit

    def _hits(self, row: ApiFault) -> bool:
        if row.nth is not None:
            return self._seen[row] == row.nth
        return row.chance >= 1.0 or self._random.random() < row.chance


def with_error_code(answer: Any, error_code: int) -> Any:
    """The answer (plain values) with every `error_code` in it set: what an `error` fault sends."""
    match answer:
        case dict():
            return {
                name: error_code if name == "error_code" else with_error_code(value, error_code)
                for name, value in answer.items()
            }
        case list() | tuple():
            return [with_error_code(item, error_code) for item in answer]
    return answer


#: How often a fault file's modification time is looked at.
FAULT_FILE_POLL_MS: Final = 200
ReplaceRows = Callable[[tuple[Fault, ...]], None]
