"""Faults are rows: what shall go wrong, where, and when. This file knows the rows and their text; `board` has them in
force at a broker, `scenario` reads a file of rows with times, `links` does what they say to connections.

A fault file holds one JSON object per line (blank lines and lines that start with `#` do not count):

    {"fault": "pause_replication", "broker": 2, "topic": null}
    {"fault": "slow_disk", "broker": 1, "bytes_per_second": 1000000}
    {"fault": "slow_link", "broker": 1, "peer": 2, "delay_ms": 50, "jitter_ms": 20}
    {"fault": "cut_link", "broker": 1, "peer": 2}
    {"fault": "api", "broker": 1, "api": "Fetch", "nth": 3, "action": "drop"}
    {"fault": "api", "broker": 1, "api": "Produce", "action": "error", "error_code": "NOT_LEADER_OR_FOLLOWER"}
    {"fault": "api", "api": "Metadata", "action": "delay", "delay_ms": 250, "client": "billing-*"}
    {"fault": "fail_log_dir", "broker": 3, "log_dir": "/data/a"}
    {"fault": "expire_session", "broker": 3}
    {"fault": "kill", "rack": "b", "from_ms": 1700000000000, "until_ms": 1700000020000}
    {"fault": "stop", "broker": [4, 5]}

`broker` is an id, a list of ids, or null for every broker; with `rack`, only brokers of that rack. A row is in force
while it is in the file, from `from_ms` until `until_ms` where it has these (ms since the epoch, the broker's clock).
`decode` refuses a file as a whole; the rows that were in force stay in force then.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey, api_name
from controller.wire.types import BrokerId, TopicPartition

API_NAMES: Final = {api_name(key): key for key in ApiKey}
#: The name of the file, in the folder of a local cluster, whose rows are in force there.
FAULT_FILE: Final = "faults.jsonl"


class FaultError(ValueError):
    """A fault file that cannot be used. The message names the line, what is wrong with it, and what is allowed."""


def _brokers(value: Any) -> Any:
    """One id, or several without repetition, in order."""
    if isinstance(value, (list, tuple)):
        if not value:
            raise ValueError("an empty list means no broker; leave `broker` out for every broker")
        return tuple(sorted(set(value))) if all(type(v) is int for v in value) else tuple(value)
    return value


def _path(value: str) -> str:
    if "\0" in value or any("\ud800" <= sign <= "\udfff" for sign in value):
        raise ValueError(f"there is no such path: {value!r}"[:200])
    return value


Milliseconds = Annotated[int, Field(ge=0, le=86_400_000)]
EpochMilliseconds = Annotated[int, Field(ge=0, lt=2**63)]
LogDir = Annotated[str, AfterValidator(_path)]
Brokers = Annotated[int | tuple[int, ...] | None, BeforeValidator(_brokers)]


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)
    #: what `kwob fault clear` and the log call it; unique in a file.
    id: str | None = None
    #: the brokers it is about; None for every broker.
    broker: Brokers = None
    #: only brokers of this rack.
    rack: str | None = None
    #: in force from and until then, in ms since the epoch; None: since it is in the file, until it is not.
    from_ms: EpochMilliseconds | None = None
    until_ms: EpochMilliseconds | None = None

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        if self.from_ms is not None and self.until_ms is not None and self.until_ms <= self.from_ms:
            raise ValueError(f"until_ms {self.until_ms} must be after from_ms {self.from_ms}")
        return self

    def concerns(self, broker_id: BrokerId, rack: str | None = None) -> bool:
        """Whether this broker is meant."""
        return _is_among(broker_id, self.broker) and self.rack in (None, rack)

    def about(self) -> dict[str, Any]:
        """The columns that say what is meant, without those that are not set: for logs and tables."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in self.model_dump(mode="json", exclude_defaults=True).items()
            if name not in ("from_ms", "until_ms", "id", "fault")
        }


def _is_among(broker_id: int, brokers: int | tuple[int, ...] | None) -> bool:
    return brokers is None or broker_id == brokers or (isinstance(brokers, tuple) and broker_id in brokers)


class PauseReplication(_Row):
    """The broker's followers stop fetching: of one partition, of one topic, or of all."""

    fault: Literal["pause_replication"] = "pause_replication"
    topic: str | None = None
    partition: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _check_topic(self) -> Self:
        if self.partition is not None and self.topic is None:
            raise ValueError("partition needs topic")
        return self

    def pauses(self, topic_partition: TopicPartition) -> bool:
        """Whether this partition is meant."""
        return self.topic in (None, topic_partition.topic) and self.partition in (None, topic_partition.partition)


