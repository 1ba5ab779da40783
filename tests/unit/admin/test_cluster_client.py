"""The client: finding the controller, repeating, giving up in one line, keeping to versions both sides know."""

from __future__ import annotations

import random
import re
from itertools import product
from typing import Any

import pytest

from controller.admin.cluster.client import AdminClient
from controller.admin.cluster.links import InvalidBootstrap, parse_bootstrap
from controller.admin.commands import log_dirs, topics
from controller.admin.commands import reassign_partitions as reassign
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.world.simulated.loop import run as run_virtually
from controller.world.simulated.net import SimulatedNetwork


def test_the_controller_is_found_from_any_broker(cluster: Any, tool: Any) -> None:
    cluster.controller = 2
    assert tool(topics, cluster, ["--create", "--topic", "a"], bootstrap="b1:9092").code == 0
    assert [broker for broker, key, _ in cluster.seen if key is ApiKey.CREATE_TOPICS] == [2]


@pytest.mark.feature("003-08")
def test_a_controller_that_moved_is_found_again(cluster: Any, tool: Any) -> None:
    def move(broker: int, _: Any) -> Any:
        if broker == 0:
            cluster.controller = 2
            return {"topics": [{"name": "a", "error_code": ErrorCode.NOT_CONTROLLER}]}
        return None

    cluster.answers[ApiKey.CREATE_TOPICS] = move
    assert tool(topics, cluster, ["--create", "--topic", "a"]).out == "Created topic a.\n"
    assert [broker for broker, key, _ in cluster.seen if key is ApiKey.CREATE_TOPICS] == [0, 2]


def test_the_next_bootstrap_server_is_tried(cluster: Any, tool: Any) -> None:
    cluster.down = {0}
    cluster.controller = 1
    assert tool(topics, cluster, ["--list"], bootstrap="b0:9092,b2:9092").code == 0


SOME = [(0,), (1,), (0, 1)]


@pytest.mark.parametrize("lost", ["with its connections", "while nothing was connected"])
@pytest.mark.parametrize("bootstrap", SOME)
def test_who_is_known_and_who_was_named_lead_back_to_the_cluster(
    cluster: Any, bootstrap: tuple[int, ...], lost: str
) -> None:
    """Whoever was listed, and whoever lives then: one of them that is listed or in the list suffices."""

    async def found_again(listed: tuple[int, ...], alive: tuple[int, ...]) -> set[int]:
        network = SimulatedNetwork(random.Random(7))
        cluster.down = set()
        await cluster.start(network)
        cluster.down = {0, 1} - {*listed}
        async with AdminClient(network.view("laptop"), ",".join(f"b{n}:9092" for n in bootstrap)) as client:
            assert {*await client.nodes()} == {*listed}
            if lost == "while nothing was connected":
                client.close()
            cluster.down = {0, 1} - {*alive}
            for broker in cluster.down:
                network.kill(f"b{broker}")
            return {*await client.nodes()}

    cluster.brokers = {0: None, 1: None}
    for listed, alive in product(SOME, SOME):
        if {*alive} & {*listed, *bootstrap}:
            assert run_virtually(found_again(listed, alive)) == {*alive}, (listed, alive)


def test_nobody_there_is_one_line_within_seconds(cluster: Any, tool: Any) -> None:
    outcome = tool(topics, cluster, ["--list"], bootstrap="b7:9092")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("Cannot reach b7:9092 (")
    assert outcome.err.count("\n") == 1
    assert outcome.took_s < 6


def test_a_cluster_without_a_controller_is_reached_all_the_same(cluster: Any, tool: Any) -> None:
    """Brokers answer what they know; what only a controller can do times out with them."""
    cluster.unanswered.add(ApiKey.CREATE_TOPICS)
    outcome = tool(topics, cluster, ["--create", "--topic", "t"])
    assert outcome.code == 1
    assert outcome.err == (
        "Timed out: b0:9092 is reached, but CreateTopics got no answer in 60 s. "
        "There is no controller, or ZooKeeper is away (kwob status).\n"
    )


def test_a_server_that_is_no_kafka_is_one_line(cluster: Any, tool: Any) -> None:
    cluster.greeting = b"SSH-2.0-OpenSSH_9.6\r\n"
    outcome = tool(topics, cluster, ["--list"])
    assert outcome.err.startswith("b0:9092 does not answer as a Kafka broker (")
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)


def test_a_server_that_says_nothing_is_named_once_with_how_long_it_was_waited_for(cluster: Any, tool: Any) -> None:
    cluster.mute.add(0)
    outcome = tool(topics, cluster, ["--list"])
    assert re.fullmatch(
        r"b0:9092 does not answer as a Kafka broker \(b0:9092: no answer in \d+ s\)\. "
        r"Point --bootstrap-server at a broker's PLAINTEXT listener\.\n",
        outcome.err,
    )


def test_a_broker_that_wants_to_know_who_asks_is_told_apart_from_nobody(cluster: Any, tool: Any) -> None:
    """A SASL listener answers ApiVersions, then closes the connection."""
    cluster.closes_at.add(ApiKey.METADATA)
    outcome = tool(topics, cluster, ["--list"])
    assert outcome.err == (
        "Cannot use b0:9092 (b0:9092 closed the connection): it ended, or wants SASL; a PLAINTEXT listener is needed.\n"
    )


def test_a_request_that_brokers_do_not_know(cluster: Any, tool: Any) -> None:
    cluster.answers[ApiKey.API_VERSIONS] = lambda broker, body: {"api_keys": []}
    outcome = tool(topics, cluster, ["--list"])
    assert outcome.out == "Error while executing topic command : The broker does not support Metadata\n"


@pytest.mark.parametrize("text", ["nonsense", "h:", ":1", "h:x", "h:0", "h:65536", "", ",", "h:١"])
def test_bootstrap_lists_that_cannot_be_read(cluster: Any, tool: Any, text: str) -> None:
    with pytest.raises(InvalidBootstrap):
        parse_bootstrap(text)
    outcome = tool(topics, cluster, ["--list"], bootstrap=text or ",")
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1


def test_bootstrap_lists() -> None:
    assert parse_bootstrap("a:1, PLAINTEXT://b:2,[::1]:3") == [("a", 1), ("b", 2), ("::1", 3)]


def test_a_bare_controller_holds_no_replicas(cluster: Any, tool: Any) -> None:
    cluster.lacks[0] = {ApiKey.FETCH, ApiKey.DESCRIBE_LOG_DIRS}
    outcome = tool(log_dirs, cluster, ["--describe"])
    assert "Received log directory information from brokers 1,2\n" in outcome.out
    outcome = tool(log_dirs, cluster, ["--describe", "--broker-list", "0,9"])
    assert outcome.err == (
        "ERROR: The given brokers do not exist from --broker-list: 0,9. Current existent brokers: 1,2\n"
    )
    assert outcome.code == 1


def test_property_files_set_the_time_limit_without_a_controller(cluster: Any, tool: Any, tmp_path: Any) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=me\nrequest.timeout.ms=500\ndefault.api.timeout.ms=3000\n")
    cluster.controller = -1
    outcome = tool(reassign, cluster, ["--list", "--command-config", str(file)])
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (1, "", 1)
    assert "no broker of b0:9092 took ListPartitionReassignments" in outcome.err
    assert 3 <= outcome.took_s < 4
    for text in ("request.timeout.ms=x", "security.protocol=SSL"):
        file.write_text(text)
        outcome = tool(reassign, cluster, ["--list", "--command-config", str(file)])
        assert (outcome.code, outcome.err.count("\n")) == (1, 1)
        assert text in outcome.err
