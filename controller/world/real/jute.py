"""ZooKeeper's wire format (Jute) for the operations of `wire.zk_operations`. Pure: bytes in, bytes out.

kazoo's own request classes are not used because they hide what is needed here: null payloads, the stat of a `SetData`
inside a transaction, per-operation error codes, and the operations `multiRead` and `setWatches`.
Source: ZooKeeper 3.9 `zookeeper.jute`, `ZooDefs.OpCode`, `MultiOperationRecord`, `MultiResponse`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from controller.wire.zk_operations import (
    Check,
    Create,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Multi,
    SetData,
    Stat,
    ZkCode,
    ZkOp,
    ZkResult,
    ZkWriteOp,
)

# ZooDefs.OpCode
CREATE: Final = 1
DELETE: Final = 2
EXISTS: Final = 3
GET_DATA: Final = 4
SET_DATA: Final = 5
GET_CHILDREN: Final = 8
CHECK: Final = 13
MULTI: Final = 14
MULTI_READ: Final = 22
SET_WATCHES: Final = 101
ERROR: Final = -1


_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_MULTI_HEADER: Final = struct.Struct(">i?i")
#: The fields of `Stat`; what nobody asks for is passed over.
_STAT: Final = struct.Struct(">qqqqii4xq4xi8x")
_MULTI_END: Final = _MULTI_HEADER.pack(-1, True, -1)
_READ_HEADER: Final = _MULTI_HEADER.pack(GET_DATA, False, -1)
#: What precedes the data of a znode in the reply to a `multiRead`: its header, then the length.
_READ_REPLY: Final = struct.Struct(">i?ii")
_TRUE: Final = b"\x01"
_FALSE: Final = b"\x00"
_CODES: Final = {int(code): code for code in ZkCode}


def code_of(number: int) -> ZkCode:
    """The result code for a number on the wire; those that nobody here tells apart are OTHER."""
    return _CODES.get(number, ZkCode.OTHER)


@dataclass(frozen=True, slots=True)
class Request:
    """A request as kazoo's connection wants it: a type, the bytes after it, and how to read the answer."""

    type: int
    body: bytes
    decode: Callable[[bytes, int], list[ZkResult]]

    def serialize(self) -> bytes:
        """The bytes after the request header."""
        return self.body

    def deserialize(self, reply: bytes, at: int) -> list[ZkResult]:
        """The results in a reply whose header said OK; `at` is where the header ends."""
        return self.decode(reply, at)


def encode(op: ZkOp, chroot: str) -> Request:
    """One operation as a request. `chroot` is "" or an absolute path; the results are without it."""
    match op:
        case GetData(path, watch):
            return Request(GET_DATA, _watched(chroot, path, watch), _decode_data)
        case Exists(path, watch):
            return Request(EXISTS, _watched(chroot, path, watch), _decode_stat)
        case GetChildren(path, watch):
            return Request(GET_CHILDREN, _watched(chroot, path, watch), _decode_children)
        case Multi(ops):
            return _encode_multi(ops, chroot)
        case Create() | SetData() | Delete():
            kind, body = _write(op, chroot)
            return Request(kind, body, lambda reply, at: [_read_written(kind, reply, at, chroot)[0]])
        case _:
            assert_never(op)


def encode_multi_read(ops: Sequence[GetData], chroot: str) -> Request:
    """Many unwatched reads as one request (ZooKeeper 3.6 and later); one result each, in order."""
    parts: list[bytes] = []
    pack = _INT.pack
    for op in ops:
        path = (chroot + op.path if op.path != "/" else absolute(chroot, "/")).encode()
        parts += (_READ_HEADER, pack(len(path)), path, _FALSE)
    parts.append(_MULTI_END)
    return Request(MULTI_READ, b"".join(parts), _decode_multi_read)


def encode_set_watches(
    last_zxid: int, data: Collection[str], exist: Collection[str], child: Collection[str]
) -> Request:
    """Arms watches again after a reconnection; the server fires at once those that missed a change since `last_zxid`.

    Paths are absolute, with the chroot. Sorted, so that equal sets give equal bytes.
    """
    vectors = (b"".join((_INT.pack(len(paths)), *map(_string, sorted(paths)))) for paths in (data, exist, child))
    return Request(SET_WATCHES, b"".join((_LONG.pack(last_zxid), *vectors)), lambda _reply, _at: [])


def absolute(chroot: str, path: str) -> str:
    """The path as the server knows it."""
    if not chroot:
        return path
    return chroot if path == "/" else chroot + path


def relative(chroot: str, path: str) -> str:
    """The path without the chroot."""
    return path[len(chroot) :] or "/" if chroot and path.startswith(chroot) else path


def decode_watch_event(reply: bytes, at: int) -> tuple[int, str]:
    """Type number and absolute path of a watch notification."""
    (kind,) = _INT.unpack_from(reply, at)
    path, _ = _read_buffer(reply, at + 2 * _INT.size)
    return kind, (path or b"").decode()