class _Slowness(_Row):
    """What is slow: so many bytes per second, and so long for each turn on top, plus a drawn 0 to `jitter_ms`."""

    bytes_per_second: Annotated[int, Field(ge=1)] | None = None
    delay_ms: Milliseconds = 0
    jitter_ms: Milliseconds = 0

    @model_validator(mode="after")
    def _check_slow(self) -> Self:
        if self.bytes_per_second is None and not self.delay_ms and not self.jitter_ms:
            raise ValueError("nothing is slow; give bytes_per_second, delay_ms or jitter_ms")
        return self


class SlowDisk(_Slowness):
    """A log directory (or all of the broker's) takes long to write and to read.

    What a request or a fetch answer writes or reads in one go is one turn; turns of one directory wait for each other.
    """

    fault: Literal["slow_disk"] = "slow_disk"
    log_dir: LogDir | None = None


class _Link(_Row):
    """The broker's network. With `peer`: only the connections between brokers of the row and that broker."""

    peer: int | None = None

    def concerns(self, broker_id: BrokerId, rack: str | None = None) -> bool:
        """Whether this broker is meant, at either end."""
        return super().concerns(broker_id, rack) or self.peer == broker_id

    def is_between(
        self, near: BrokerId, near_rack: str | None, far: BrokerId | None, far_rack: str | None = None
    ) -> bool:
        """Whether it is about the link of two brokers, seen by the one that connects (`far` None: not a broker)."""
        if self.peer is None:
            return _Row.concerns(self, near, near_rack)
        if far is None:
            return False
        return (self.peer == far and _Row.concerns(self, near, near_rack)) or (
            self.peer == near and _Row.concerns(self, far, far_rack)
        )


class SlowLink(_Link, _Slowness):
    """Bytes travel slowly, in each direction on its own. A delay holds up each direction, so an answer waits twice."""

    fault: Literal["slow_link"] = "slow_link"


class CutLink(_Link):
    """Connections break, and no new one comes about."""

    fault: Literal["cut_link"] = "cut_link"


class FailLogDir(_Row):
    """A log directory fails, as a broken disk would make it: also at a start while the row is in force.

    When the row ends the disk is whole again; the broker uses it from its next start on, as Kafka does.
    """

    fault: Literal["fail_log_dir"] = "fail_log_dir"
    log_dir: LogDir


class ExpireSession(_Row):
    """The ZooKeeper session ends as if it had expired; the broker opens another. Once per time the row begins."""

    fault: Literal["expire_session"] = "expire_session"


class Kill(_Row):
    """The broker ends as by SIGKILL: sockets break, nothing is flushed, ZooKeeper notices when the session times out.

    When the row ends, the broker starts again. Other brokers of the same process are not touched.
    """

    fault: Literal["kill"] = "kill"


class Stop(_Row):
    """Controlled shutdown; the broker starts again when the row ends."""

    fault: Literal["stop"] = "stop"


class Action(StrEnum):
    """What happens to a request instead of (drop, error) or before (delay) its handling."""

    DROP = "drop"
    DELAY = "delay"
    ERROR = "error"


def _known_api(value: Any) -> Any:
    if isinstance(value, str) and value not in API_NAMES:
        raise ValueError(f"no API is called {value!r}; there are {', '.join(sorted(API_NAMES))}")
    return value


def _error_number(value: Any) -> Any:
    """A code by number, or by Kafka's name."""
    if isinstance(value, str) and not value.lstrip("-").isdigit():
        if value not in ErrorCode.__members__:
            raise ValueError(f"no error is called {value!r}; there are {', '.join(sorted(ErrorCode.__members__))}")
        return int(ErrorCode[value])
    return value


