"""What clients are told that they may do, where they ask for it: everything, as nobody is kept from anything.

Source: Kafka 3.9 `AuthHelper.authorizedOperations` without an authorizer, `AclEntry.supportedOperations`.
"""

from __future__ import annotations

from typing import Any, Final

#: Whoever does not ask is told that nobody looked.
NO_OPERATIONS: Final = -2147483648
#: `AclOperation`: the number of an operation is its bit.
_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _CLUSTER_ACTION = range(3, 10)
_DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = range(10, 13)


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


_ALL: Final = {
    "include_topic_authorized_operations": _bits(
        _READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS
    ),
    "include_cluster_authorized_operations": _bits(
        _CREATE, _ALTER, _DESCRIBE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE
    ),
    "include_authorized_operations": _bits(_READ, _DELETE, _DESCRIBE),
}


def of_topic(body: Any) -> int:
    """On each topic of a Metadata request."""
    return _asked(body, "include_topic_authorized_operations")


def of_cluster(body: Any) -> int:
    """On the cluster, asked by Metadata or DescribeCluster."""
    return _asked(body, "include_cluster_authorized_operations")


def of_group(body: Any) -> int:
    """On each group of a DescribeGroups request."""
    return _asked(body, "include_authorized_operations")


def _asked(body: Any, field: str) -> int:
    return _ALL[field] if getattr(body, field, False) else NO_OPERATIONS
