"""Faults of JSON files in the words of Kafka's parser: recorded from Kafka 3.9.1 and 4.1.0 (JsonComplaints.java)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.admin.toolkit import kafka_json
from controller.admin.toolkit.jackson import complaint

SOURCE = "Source: REDACTED (`StreamReadFeature.INCLUDE_SOURCE_IN_LOCATION` disabled)"
ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent / "recordings" / "json_complaints.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("version", ["3.9.1", "4.1.0"])
def test_the_words_and_places_of_kafkas_parser(version: str) -> None:
    for row in ROWS:
        recorded = row.get(version, row["3.9.1"])
        expected = recorded and recorded.replace("<source>", SOURCE)
        assert complaint(row["text"], newer=version == "4.1.0") == expected, row["text"][:80]


@given(st.text(alphabet="{}[]\",:\\ \n0123456789.eE+-truefalsnIN/'x", max_size=40))
def test_every_text_is_a_value_or_has_a_complaint(text: str) -> None:
    try:
        kafka_json.parse(text)
    except kafka_json.NotJson as error:
        assert str(error) == complaint(text)
    except kafka_json.JsonFailure:
        assert not text
    else:
        assert complaint(text) is None
