"""Who wants to authenticate is told that there is nothing to do so with, as on a PLAINTEXT listener of Kafka."""

from __future__ import annotations

from typing import Any

from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey


def test_a_handshake_finds_no_mechanism(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        answer = await cluster.call(1, ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        assert (answer.error_code, list(answer.mechanisms)) == (ErrorCode.ILLEGAL_SASL_STATE, [])

    in_memory(scenario)


def test_an_authentication_is_refused_with_a_reason(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        answer = await cluster.call(1, ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0me\0secret"})
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert answer.error_message == "SaslAuthenticate request received after successful authentication"

    in_memory(scenario)
