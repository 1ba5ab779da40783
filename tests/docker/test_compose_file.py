"""docker-compose.yml, read as the programs read it: no Docker is needed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker_sim import command_line
from broker_sim.config import BrokerSettings
from broker_sim.identity import BrokerIdentity
from broker_sim.numbered import by_name
from controller.node.config import parse
from controller.node.run import identity_of, parser
from controller.rules.configs import settings
from controller.rules.configs.environment import NOT_SETTINGS, of_environment
from controller.rules.configs.listeners import NodeListener

FILE = Path(__file__).resolve().parents[2] / "docker-compose.yml"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]
CONTROLLERS = [name for name in SERVICES if name.startswith("controller-")]


def words_of(name: str, program: str) -> list[str]:
    found, *words = shlex.split(SERVICES[name]["command"])
    assert found == program
    return words


def broker(number: int) -> BrokerIdentity:
    """Who the container of this number is."""
    options = command_line.parse_arguments(words_of("broker", "broker"))
    options = by_name(options, lambda: f"kwob-broker-{number}")
    given = settings.load(None, options.override)
    (found,) = command_line.identities(options, BrokerSettings.parse(given), "a-container")
    return found


def where(listeners: tuple[NodeListener, ...]) -> dict[str, tuple[str, int, str | None, int | None]]:
    return {each.name: (each.host, each.port, each.advertised_host, each.advertised_port) for each in listeners}


@pytest.mark.parametrize("number", [1, 2, 3, 9, 12])
def test_a_broker_has_its_containers_number_name_port_folder_and_turn_of_the_racks(number: int) -> None:
    found = broker(number)
    port = 19_090 + number
    assert (found.broker_id, found.rack) == (number, "abc"[(number - 1) % 3])
    assert found.log_dirs == (Path(f"/data/broker-{number}"),)
    assert where(found.listeners) == {
        "INTERNAL": ("", 9092, f"kwob-broker-{number}", 9092),
        "EXTERNAL": ("", port, "localhost", port),
    }


@pytest.mark.parametrize("name", CONTROLLERS)
def test_a_controller_is_reached_by_its_name_within_and_by_localhost_from_the_host(name: str) -> None:
    options = parser().parse_args(words_of(name, "controller"))
    given = settings.load(None, options.override)
    parse(given)
    found = identity_of(options.controller_id, options.listener, given, "a-container")
    assert name.endswith(f"-{options.controller_id}")
    (published,) = SERVICES[name]["ports"]
    port = int(published.rpartition(":")[2])
    assert published == f"127.0.0.1:{port}:{port}"
    assert where(found.listeners) == {"INTERNAL": ("", 9092, name, 9092), "EXTERNAL": ("", port, "localhost", port)}
    assert SERVICES[name]["healthcheck"]["test"][-3:] == ["localhost:9092", "--id", str(options.controller_id)]


def test_what_is_published_leads_to_the_port_that_each_broker_tells_clients() -> None:
    here, flag, to = words_of("external", "forward")
    assert (flag, to) == ("--to", "${COMPOSE_PROJECT_NAME}-broker-{n}")
    (published,) = SERVICES["external"]["ports"]
    first, last = map(int, re.fullmatch(r"0\.0\.0\.0:(\d+)-(\d+)", here).groups())
    assert published == f"127.0.0.1:{first}-{last}:{first}-{last}"
    assert [where(broker(n).listeners)["EXTERNAL"][3] for n in range(1, last - first + 2)] == [*range(first, last + 1)]


def test_every_variable_that_it_passes_on_is_a_setting() -> None:
    examples = {"MS": "1000", "ENABLE": "true"}
    passed = {name for service in SERVICES.values() for name in service.get("environment", ()) if "KWOB" in name}
    assert len(passed) > 5
    given = of_environment({name: examples.get(name.rpartition("_")[2], "2") for name in passed})
    assert len(given) == len(passed) and given["min.insync.replicas"] == "2"


def test_what_this_project_reads_itself_is_no_setting() -> None:
    """Else a program that a test or a benchmark starts would refuse the variable that steers it."""
    root = FILE.parent
    files = [
        *root.glob(".ci/*"),
        *(p for folder in ("tests", "controller", "broker_sim") for p in root.glob(f"{folder}/**/*.py")),
    ]
    read = re.compile(r'environ(?:\.get\(|\[)"(KWOB_[A-Z_]+)"|\$\{(KWOB_[A-Z_]+)')
    found = {a or b for path in files if path.is_file() for a, b in read.findall(path.read_text(encoding="utf-8"))}
    assert {"KWOB_PY_SPY", "KWOB_REAL_KAFKA", "KWOB_BENCH"} <= found
    assert found <= NOT_SETTINGS, found - NOT_SETTINGS


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_depends_on_is_there_in_each_of_its_profiles(name: str) -> None:
    profiles = set(SERVICES[name].get("profiles", ()))
    for needed in SERVICES[name].get("depends_on", ()):
        also_in = set(SERVICES[needed].get("profiles", ()))
        assert not also_in or (profiles and profiles <= also_in), f"{needed} is absent where {name} is asked for"