class ApiFault(_Row):
    """Requests of one API go wrong: only the `nth` since the row began (from 1), or every so many, or by chance.

    drop closes the connection and does nothing; delay waits `delay_ms` (and up to `jitter_ms` more) first; error
    carries the request out and puts `error_code` into every place of the answer that has one, as if the true answer
    had been lost on the way. `sender` is the broker or controller that asks, `client` a pattern of client ids.
    """

    fault: Literal["api"] = "api"
    api: Annotated[str, BeforeValidator(_known_api)]
    action: Action
    sender: int | None = None
    client: str | None = None
    nth: Annotated[int, Field(ge=1)] | None = None
    every: Annotated[int, Field(ge=1)] | None = None
    chance: Annotated[float, Field(ge=0, le=1)] = 1.0
    delay_ms: Milliseconds = 0
    jitter_ms: Milliseconds = 0
    error_code: Annotated[int, Field(ge=-1, le=32_767), BeforeValidator(_error_number)] = ErrorCode.UNKNOWN_SERVER_ERROR

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.nth is not None and self.every is not None:
            raise ValueError("give nth or every, not both")
        if self.action is Action.DELAY and not self.delay_ms and not self.jitter_ms:
            raise ValueError("action delay needs delay_ms or jitter_ms")
        return self

    @property
    def api_key(self) -> ApiKey:
        """The API that is meant."""
        return API_NAMES[self.api]

    def is_from(self, sender: int | None, client_id: str | None) -> bool:
        """Whether requests of this broker or client are meant."""
        return self.sender in (None, sender) and (self.client is None or fnmatchcase(client_id or "", self.client))


Fault = (
    PauseReplication | SlowDisk | SlowLink | CutLink | FailLogDir | ExpireSession | Kill | Stop | ApiFault
)  # fmt: skip
#: name -> row class, in the order in which they are told to the user.
KINDS: Final[dict[str, type[_Row]]] = {
    str(kind.model_fields["fault"].default): kind
    for kind in (PauseReplication, SlowDisk, SlowLink, CutLink, ApiFault, FailLogDir, ExpireSession, Kill, Stop)
}
_ROW: Final[TypeAdapter[Fault]] = TypeAdapter(Annotated[Fault, Field(discriminator="fault")])


#: The columns of a row that a file with times of its own does not have.
ROW_TIMES: Final = ("id", "from_ms", "until_ms")


def parse_row(values: Mapping[str, Any], *, times: tuple[str, ...] = ROW_TIMES) -> Fault:
    """The row of these columns. Raises FaultError: which column, what is wrong with it, what is allowed.

    `times`: what the file has in the place of `ROW_TIMES`, for the message.
    """
    try:
        return _ROW.validate_python(values)
    except ValidationError as error:
        raise FaultError(_explain(error, values.get("fault"), times)) from None


def _explain(error: ValidationError, kind: Any, times: tuple[str, ...]) -> str:
    """The first complaint of a validation, in one line that names what is allowed."""
    first = error.errors()[0]
    parts = [str(part) for part in first["loc"][1:2]]
    where = f"{parts[0]}: " if parts else ""
    if first["type"] in ("union_tag_not_found", "union_tag_invalid"):
        given = "is missing" if first["type"] == "union_tag_not_found" else f"{kind!r} does not exist"
        return f"fault: {given}; there are {', '.join(KINDS)}"
    if first["type"] == "extra_forbidden" and kind in KINDS:
        columns = [name for name in KINDS[kind].model_fields if name not in ("fault", *ROW_TIMES)]
        allowed = ", ".join([*columns, *times])
        return f"{where}{kind} has no such column; there are {allowed}"
    message = first["msg"].removeprefix("Value error, ")
    given = "" if first["type"] in ("missing", "value_error") else f"; got {first['input']!r}"[:200]
    return f"{where}{message}{given}"


def decode(text: str) -> tuple[Fault, ...]:
    """The rows of a fault file, in order. Raises FaultError, naming the first line that is none."""
    rows: list[Fault] = []
    ids: set[str] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        row = _decode_line(number, line)
        if row.id is not None and row.id in ids:
            raise FaultError(f"fault file, line {number}: id: {row.id!r} is there twice")
        ids |= {row.id} if row.id is not None else set()
        rows.append(row)
    return tuple(rows)


def _decode_line(number: int, line: str) -> Fault:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FaultError(f"fault file, line {number}: not a JSON object: {error}") from error
    if not isinstance(values, dict):
        raise FaultError(f"fault file, line {number}: not a JSON object, but {type(values).__name__}")
    try:
        return parse_row(values)
    except FaultError as error:
        raise FaultError(f"fault file, line {number}: {error}") from error


def encode(rows: Iterable[Fault]) -> str:
    """The text of a fault file with these rows; `decode` gives them back."""
    return "".join(
        json.dumps({"fault": row.fault, **row.model_dump(mode="json", exclude_defaults=True)}, separators=(",", ":"))
        + "\n"
        for row in rows
    )


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
