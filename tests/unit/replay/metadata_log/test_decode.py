"""Records from bytes: what Kafka's own decoder says, and what becomes of bytes that are no record."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_sim.replay.metadata_log import schemas
from broker_sim.replay.metadata_log.decode import MalformedRecord, UnknownRecord, decode, decode_control
from broker_sim.replay.metadata_log.schemas import SCHEMAS, Field
from broker_sim.replay.metadata_log.segments import Found, found_in
from tests.unit.replay.metadata_log.written import encode, partition, topic_id, uvarint

RUNS: Final = Path(__file__).parents[3] / "kraft_runs"
NAMED: Final = [run for run in sorted(RUNS.iterdir()) if run.is_dir()]


@pytest.mark.parametrize("run", NAMED, ids=lambda run: run.name)
def test_every_record_of_a_recorded_run_is_what_kafkas_own_decoder_says(run: Path) -> None:
    with gzip.open(run / "records.jsonl.gz", "rt", encoding="utf-8") as lines:
        kafkas = {offset: (ts, kind, version, data) for offset, ts, kind, version, data in map(json.loads, lines)}
    ours = {}
    for segment in sorted((run / "metadata" / "__cluster_metadata-0").glob("*.log")):
        for found in found_in(segment.read_bytes()):
            assert isinstance(found, Found)
            if found.record.api_key not in (schemas.NO_OP, -1):
                ours[found.offset] = found
    assert ours.keys() == kafkas.keys()
    for offset, (ts, kind, version, data) in kafkas.items():
        record = ours[offset].record
        assert (ours[offset].ts, _kafkas_name(record.name), record.version) == (ts, kind, version)
        # Kafka leaves out tagged fields that have their default.
        assert data == {name: value for name, value in record.fields.items() if name in data}
        left_out = {field.name: field.default for field in SCHEMAS[record.api_key].fields if field.name not in data}
        assert left_out == {name: value for name, value in record.fields.items() if name not in data}


def _kafkas_name(name: str) -> str:
    return "".join("_" + c if c.isupper() else c for c in name).strip("_").upper()


# -- encoded by the table, decoded again ------------------------------------------------------------------------------

INTEGERS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def values_of(field: Field) -> st.SearchStrategy[Any]:
    if isinstance(field.type, tuple):
        fields = field.type
        return st.lists(st.fixed_dictionaries({f.name: values_of(f) for f in fields}), max_size=2)
    if field.type.startswith("[]"):
        many = st.lists(values_of(Field("one", field.type[2:])), max_size=3)
        return st.none() | many if field.nullable else many
    plain = _plain(field.type)
    return st.none() | plain if field.nullable else plain


def _plain(kind: str) -> st.SearchStrategy[Any]:
    if kind in INTEGERS:
        bits = INTEGERS[kind]
        return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return {
        "bool": st.booleans(),
        "uint16": st.integers(0, 65535),
        "float64": st.floats(allow_nan=False),
        "uuid": st.integers(0, 2**128 - 1).map(topic_id),
        "string": st.text(max_size=8),
        "bytes": st.binary(max_size=8),
    }[kind]


@st.composite
def a_record(draw: st.DrawFn) -> tuple[int, int, dict[str, Any]]:
    api_key = draw(st.sampled_from(sorted(SCHEMAS)))
    version = draw(st.integers(0, SCHEMAS[api_key].latest))
    fields = {f.name: draw(values_of(f)) for f in SCHEMAS[api_key].fields if version >= f.since}
    return api_key, version, fields


@given(a_record())
def test_a_record_of_any_schema_and_version_comes_back(record: tuple[int, int, dict[str, Any]]) -> None:
    api_key, version, fields = record
    decoded = decode(encode(api_key, version, **fields))
    assert (decoded.api_key, decoded.version) == (api_key, version)
    assert {name: decoded.fields[name] for name in fields} == fields


@given(a_record())
def test_a_record_that_is_cut_is_refused_and_no_more(record: tuple[int, int, dict[str, Any]]) -> None:
    whole = encode(record[0], record[1], **record[2])
    for at in range(len(whole)):
        with pytest.raises((MalformedRecord, UnknownRecord)):
            decode(whole[:at])


@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_record_or_in_one_of_two_errors(content: bytes) -> None:
    begun = (uvarint(1) + uvarint(key) + uvarint(0) for key in (0, 3, 5, 17))
    for value in (content, uvarint(1) + content, *(head + content for head in begun)):
        with suppress(MalformedRecord, UnknownRecord):
            assert decode(value) is not None
    with suppress(MalformedRecord):
        decode_control(content[:4], content[4:])


# -- later versions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("frame version 2", uvarint(2) + uvarint(3) + uvarint(0)),
        ("record 99 version 0", uvarint(1) + uvarint(99) + uvarint(0)),
        ("PartitionRecord version 7, known up to 2", uvarint(1) + uvarint(3) + uvarint(7)),
    ],
)
def test_what_a_later_kafka_wrote_is_named(what: str, value: bytes) -> None:
    with pytest.raises(UnknownRecord, match=what):
        decode(value)


def test_a_tagged_field_of_a_later_minor_is_skipped() -> None:
    known = encode(schemas.UNREGISTER_BROKER, 0, brokerId=4, brokerEpoch=9)
    later = known[:-1] + uvarint(1) + uvarint(30) + uvarint(3) + b"abc"
    assert decode(later).fields == {"brokerId": 4, "brokerEpoch": 9}


def test_bytes_left_over_mean_that_the_schema_is_another() -> None:
    with pytest.raises(MalformedRecord, match="1 bytes are left over"):
        decode(partition(1, 0, [1, 2]) + b"\0")
