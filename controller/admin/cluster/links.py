"""Where the admin client connects to, and an open connection: which version of a request both sides know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.admin.cluster.failures import ClusterUnreachable, Refused
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey, api_name
from controller.wire.whole import whole
from controller.world.client import BrokerConnection

#: Versions of each request whose answers this client reads: lowest and highest.
KNOWN_VERSIONS: Final[Mapping[ApiKey, tuple[int, int]]] = {
    ApiKey.LIST_OFFSETS: (1, 9),
    ApiKey.METADATA: (1, 12),
    ApiKey.OFFSET_FETCH: (2, 7),
    ApiKey.FIND_COORDINATOR: (0, 3),
    ApiKey.DESCRIBE_GROUPS: (0, 5),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.OFFSET_COMMIT: (2, 8),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.API_VERSIONS: (0, 0),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (0, 5),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (0, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (0, 4),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
}


class InvalidBootstrap(ClusterUnreachable):
    """The bootstrap list cannot be read."""


class Link:
    """An open connection and the versions that its broker knows."""

    def __init__(self, connection: BrokerConnection, versions: Mapping[int, tuple[int, int]]) -> None:
        self.connection = connection
        self._versions = versions

    def serves(self, api_key: int) -> bool:
        """Whether the broker says that it answers this request at all."""
        return api_key in self._versions

    def lowest(self, api_key: ApiKey) -> int:
        """The lowest version that the broker knows; -1 for what it does not serve."""
        return self._versions.get(api_key, (-1, -1))[0]

    def version(self, api_key: ApiKey) -> int:
        """The highest version that both sides know. Raises Refused (UNSUPPORTED_VERSION)."""
        low, high = KNOWN_VERSIONS[api_key]
        theirs = self._versions.get(api_key)
        if theirs is None:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"The broker does not support {api_name(api_key)}")
        if theirs[0] > high or theirs[1] < low:
            raise Refused(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The broker supports versions {theirs[0]} to {theirs[1]} of {api_name(api_key)}, "
                f"this tool {low} to {high}",
            )
        return min(high, theirs[1])


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """The addresses of `host:port[,host:port...]`; IPv6 hosts in brackets. Raises InvalidBootstrap."""
    addresses: list[tuple[str, int]] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        host, colon, port = part.removeprefix("PLAINTEXT://").rpartition(":")
        if not colon or not host or not 0 < (whole(port) or 0) < 65536:
            raise InvalidBootstrap(f"Invalid url in bootstrap.servers: {part}")
        addresses.append((host.removeprefix("[").removesuffix("]"), int(port)))
    if not addresses:
        raise InvalidBootstrap("No resolvable bootstrap urls given in bootstrap.servers")
    return addresses