def _string(text: str) -> bytes:
    return _buffer(text.encode())


def _buffer(payload: bytes | None) -> bytes:
    return _INT.pack(-1) if payload is None else _INT.pack(len(payload)) + payload


#: ACL vector of one entry: everybody may do everything (`ZooDefs.Ids.OPEN_ACL_UNSAFE`).
_OPEN_ACL: Final = _INT.pack(1) + _INT.pack(31) + _string("world") + _string("anyone")


def _watched(chroot: str, path: str, watch: bool) -> bytes:
    return _string(absolute(chroot, path)) + (_TRUE if watch else _FALSE)


def _write(op: ZkWriteOp, chroot: str) -> tuple[int, bytes]:
    path = _string(absolute(chroot, op.path))
    match op:
        case Create(_, payload, ephemeral, sequence):
            return CREATE, path + _buffer(payload) + _OPEN_ACL + _INT.pack(int(ephemeral) | int(sequence) << 1)
        case SetData(_, payload, version):
            return SET_DATA, path + _buffer(payload) + _INT.pack(version)
        case Delete(_, version):
            return DELETE, path + _INT.pack(version)
        case Check(_, version):
            return CHECK, path + _INT.pack(version)
        case _:
            assert_never(op)


def _encode_multi(ops: Sequence[ZkWriteOp], chroot: str) -> Request:
    parts: list[bytes] = []
    for op in ops:
        kind, body = _write(op, chroot)
        parts += (_MULTI_HEADER.pack(kind, False, -1), body)
    return Request(MULTI, b"".join((*parts, _MULTI_END)), lambda reply, at: [_decode_multi(reply, at, chroot)])


def _read_buffer(reply: bytes, at: int) -> tuple[bytes | None, int]:
    (length,) = _INT.unpack_from(reply, at)
    at += _INT.size
    if length < 0:
        return None, at
    return reply[at : at + length], at + length


def _read_stat(reply: bytes, at: int) -> Stat:
    return Stat(*_STAT.unpack_from(reply, at))


def _decode_data(reply: bytes, at: int) -> list[ZkResult]:
    payload, at = _read_buffer(reply, at)
    return [ZkResult(ZkCode.OK, data=payload, stat=_read_stat(reply, at))]


def _decode_stat(reply: bytes, at: int) -> list[ZkResult]:
    return [ZkResult(ZkCode.OK, stat=_read_stat(reply, at))]


def _decode_children(reply: bytes, at: int) -> list[ZkResult]:
    (count,) = _INT.unpack_from(reply, at)
    at += _INT.size
    names = []
    for _ in range(count):
        name, at = _read_buffer(reply, at)
        names.append((name or b"").decode())
    return [ZkResult(ZkCode.OK, children=tuple(sorted(names)))]


def _read_written(kind: int, reply: bytes, at: int, chroot: str) -> tuple[ZkResult, int]:
    """The result of one write, alone or in a multi, and where it ends."""
    if kind == CREATE:
        path, at = _read_buffer(reply, at)
        return ZkResult(ZkCode.OK, path=relative(chroot, (path or b"").decode())), at
    if kind == SET_DATA:
        return ZkResult(ZkCode.OK, stat=_read_stat(reply, at)), at + _STAT.size
    if kind == ERROR:
        return ZkResult(code_of(_INT.unpack_from(reply, at)[0])), at + _INT.size
    return ZkResult(ZkCode.OK), at


def _decode_multi_read(reply: bytes, at: int) -> list[ZkResult]:
    results: list[ZkResult] = []
    end = len(reply) - len(_MULTI_END)
    header, header_size, stat, stat_size = _READ_REPLY.unpack_from, _READ_REPLY.size, _STAT.unpack_from, _STAT.size
    new, code = tuple.__new__, ZkCode.OK  # a third of the time of the constructors (bench: failover, warm)
    while at < end:
        kind, _, _, length = header(reply, at)
        at += header_size
        if kind == ERROR:  # what stands for a length is the code
            results.append(ZkResult(code_of(length)))
            continue
        data = None if length < 0 else reply[at : at + length]
        at += max(length, 0)
        results.append(new(ZkResult, (code, data, new(Stat, stat(reply, at)), (), "", ())))
        at += stat_size
    return results


def _decode_multi(reply: bytes, at: int, chroot: str) -> ZkResult:
    results: list[ZkResult] = []
    while True:
        kind, done, _ = _MULTI_HEADER.unpack_from(reply, at)
        at += _MULTI_HEADER.size
        if done:
            return ZkResult(multi_code(results), results=tuple(results))
        result, at = _read_written(kind, reply, at, chroot)
        results.append(result)


def multi_code(results: Sequence[ZkResult]) -> ZkCode:
    """The code of a Multi: that of the operation that made it fail, OK if none did."""
    failed = [result.code for result in results if not result.ok]
    return next(
        (code for code in failed if code is not ZkCode.RUNTIME_INCONSISTENCY), failed[0] if failed else ZkCode.OK
    )
