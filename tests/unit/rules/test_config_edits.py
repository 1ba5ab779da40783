"""Edits of configs as (Incremental)AlterConfigs makes them: what comes out, and which check fails first.

Source: Kafka 3.9 `ConfigAdminManager.preprocess`, `prepareIncrementalConfigs`; spec broker.md §17.1.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from controller.rules.configs.alterations import alterations
from controller.rules.configs.edits import Edit, Operation, edited
from controller.rules.configs.values import ConfigType
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.types import BrokerId

SET, DELETE, APPEND, SUBTRACT = Operation
TYPES = {"cleanup.policy": ConfigType.LIST, "retention.ms": ConfigType.LONG}
DEFAULTS = {"cleanup.policy": "delete", "retention.ms": "604800000"}

LISTS: list[tuple[str, str | None, Operation, str, str]] = [  # what it shows, stored, operation, value -> stored
    ("appended to what is stored", "compact", APPEND, "delete", "compact,delete"),
    ("appended to the default where nothing is stored", None, APPEND, "compact", "delete,compact"),
    ("what is there already is not appended again", "compact,delete", APPEND, "delete,compact", "compact,delete"),
    ("a new word is appended as often as it is named", "", APPEND, "a,a", "a,a"),
    ("blanks belong to words", "a", APPEND, " a", "a, a"),
    ("appended nothing is a word", "a", APPEND, "", "a,"),
    ("separators alone are no words", "a", APPEND, ",,", "a"),
    ("separators alone take no empty word away", "a,,b", SUBTRACT, ",", "a,,b"),
    ("subtracted from what is stored", "compact,delete", SUBTRACT, "compact", "delete"),
    ("subtracted from the default", None, SUBTRACT, "delete", ""),
    ("each word takes one away", "a,b,a", SUBTRACT, "a", "b,a"),
    ("what is not there is no harm", "a", SUBTRACT, "b,c", "a"),
    ("empty words at the end do not count", "a,b,,", SUBTRACT, "b,", "a"),
]


@pytest.mark.parametrize(
    ("stored", "operation", "value", "expected"), [row[1:] for row in LISTS], ids=[row[0] for row in LISTS]
)
def test_lists(stored: str | None, operation: Operation, value: str, expected: str) -> None:
    before = {} if stored is None else {"cleanup.policy": stored}
    edit = Edit(name="cleanup.policy", operation=operation, value=value)
    assert edited(before, [edit], TYPES, DEFAULTS) == {"cleanup.policy": expected}


def row(name: str, operation: int, value: str | None) -> Any:
    return SimpleNamespace(name=name, config_operation=operation, value=value)


def resource(kind: int, name: str, *configs: Any) -> Any:
    return SimpleNamespace(resource_type=kind, resource_name=name, configs=configs)


TWICE = (row("a", SET, "1"), row("a", 9, None))
FIRST: list[tuple[str, Any, str]] = [  # the check that comes first of two that fail
    ("a config named twice, before a null value", resource(2, "t", *TWICE), "Error due to duplicate config keys"),
    (
        "a null value, before an operation that does not exist",
        resource(2, "t", row("a", 9, None)),
        "Null value not supported for : a",
    ),
    ("a null value, before the resource's type", resource(77, "t", row("a", SET, None)), "Null value not supported"),
    ("the resource's type, before an operation", resource(77, "t", row("a", 9, "1")), "Unknown resource type 77"),
    ("another broker, before an operation", resource(4, "8", row("a", 9, "1")), "Unexpected broker id, expected 7"),
    ("no broker, before an operation", resource(4, "x", row("a", 9, "1")), "Node id must be an integer"),
    ("an operation, of this broker", resource(4, "7", row("a", 9, "1")), "Unknown operations type 9"),
    ("an operation, of all brokers", resource(4, "", row("a", 9, "1")), "Unknown operations type 9"),
    ("the topic without a name, before an operation", resource(2, "", row("a", 9, "1")), "Default topic resources"),
]


@pytest.mark.parametrize(("asked", "text"), [line[1:] for line in FIRST], ids=[line[0] for line in FIRST])
def test_the_first_check_that_fails_is_told(asked: Any, text: str) -> None:
    (wanted,) = alterations([asked], BrokerId(7), replace=False)
    assert wanted.refusal is not None and wanted.refusal.code is ErrorCode.INVALID_REQUEST
    assert str(wanted.refusal).startswith(text)


@pytest.mark.parametrize(
    "edit",
    [
        Edit(name="retention.ms", operation=9, value="1"),
        Edit(name="no.such.config", operation=APPEND, value="1"),
        Edit(name="no.such.config", operation=SUBTRACT, value="1"),
    ],
    ids=["an operation that does not exist", "appended to an unknown config", "subtracted from an unknown config"],
)
def test_what_breaks_kafka_is_answered_without_a_text(edit: Edit) -> None:
    with pytest.raises(KafkaError) as refused:
        edited({}, [Edit(name="retention.ms", operation=SET, value="x"), edit], TYPES, DEFAULTS)
    assert (refused.value.code, refused.value.own_text) == (ErrorCode.UNKNOWN_SERVER_ERROR, None)
