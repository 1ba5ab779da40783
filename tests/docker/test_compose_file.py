"""The listeners in docker-compose.yml, read as the programs read them: no Docker is needed."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker_sim import command_line
from broker_sim.config import BrokerSettings
from controller.node.config import parse
from controller.node.run import identity_of, parser
from controller.rules.configs import settings
from controller.rules.configs.listeners import NodeListener

FILE = Path(__file__).resolve().parents[2] / "docker-compose.yml"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]
NODES = [name for name in SERVICES if name.startswith(("broker-", "controller-"))]


def listeners(name: str) -> tuple[int, dict[str, NodeListener]]:
    """The node's id, and its listeners by name."""
    program, *words = shlex.split(SERVICES[name]["command"])
    if program == "controller":
        options = parser().parse_args(words)
        given = settings.load(None, options.override)
        parse(given)
        identity = identity_of(options.controller_id, options.listener, given, "a-container")
        return int(options.controller_id), {each.name: each for each in identity.listeners}
    options = command_line.parse_arguments(words)
    given = settings.load(None, options.override)
    (broker,) = command_line.identities(options, BrokerSettings.parse(given), "a-container")
    return int(broker.broker_id), {each.name: each for each in broker.listeners}


@pytest.mark.parametrize("name", NODES)
def test_a_node_is_reached_by_its_name_within_and_by_localhost_from_the_host(name: str) -> None:
    node_id, found = listeners(name)
    assert name.endswith(f"-{node_id}")
    assert set(found) == {"INTERNAL", "EXTERNAL"}
    internal, external = found["INTERNAL"], found["EXTERNAL"]
    assert (internal.host, internal.port, internal.advertised_host, internal.advertised_port) == ("", 9092, name, 9092)
    assert (external.host, external.advertised_host) == ("", "localhost")
    (published,) = SERVICES[name]["ports"]
    assert published == f"127.0.0.1:{external.advertised_port}:{external.port}"


def test_no_two_nodes_are_published_alike_and_each_checks_its_own_health() -> None:
    assert len({port for name in NODES for port in SERVICES[name]["ports"]}) == len(NODES)
    for name in NODES:
        node_id, _ = listeners(name)
        assert SERVICES[name]["healthcheck"]["test"][-3:] == ["localhost:9092", "--id", str(node_id)]
