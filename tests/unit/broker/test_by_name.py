"""`--broker-id by-name`: one command for containers that an engine numbers."""

from __future__ import annotations

from typing import Any

import pytest

from broker_sim.command_line import CommandLineError, parse_arguments
from broker_sim.numbered import by_name


def options(broker_id: str = "by-name") -> Any:
    words = f"run --zookeeper z:1 --broker-id {broker_id} --rack a,b --log-dirs /d/{{id}} --metrics-listener :9400"
    words += " --listener IN://:9092,EX://:{19090+id} --override advertised.listeners=IN://{name}:9092"
    return parse_arguments(words.split())


def test_the_number_and_the_name_are_filled_in_and_racks_go_in_turn() -> None:
    found = by_name(options(), lambda: "kwob-broker-12")
    assert (found.broker_id, found.rack, found.log_dirs) == ("12", "b", "/d/12")
    assert found.listener == "IN://:9092,EX://:19102"
    assert found.override == ["advertised.listeners=IN://kwob-broker-12:9092"]


def test_given_ids_change_nothing_and_nobody_is_asked() -> None:
    given = options("1,2")
    assert by_name(given, lambda: pytest.fail("asked")) is given


@pytest.mark.parametrize(
    ("name", "says"),
    [(None, "no name server knows this machine"), ("laptop", "its name 'laptop' does not end in a number")],
)
def test_without_a_number_it_is_refused(name: str | None, says: str) -> None:
    with pytest.raises(CommandLineError, match=says):
        by_name(options(), lambda: name)
