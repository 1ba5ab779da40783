"""What can go wrong in a tool, and Kafka's words for it.

A refusal of the cluster is a `Refused`: it prints as its message, or with the exception class that Kafka's client would
have thrown in front (`prefixed`). Everything about these names and texts lives here. Source: Kafka 3.9 `Errors`.
"""

from __future__ import annotations

from typing import Final

from controller.wire.errors import ErrorCode, KafkaError

#: Where Kafka's client keeps its exception classes.
ERRORS_PACKAGE: Final = "org.apache.kafka.common.errors"

#: Codes whose exception class is not simply the code's name in CamelCase with `Exception` behind it.
_IRREGULAR: Final = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "UnknownServerException",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "InvalidTopicException",
    ErrorCode.TOPIC_ALREADY_EXISTS: "TopicExistsException",
    ErrorCode.INVALID_CONFIG: "InvalidConfigurationException",
    ErrorCode.INVALID_PRODUCER_EPOCH: "InvalidProducerEpochException",
    ErrorCode.REQUEST_TIMED_OUT: "TimeoutException",
    ErrorCode.NON_EMPTY_GROUP: "GroupNotEmptyException",
    ErrorCode.MESSAGE_TOO_LARGE: "RecordTooLargeException",
    ErrorCode.RECORD_LIST_TOO_LARGE: "RecordBatchTooLargeException",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "OffsetMetadataTooLarge",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "ReassignmentInProgressException",
}

#: What Kafka's client says when the cluster sent a code without a message.
_DEFAULT_MESSAGES: Final = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "The server experienced an unexpected error when processing the request.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.LEADER_NOT_AVAILABLE: "There is no leader for this topic-partition as we are in the middle of a "
    "leadership election.",
    ErrorCode.REQUEST_TIMED_OUT: "The request timed out.",
    ErrorCode.BROKER_NOT_AVAILABLE: "The broker is not available.",
    ErrorCode.REPLICA_NOT_AVAILABLE: "The replica is not available for the requested topic-partition.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The request attempted to perform an operation on an invalid topic.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.UNSUPPORTED_VERSION: "The version of API is not supported.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "Topic with this name already exists.",
    ErrorCode.INVALID_PARTITIONS: "Number of partitions is below 1.",
    ErrorCode.INVALID_REPLICATION_FACTOR: "Replication factor is below 1 or larger than the number of available "
    "brokers.",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "Replica assignment is invalid.",
    ErrorCode.INVALID_CONFIG: "Configuration is invalid.",
    ErrorCode.NOT_CONTROLLER: "This is not the correct controller for this cluster.",
    ErrorCode.INVALID_REQUEST: "This most likely occurs because of a request being malformed by the client library or "
    "the message was sent to an incompatible broker. See the broker logs for more details.",
    ErrorCode.POLICY_VIOLATION: "Request parameters do not satisfy the configured policy.",
    ErrorCode.KAFKA_STORAGE_ERROR: "Disk error when trying to access log file on the disk.",
    ErrorCode.LOG_DIR_NOT_FOUND: "The user-specified log directory is not found in the broker config.",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "A partition reassignment is in progress.",
    ErrorCode.TOPIC_DELETION_DISABLED: "Topic deletion is disabled.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "No partition reassignment is in progress.",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group id does not exist.",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Deleting offsets of a topic is forbidden while the consumer group is "
    "actively subscribed to it.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and hence can't process requests.",
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
    ErrorCode.INVALID_GROUP_ID: "The configured groupId is invalid.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The coordinator is not aware of this member.",
    ErrorCode.REBALANCE_IN_PROGRESS: "The group is rebalancing, so a rejoin is needed.",
    ErrorCode.UNKNOWN_TOPIC_ID: "This server does not host this topic ID.",
}


def exception_class(code: ErrorCode) -> str:
    """The class that Kafka's client throws for a code, with its package."""
    name = _IRREGULAR.get(code)
    if name is None:
        name = "".join(part.capitalize() for part in code.name.split("_"))
        name = name.removesuffix("Error").replace("AuthorizationFailed", "Authorization") + "Exception"
    return f"{ERRORS_PACKAGE}.{name}"


class Refused(KafkaError):
    """The cluster refused what was asked. `message` is never empty: a missing one is Kafka's default for the code."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code, message if message is not None else _DEFAULT_MESSAGES.get(code, code.name))

    @property
    def prefixed(self) -> str:
        """`<exception class>: <message>`, as Kafka's tools print an error that they do not unwrap."""
        return f"{exception_class(self.code)}: {self}"


class ToolFailure(Exception):
    """A tool cannot do what was asked. `java_class` is the exception class of the original, for its log line."""

    def __init__(self, message: str, *, java_class: str = "java.lang.RuntimeException") -> None:
        super().__init__(message)
        self.java_class = java_class


class Terse(ToolFailure):
    """A failure that Kafka's tools print without a stack trace (TerseException)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, java_class="org.apache.kafka.server.util.TerseException")


class ClusterUnreachable(ToolFailure):
    """No broker answers, or what answers is no Kafka. The message is one line and says what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(message, java_class=f"{ERRORS_PACKAGE}.TimeoutException")


def check(error_code: int, message: str | None = None) -> None:
    """Raises Refused unless the code is NONE."""
    if error_code != ErrorCode.NONE:
        raise Refused(ErrorCode.of(error_code), message)


def class_and_message(error: Exception) -> str:
    """How Java prints an exception: class, colon, message."""
    if isinstance(error, Refused):
        return error.prefixed
    if isinstance(error, ToolFailure):
        return f"{error.java_class}: {error}"
    if isinstance(error, KafkaError):
        return f"{exception_class(error.code)}: {error}"
    return f"{type(error).__name__}: {error}"
