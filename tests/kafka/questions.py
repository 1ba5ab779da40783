"""What both sides are asked: each question is a function of a side that returns what the side answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .questions_of_configs import (
    altering_by_whole,
    altering_configs,
    api_versions,
    authenticating,
    coordinators,
    describing_broker_configs,
    describing_topic_configs,
    metadata,
)
from .questions_of_groups import a_group_of_one, groups_that_cannot_be_written, static_members, two_members
from .questions_of_records import (
    deleting_records,
    epochs,
    fetch_sessions,
    fetching,
    idempotent_producing,
    init_producer_id,
    listing_offsets,
    producing_by_version,
    producing_each_batch,
    producing_without_acks,
)
from .sides import Side
from .walks_of_records import walking_through_records

Question = Callable[[Side], Any]

QUESTIONS: tuple[Question, ...] = (
    producing_each_batch,
    producing_by_version,
    producing_without_acks,
    idempotent_producing,
    init_producer_id,
    listing_offsets,
    epochs,
    fetching,
    fetch_sessions,
    deleting_records,
    walking_through_records,
    metadata,
    api_versions,
    authenticating,
    coordinators,
    altering_configs,
    altering_by_whole,
    describing_topic_configs,
    describing_broker_configs,
    a_group_of_one,
    static_members,
    two_members,
    groups_that_cannot_be_written,
)
