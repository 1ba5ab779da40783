"""Well-formed requests in senseless orders, with senseless values: each gets an answer, none breaks a handler."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.records import HEADER_BYTES, Record, build_batch
from controller.wire.types import GROUP_METADATA_TOPIC
from controller.world.client import Disconnected

QUICK = settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
GROUPS = st.sampled_from(["g", "h", ""])
MEMBERS = st.sampled_from(["", "known", "stranger"])
INSTANCES = st.sampled_from([None, "i", ""])
GENERATIONS = st.integers(-2, 3)
BLOB = st.sampled_from([b"", b"\x00", b"\xff" * 9, b"\x00\x01\x7f\xff\xff\xff", b"x" * 100])


def kept(**fields: Any) -> Any:
    return st.fixed_dictionaries(fields)


JOIN = kept(
    group_id=GROUPS,
    session_timeout=st.sampled_from([6000, 10_000, 0, -1, 2**31 - 1]),
    rebalance_timeout=st.sampled_from([1000, 0, -1, -(2**31), 60_000]),
    member_id=MEMBERS,
    group_instance_id=INSTANCES,
    protocol_type=st.sampled_from(["consumer", "", "connect"]),
    protocols=st.lists(kept(name=st.sampled_from(["range", "", "sticky"]), metadata=BLOB), max_size=3),
)
SYNC = kept(
    group_id=GROUPS,
    generation_id=GENERATIONS,
    member_id=MEMBERS,
    group_instance_id=INSTANCES,
    protocol_type=st.sampled_from([None, "consumer", "x"]),
    protocol_name=st.sampled_from([None, "range", "x"]),
    assignments=st.lists(kept(member_id=MEMBERS, assignment=BLOB), max_size=3),
)
BEAT = kept(group_id=GROUPS, generation_id=GENERATIONS, member_id=MEMBERS, group_instance_id=INSTANCES)
LEAVE = kept(group_id=GROUPS, members=st.lists(kept(member_id=MEMBERS, group_instance_id=INSTANCES), max_size=3))
COMMIT = kept(
    group_id=GROUPS,
    generation_id_or_member_epoch=GENERATIONS,
    member_id=MEMBERS,
    group_instance_id=INSTANCES,
    topics=st.lists(
        kept(
            name=st.sampled_from(["t", "u", ""]),
            partitions=st.lists(
                kept(
                    partition_index=st.integers(-1, 1),
                    committed_offset=st.sampled_from([0, 5, -1, -(2**63), 2**63 - 1]),
                    committed_metadata=st.sampled_from([None, "", "é", "x" * 5000]),
                ),
                max_size=2,
            ),
        ),
        max_size=2,
    ),
)
REQUESTS = st.one_of(
    st.tuples(st.just((ApiKey.JOIN_GROUP, 7)), JOIN),
    st.tuples(st.just((ApiKey.JOIN_GROUP, 5)), JOIN),
    st.tuples(st.just((ApiKey.SYNC_GROUP, 5)), SYNC),
    st.tuples(st.just((ApiKey.HEARTBEAT, 4)), BEAT),
    st.tuples(st.just((ApiKey.LEAVE_GROUP, 4)), LEAVE),
    st.tuples(st.just((ApiKey.OFFSET_COMMIT, 8)), COMMIT),
    st.tuples(st.just((ApiKey.DESCRIBE_GROUPS, 5)), kept(groups=st.lists(GROUPS, max_size=3))),
    st.tuples(st.just((ApiKey.DELETE_GROUPS, 2)), kept(groups_names=st.lists(GROUPS, max_size=3))),
    st.tuples(st.just((ApiKey.OFFSET_FETCH, 7)), kept(group_id=GROUPS, topics=st.none())),
)


class Asker:
    """Remembers the last member id that a group gave out: `known` stands for it."""

    def __init__(self) -> None:
        self.known = "known"

    def said(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.said(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.said(item) for item in value]
        return self.known if value == "known" else value

    async def ask(self, connection: Any, key: tuple[ApiKey, int], body: Any) -> None:
        answer = await connection.call(*key, self.said(body), timeout_s=1e6)
        self.known = getattr(answer, "member_id", "") or self.known
        _all_codes_are_kafkas(answer)


def _all_codes_are_kafkas(answer: Any) -> None:
    code = getattr(answer, "error_code", 0)
    assert code in ErrorCode._value2member_map_
    assert code != ErrorCode.UNKNOWN_SERVER_ERROR


def test_group_requests_in_any_order_are_answered_and_the_next_group_works(in_memory: Any) -> None:
    @QUICK
    @given(st.lists(st.tuples(st.integers(0, 2), REQUESTS), min_size=15, max_size=40))
    def check(steps: list[tuple[int, Any]]) -> None:
        async def scenario(cluster: Any) -> None:
            await cluster.start(1, offsets_topic_num_partitions=1, connections_max_idle_ms=-1)
            await cluster.create_topic("t", [(1,)])
            await cluster.create_topic(GROUP_METADATA_TOPIC, [(1,)])
            connections = [await cluster.connect(1) for _ in range(3)]
            asker, asked = Asker(), []
            for which, (key, body) in steps:
                asked.append(asyncio.ensure_future(asker.ask(connections[which], key, body)))
                await cluster.world.sleep(0.5)
            await cluster.world.sleep(400)  # new members are given up after five minutes
            await asyncio.wait_for(asyncio.gather(*asked), 10)
            await _a_group_works(cluster)

        with capture_logs() as lines:
            in_memory(scenario)
        assert [line for line in lines if line["event"] == ev.REQUEST_FAILED] == []

    check()


async def _a_group_works(cluster: Any) -> None:
    body = {
        "group_id": "new",
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    first = await cluster.call(1, ApiKey.JOIN_GROUP, 5, body)
    joined = await cluster.call(1, ApiKey.JOIN_GROUP, 5, {**body, "member_id": first.member_id})
    assert (joined.error_code, joined.generation_id) == (0, 1)


CHANGES = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 255)), max_size=4)


def test_damaged_batches_get_an_error_or_are_stored_whole(in_memory: Any) -> None:
    """With and without a right checksum, in each topic setting; the connection stays and the log stays readable."""
    good = build_batch(
        [Record(n, 1, b"k", b"value") for n in range(2)], producer_id=3, producer_epoch=0, base_sequence=0
    )

    @QUICK
    @given(st.lists(st.tuples(CHANGES, st.booleans(), st.integers(0, len(good))), min_size=15, max_size=40))
    def check(cases: list[tuple[list[tuple[int, int]], bool, int]]) -> None:
        async def scenario(cluster: Any) -> None:
            await cluster.start(1)
            await cluster.create_topic("t", [(1,)])
            for changes, has_crc, size in cases:
                data = bytearray(good)
                for at, byte in changes:
                    data[at % len(data)] = byte
                if has_crc and len(data) > HEADER_BYTES:
                    struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
                records = bytes(data[:size] if size % 3 == 0 else data)
                topics = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
                body = {"acks": -1, "timeout": 1000, "topic_data": topics}
                answer = await cluster.call(1, ApiKey.PRODUCE, 8, body)
                partition = answer.responses[0].partition_responses[0]
                assert partition.error_code in ErrorCode._value2member_map_
                assert (partition.base_offset >= 0) == (partition.error_code == 0)
            wanted = {"partition": 0, "fetch_offset": 0, "log_start_offset": -1, "partition_max_bytes": 1 << 20}
            fetch = {
                "replica_id": -1,
                "max_wait": 0,
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "isolation_level": 0,
                "session_id": 0,
                "session_epoch": -1,
                "topics": [{"topic": "t", "partitions": [wanted]}],
            }
            answer = await cluster.call(1, ApiKey.FETCH, 11, fetch)
            assert answer.responses[0].partitions[0].error_code == 0

        with capture_logs() as lines:
            in_memory(scenario)
        assert [line for line in lines if line["event"] == ev.REQUEST_FAILED] == []

    check()


def test_what_one_connection_sends_does_not_reach_another(in_memory: Any) -> None:
    """Ten connections send garbage, half frames and floods; an eleventh is answered in between, each time."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        endpoint = cluster.brokers[1].endpoint
        good = await cluster.connect(1)
        for number in range(10):
            bad = await cluster.client.network.connect(endpoint.host, endpoint.port)
            bad.send(struct.pack(">i", 1000) + bytes([number]) * (100 * number))
            assert (await good.call(ApiKey.API_VERSIONS, 0, {})).error_code == 0
            bad.send(b"\xff" * 2000)
        with capture_logs() as lines:
            await cluster.world.sleep(5)
        assert (await good.call(ApiKey.API_VERSIONS, 0, {})).error_code == 0
        assert [line for line in lines if line["event"] == ev.REQUEST_FAILED] == []

    in_memory(scenario)


def test_a_connection_is_refused_a_version_and_no_other_notices(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        good, bad = await cluster.connect(1), await cluster.connect(1)
        waiting = asyncio.ensure_future(good.call(ApiKey.API_VERSIONS, 0, {}))
        try:
            await bad.call(ApiKey.METADATA, 12, {"topics": None})
        except Disconnected:
            pass
        else:
            raise AssertionError("an unsupported version was answered")
        assert (await waiting).error_code == 0

    in_memory(scenario)
