"""docs/logs.md has every event, with what the code logs; every event has a meaning."""

from __future__ import annotations

from controller.wire.log_meanings import MEANINGS
from tests import logs_table


def test_every_event_has_a_meaning_and_no_other() -> None:
    assert sorted(MEANINGS) == sorted(logs_table.EVENTS.values())


def test_levels_and_keys_are_read_from_the_code() -> None:
    found = logs_table.usages()
    assert found["broker.registered"].levels == {"info"}
    assert found["broker.registered"].keys == {"path", "endpoints", "broker_epoch"}
    assert "timeout_s" not in found["broker.started"].keys, "of who waits for it"
    assert found["partition.election_failed"].keys >= {"reason", "topic", "partition"}, "by the core's Log"


def test_the_page_is_what_the_code_says() -> None:
    """`make docs` writes it anew."""
    assert (logs_table.ROOT / "docs" / "logs.md").read_text(encoding="utf-8") == logs_table.page()
