"""What clients are told when the group log does not take what they want to keep."""

from __future__ import annotations

import pytest

from broker_sim.groups.log import COMMIT_ERRORS, GROUP_STORE_ERRORS
from controller.wire.errors import ErrorCode

E = ErrorCode
#: of the log -> of OffsetCommit, of SyncGroup; all others are told as they are
TOLD = {
    E.UNKNOWN_TOPIC_OR_PARTITION: (E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_NOT_AVAILABLE),
    E.NOT_ENOUGH_REPLICAS: (E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_NOT_AVAILABLE),
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_NOT_AVAILABLE),
    E.NOT_LEADER_OR_FOLLOWER: (E.NOT_COORDINATOR, E.NOT_COORDINATOR),
    E.KAFKA_STORAGE_ERROR: (E.NOT_COORDINATOR, E.NOT_COORDINATOR),
    E.MESSAGE_TOO_LARGE: (E.INVALID_COMMIT_OFFSET_SIZE, E.UNKNOWN_SERVER_ERROR),
    E.RECORD_LIST_TOO_LARGE: (E.INVALID_COMMIT_OFFSET_SIZE, E.UNKNOWN_SERVER_ERROR),
    E.INVALID_FETCH_SIZE: (E.INVALID_COMMIT_OFFSET_SIZE, E.UNKNOWN_SERVER_ERROR),
    E.REQUEST_TIMED_OUT: (E.REQUEST_TIMED_OUT, E.REBALANCE_IN_PROGRESS),
}


@pytest.mark.parametrize("code", ErrorCode)
def test_each_error_of_the_log_has_its_answer(code: ErrorCode) -> None:
    assert (COMMIT_ERRORS.get(code, code), GROUP_STORE_ERRORS.get(code, code)) == TOLD.get(code, (code, code))
