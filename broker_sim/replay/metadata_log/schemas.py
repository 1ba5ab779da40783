"""The records of `__cluster_metadata`, of Kafka 3.0 to 4.1, as a table: api key, versions, fields in their order. Pure.

Every record is in flexible encoding in every version. A field is there from `since` on; one with a `tag` is left out
where it has its default. Source: apache/kafka, `metadata/src/main/resources/common/metadata/*.json`;
`clients/src/main/resources/common/message/{LeaderChangeMessage,SnapshotHeaderRecord,SnapshotFooterRecord}.json`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class Field(NamedTuple):
    """A field: its name as in Kafka's schema, its type (`[]` in front of an array's), and how it may be left out."""

    name: str
    #: `bool`, `int8` to `int64`, `uint16`, `float64`, `uuid`, `string`, `bytes`, or the fields of a struct
    type: str | tuple[Field, ...]
    since: int = 0
    #: an array of structs
    many: bool = False
    nullable: bool = False
    tag: int | None = None
    default: Any = None


class Schema(NamedTuple):
    """A record: its name, the highest version that is known, its fields."""

    name: str
    latest: int
    fields: tuple[Field, ...]


_ENDPOINTS: Final = Field(
    "endPoints",
    (Field("name", "string"), Field("host", "string"), Field("port", "uint16"), Field("securityProtocol", "int16")),
    many=True,
)
_FEATURES: Final = Field(
    "features",
    (Field("name", "string"), Field("minSupportedVersion", "int16"), Field("maxSupportedVersion", "int16")),
    many=True,
)
_IDS: Final = "[]int32"

REGISTER_BROKER: Final = 0
UNREGISTER_BROKER: Final = 1
TOPIC: Final = 2
PARTITION: Final = 3
CONFIG: Final = 4
PARTITION_CHANGE: Final = 5
FENCE_BROKER: Final = 7
UNFENCE_BROKER: Final = 8
REMOVE_TOPIC: Final = 9
FEATURE_LEVEL: Final = 12
BROKER_REGISTRATION_CHANGE: Final = 17
NO_OP: Final = 20
BEGIN_TRANSACTION: Final = 23
END_TRANSACTION: Final = 24
ABORT_TRANSACTION: Final = 25
REGISTER_CONTROLLER: Final = 27
CLEAR_ELR: Final = 28

SCHEMAS: Final[dict[int, Schema]] = {
    REGISTER_BROKER: Schema(
        "RegisterBrokerRecord",
        3,
        (
            Field("brokerId", "int32"),
            Field("isMigratingZkBroker", "bool", since=2, default=False),
            Field("incarnationId", "uuid"),
            Field("brokerEpoch", "int64"),
            _ENDPOINTS,
            _FEATURES,
            Field("rack", "string", nullable=True),
            Field("fenced", "bool"),
            Field("inControlledShutdown", "bool", since=1, default=False),
            Field("logDirs", "[]uuid", since=3, tag=0, default=()),
        ),
    ),
    UNREGISTER_BROKER: Schema("UnregisterBrokerRecord", 0, (Field("brokerId", "int32"), Field("brokerEpoch", "int64"))),
    TOPIC: Schema("TopicRecord", 0, (Field("name", "string"), Field("topicId", "uuid"))),
    PARTITION: Schema(
        "PartitionRecord",
        2,
        (
            Field("partitionId", "int32"),
            Field("topicId", "uuid"),
            Field("replicas", _IDS),
            Field("isr", _IDS),
            Field("removingReplicas", _IDS),
            Field("addingReplicas", _IDS),
            Field("leader", "int32"),
            Field("leaderRecoveryState", "int8", tag=0, default=0),
            Field("leaderEpoch", "int32"),
            Field("partitionEpoch", "int32"),
            Field("directories", "[]uuid", since=1, default=()),
            Field("eligibleLeaderReplicas", _IDS, since=2, nullable=True, tag=1),
            Field("lastKnownElr", _IDS, since=2, nullable=True, tag=2),
        ),
    ),
    CONFIG: Schema(
        "ConfigRecord",
        0,
        (
            Field("resourceType", "int8"),
            Field("resourceName", "string"),
            Field("name", "string"),
            Field("value", "string", nullable=True),
        ),
    ),
    PARTITION_CHANGE: Schema(
        "PartitionChangeRecord",
        2,
        (
            Field("partitionId", "int32"),
            Field("topicId", "uuid"),
            Field("isr", _IDS, nullable=True, tag=0),
            Field("leader", "int32", tag=1, default=-2),
            Field("replicas", _IDS, nullable=True, tag=2),
            Field("removingReplicas", _IDS, nullable=True, tag=3),
            Field("addingReplicas", _IDS, nullable=True, tag=4),
            Field("leaderRecoveryState", "int8", tag=5, default=-1),
            Field("directories", "[]uuid", since=1, nullable=True, tag=8),
            Field("eligibleLeaderReplicas", _IDS, since=2, nullable=True, tag=6),
            Field("lastKnownElr", _IDS, since=2, nullable=True, tag=7),
        ),
    ),
    FENCE_BROKER: Schema("FenceBrokerRecord", 0, (Field("id", "int32"), Field("epoch", "int64"))),
    UNFENCE_BROKER: Schema("UnfenceBrokerRecord", 0, (Field("id", "int32"), Field("epoch", "int64"))),
    REMOVE_TOPIC: Schema("RemoveTopicRecord", 0, (Field("topicId", "uuid"),)),
    10: Schema(
        "DelegationTokenRecord",
        0,
        (
            Field("owner", "string"),
            Field("requester", "string"),
            Field("renewers", "[]string"),
            Field("issueTimestamp", "int64"),
            Field("maxTimestamp", "int64"),
            Field("expirationTimestamp", "int64"),
            Field("tokenId", "string"),
        ),
    ),
    11: Schema(
        "UserScramCredentialRecord",
        0,
        (
            Field("name", "string"),
            Field("mechanism", "int8"),
            Field("salt", "bytes"),
            Field("storedKey", "bytes"),
            Field("serverKey", "bytes"),
            Field("iterations", "int32"),
        ),
    ),
    FEATURE_LEVEL: Schema("FeatureLevelRecord", 0, (Field("name", "string"), Field("featureLevel", "int16"))),
    14: Schema(
        "ClientQuotaRecord",
        0,
        (
            Field(
                "entity",
                (Field("entityType", "string"), Field("entityName", "string", nullable=True)),
                many=True,
            ),
            Field("key", "string"),
            Field("value", "float64"),
            Field("remove", "bool"),
        ),
    ),
    15: Schema(
        "ProducerIdsRecord",
        0,
        (Field("brokerId", "int32"), Field("brokerEpoch", "int64"), Field("nextProducerId", "int64")),
    ),
    BROKER_REGISTRATION_CHANGE: Schema(
        "BrokerRegistrationChangeRecord",
        2,
        (
            Field("brokerId", "int32"),
            Field("brokerEpoch", "int64"),
            Field("fenced", "int8", tag=0, default=0),
            Field("inControlledShutdown", "int8", since=1, tag=1, default=0),
            Field("logDirs", "[]uuid", since=2, tag=2, default=()),
        ),
    ),
    18: Schema(
        "AccessControlEntryRecord",
        0,
        (
            Field("id", "uuid"),
            Field("resourceType", "int8"),
            Field("resourceName", "string"),
            Field("patternType", "int8"),
            Field("principal", "string"),
            Field("host", "string"),
            Field("operation", "int8"),
            Field("permissionType", "int8"),
        ),
    ),
    19: Schema("RemoveAccessControlEntryRecord", 0, (Field("id", "uuid"),)),
    NO_OP: Schema("NoOpRecord", 0, ()),
    21: Schema("ZkMigrationStateRecord", 0, (Field("zkMigrationState", "int8"),)),
    22: Schema("RemoveUserScramCredentialRecord", 0, (Field("name", "string"), Field("mechanism", "int8"))),
    BEGIN_TRANSACTION: Schema("BeginTransactionRecord", 0, (Field("name", "string", nullable=True, tag=0),)),
    END_TRANSACTION: Schema("EndTransactionRecord", 0, ()),
    ABORT_TRANSACTION: Schema("AbortTransactionRecord", 0, (Field("reason", "string", nullable=True, tag=0),)),
    26: Schema("RemoveDelegationTokenRecord", 0, (Field("tokenId", "string"),)),
    REGISTER_CONTROLLER: Schema(
        "RegisterControllerRecord",
        0,
        (
            Field("controllerId", "int32"),
            Field("incarnationId", "uuid"),
            Field("zkMigrationReady", "bool"),
            _ENDPOINTS,
            _FEATURES,
        ),
    ),
    CLEAR_ELR: Schema("ClearElrRecord", 0, (Field("topicName", "string"),)),
}

#: Types of control records, told by the record's key (int16 version, int16 type).
LEADER_CHANGE: Final = 2
SNAPSHOT_HEADER: Final = 3
SNAPSHOT_FOOTER: Final = 4
CONTROL_SCHEMAS: Final[dict[int, Schema]] = {
    # voters, and who granted, follow: who leads is what is needed
    LEADER_CHANGE: Schema("LeaderChangeMessage", 1, (Field("version", "int16"), Field("leaderId", "int32"))),
    SNAPSHOT_HEADER: Schema(
        "SnapshotHeaderRecord", 0, (Field("version", "int16"), Field("lastContainedLogTimestamp", "int64"))
    ),
    SNAPSHOT_FOOTER: Schema("SnapshotFooterRecord", 0, (Field("version", "int16"),)),
}
