"""Which nodes a DescribeCluster asks for: brokers or controllers (KIP-919). Each kind answers for its own only. Pure.

Source: Kafka 3.9 `EndpointType`, `AuthHelper.computeDescribeClusterResponse`.
"""

from __future__ import annotations

from typing import Any, Final

from controller.wire.errors import ErrorCode

BROKERS: Final = 1
CONTROLLERS: Final = 2
_NAMES: Final = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}


def wrong_endpoint_type(asked: int, own: int) -> dict[str, Any]:
    """The answer of a node of one kind to a DescribeCluster for another."""
    if asked not in _NAMES:
        return {
            "error_code": ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            "error_message": f"Unsupported endpoint type {asked}",
        }
    return {
        "error_code": ErrorCode.MISMATCHED_ENDPOINT_TYPE,
        "error_message": f"The request was sent to an endpoint of type {_NAMES[own]}, "
        f"but we wanted an endpoint of type {_NAMES[asked]}",
    }
