"""Requests that ZooKeeper may not take: a server ends the connection of one above its `jute.maxbuffer`, without a word,
and whoever sent it again after each reconnection would never be done, nor would all that waits behind it.

So a client does not send what no program of Kafka could read back, and gives up what a server with another limit may
refuse once it was lost so many times. Pure.
Source: ZooKeeper 3.9 `NIOServerCnxn.readLength` (1,048,575 bytes where nothing is set); Kafka 3.9 `KafkaZkClient`,
whose `jute.maxbuffer` is 4 MiB.
"""

from __future__ import annotations

from typing import Final

from controller.wire.zk_operations import Create, Multi, SetData, ZkOp, ZkWriteOp

#: `jute.maxbuffer` of `kwob up` and of the ZooKeeper in memory.
JUTE_MAXBUFFER: Final = 4 << 20
#: Nothing larger is sent: the operation is answered with BAD_ARGUMENTS. What is between is for chroots and headers.
REQUEST_BYTES_MAX: Final = JUTE_MAXBUFFER - (64 << 10)
#: No server refuses a smaller one, but those that are told to.
REQUEST_BYTES_ALWAYS_TAKEN: Final = 1_000_000
#: So many connections are lost with one in between before it is answered with CONNECTION_LOSS: as ever with that code,
#: nobody knows what became of it.
LOSSES_MAX: Final = 3
#: What stands around the path and the data of an operation, about.
_AROUND: Final = 64


def bytes_of(op: ZkOp | ZkWriteOp) -> int:
    """About the bytes of an operation's request, rather more than less."""
    if isinstance(op, Multi):
        return sum(map(bytes_of, op.ops))
    data = op.data if isinstance(op, Create | SetData) else None
    return len(op.path) + len(data or b"") + _AROUND


def is_too_large(op: ZkOp) -> bool:
    """Whether it is not sent at all."""
    return bytes_of(op) > REQUEST_BYTES_MAX


def is_given_up(op: ZkOp, losses: int) -> bool:
    """Whether an operation that was lost with so many connections is not sent again."""
    return losses >= LOSSES_MAX and bytes_of(op) > REQUEST_BYTES_ALWAYS_TAKEN


def refusal(op: ZkOp, losses: int) -> dict[str, object]:
    """What the log says of one."""
    path = op.ops[-1].path if isinstance(op, Multi) else op.path
    size = bytes_of(op)
    if losses:
        reason = f"{losses} connections were lost with it; the server's jute.maxbuffer may be smaller"
    else:
        reason = f"at most {REQUEST_BYTES_MAX} bytes are sent to ZooKeeper, which is what Kafka reads back"
    return {"path": path, "bytes": size, "reason": reason}
