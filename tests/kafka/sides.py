"""The same request to a real broker and to a simulated one: two sides, whose answers are compared.

A side names things by what they are to it (its topic, its group, its own id), so that equal behaviour gives equal text.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from controller.rules.hashing import group_partition
from controller.wire.errors import ErrorCode
from controller.wire.protocol import decode_response, encode_request, plain

LIMIT_S = 30.0
_RANGE = re.compile(r"\[\d+, \d+\]")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: Fields whose values are nobody's promise: times of day, and where something lies.
_FREE = frozenset({"log_append_time", "throttle_time", "host", "port", "cluster_id", "client_host", "timestamp_ms"})
#: Answers in no promised order.
_UNORDERED = frozenset({"topics", "partitions", "results", "groups", "members"})
_IDS = frozenset({"node_id", "leader_id", "controller_id", "broker_id"})


class Closed(Exception):
    """The broker closed the connection instead of answering."""


@dataclass
class Side:
    """One broker, asked by a raw client. `name` has the same length on both sides: sizes count in some answers."""

    name: str
    broker_id: int
    port: int
    offsets_partition: int
    offsets_partitions: int = 2
    client_id: str = "raw"
    _socket: socket.socket | None = None
    _correlation: int = 0
    _members: dict[str, str] = field(default_factory=dict)

    def topic(self, kind: str) -> str:
        """The topic of this kind that this broker leads."""
        return f"{kind}-{self.name}"

    def group(self, kind: str) -> str:
        """A group that this broker coordinates."""
        names = (f"{kind}-{self.name}-{n:03}" for n in range(1000))
        return next(n for n in names if group_partition(n, self.offsets_partitions) == self.offsets_partition)

    # -- asking ------------------------------------------------------------------------------------------------------

    def call(self, key: int, version: int, body: Mapping[str, Any]) -> Any:
        """The answer as it came, decoded. Raises Closed."""
        self._correlation += 1
        self.send(encode_request(key, version, self._correlation, self.client_id, body))
        correlation, answer = decode_response(key, version, self.receive())
        assert correlation == self._correlation
        return answer

    def ask(self, key: int, version: int, body: Mapping[str, Any]) -> Any:
        """The answer in words that both sides share; `closed` when the connection was closed."""
        try:
            return self.shared(plain(self.call(key, version, body)))
        except Closed:
            return "closed"

    def send(self, data: bytes) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S)
        try:
            self._socket.sendall(data)
        except ConnectionError:
            self.close()
            raise Closed from None

    def receive(self) -> bytes:
        """The next frame. Raises Closed."""
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        assert self._socket is not None
        data = b""
        while len(data) < size:
            try:
                chunk = self._socket.recv(size - len(data))
            except ConnectionError:
                chunk = b""
            if not chunk:
                self.close()
                raise Closed
            data += chunk
        return data

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @contextmanager
    def another(self) -> Iterator[Side]:
        """A second connection to the same broker."""
        other = Side(self.name, self.broker_id, self.port, self.offsets_partition, self.offsets_partitions)
        try:
            yield other
        finally:
            other.close()

    # -- comparing ---------------------------------------------------------------------------------------------------

    def shared(self, value: Any, key: str = "") -> Any:
        """The value in words that both sides share."""
        if isinstance(value, dict):
            return {k: self.shared(v, k) for k, v in value.items() if k not in _FREE}
        if isinstance(value, list):
            shared = [self.shared(v, key) for v in value]
            # Kafka keeps the partitions and groups of some answers in hash maps.
            return sorted(shared, key=repr) if key in _UNORDERED else shared
        if isinstance(value, str):
            return self._shared_text(value)
        if key in _IDS and value == self.broker_id:
            return "me"
        if key == "error_code":
            return ErrorCode.of(value).name if value in ErrorCode._value2member_map_ else value
        return value

    def _shared_text(self, text: str) -> str:
        text = _RANGE.sub("[RANGE]", text)
        text = _UUID.sub("UUID", text.replace(f"-{self.name}", "-SIDE"))
        return re.sub(r"SIDE-\d{3}", "SIDE", text)
