"""ApiVersions (18), versions 0-3: the table of what this broker answers. Made from that very table.

v1 added the throttle time, v2 nothing, v3 the client's software (checked) and tagged feature fields (none are sent: at
inter.broker.protocol 2.6 there are none). An unsupported version is answered by the server itself in version 0's shape.
"""

from __future__ import annotations

import re
from typing import Final

from broker_sim.server import Answer, ApiTable, Call
from controller.wire.errors import ErrorCode

VERSIONS: Final = (0, 3)
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def answer_api_versions(table: ApiTable, call: Call) -> Answer:
    """All APIs with their ranges; INVALID_REQUEST for software names that Kafka does not allow."""
    body = call.body
    if call.version >= 3 and not (
        _SOFTWARE.fullmatch(body.client_software_name) and _SOFTWARE.fullmatch(body.client_software_version)
    ):
        return {"error_code": ErrorCode.INVALID_REQUEST}
    return {
        "api_keys": [
            {"api_key": key, "min_version": api.versions[0], "max_version": api.versions[1]}
            for key, api in sorted(table.items())
        ]
    }
