"""SaslHandshake (17), versions 0-1, and SaslAuthenticate (36), versions 0-2: refused, as on every PLAINTEXT listener.

There is nobody to authenticate, so whoever begins it is told ILLEGAL_SASL_STATE and that there is no mechanism, which
clients take for final; of a closed connection they think that the network failed, and try again for ever. v1 of
SaslAuthenticate added the life of a session, v2 is flexible.
Source: Kafka 3.9 `KafkaApis.handleSaslHandshakeRequest`, `handleSaslAuthenticateRequest`.
"""

from __future__ import annotations

from typing import Final

from broker_sim.apis.context import BrokerContext
from broker_sim.server import Answer, Call
from controller.wire.errors import ErrorCode

SASL_HANDSHAKE_VERSIONS: Final = (0, 1)
SASL_AUTHENTICATE_VERSIONS: Final = (0, 2)


async def refuse_handshake(context: BrokerContext, call: Call) -> Answer:
    """No mechanism is enabled."""
    return {"error_code": ErrorCode.ILLEGAL_SASL_STATE}


async def refuse_authentication(context: BrokerContext, call: Call) -> Answer:
    """With Kafka's words."""
    text = "SaslAuthenticate request received after successful authentication"
    return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "error_message": text}
