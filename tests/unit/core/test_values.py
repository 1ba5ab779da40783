"""Numbers that Kafka has for what a controller does; those of brokers, which are names; and that what goes in and out
of the core never changes."""

from __future__ import annotations

import dataclasses
import re
from types import ModuleType
from typing import Any

import pytest

from controller.core import effects, events, leader_choice, partitions, settings, state_znodes, transitions
from controller.core.events import ControllerState, ElectionType
from tests.worlds.data import SCENES, Cluster

#: Source: Kafka 3.9 `ControllerState`.
DOING = (
    "IDLE CONTROLLER_CHANGE BROKER_CHANGE TOPIC_CHANGE TOPIC_DELETION ALTER_PARTITION_REASSIGNMENT AUTO_LEADER_BALANCE "
    "MANUAL_LEADER_BALANCE CONTROLLED_SHUTDOWN ISR_CHANGE LEADER_AND_ISR_RESPONSE_RECEIVED LOG_DIR_CHANGE "
    "CONTROLLER_SHUTDOWN UNCLEAN_LEADER_ELECTION_ENABLE TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE "
    "LIST_PARTITION_REASSIGNMENT UPDATE_METADATA_RESPONSE_RECEIVED"
)


def test_what_the_controller_does_has_kafkas_numbers() -> None:
    assert {each.name: each.value for each in ControllerState} == {name: n for n, name in enumerate(DOING.split())}
    assert {each.name: each.value for each in ElectionType} == {"PREFERRED": 0, "UNCLEAN": 1}


def values_of(module: ModuleType) -> list[type[Any]]:
    return [
        each
        for each in vars(module).values()
        if isinstance(each, type) and dataclasses.is_dataclass(each) and each.__module__ == module.__name__
    ]


MODULES = (events, effects, leader_choice, partitions, settings, state_znodes, transitions)


@pytest.mark.parametrize("value", [v for each in MODULES for v in values_of(each)], ids=lambda value: value.__name__)
def test_events_effects_and_what_is_decided_are_values(value: type[Any]) -> None:
    """As such they are compared by what they say, and never change."""
    assert value.__hash__ not in (None, object.__hash__), "dataclasses have a hash where nothing of them changes"
    for field in dataclasses.fields(value):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(object.__new__(value), field.name, None)


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_to_be_broker_0_makes_no_difference(scene: Any) -> None:
    """Nor which of the four it is."""

    def played(*brokers: int) -> str:
        cluster = Cluster(brokers=brokers, unclean_leader_election_enable=True)
        cluster.recounts = False
        for dies in brokers[:2]:
            scene(cluster)
            cluster.go_on(seconds=1)
            cluster.broker_dies(dies)
            cluster.go_on(seconds=1)
            cluster.broker_starts(dies)
            cluster.go_on(seconds=1)
        leaders = (getattr(request, "live_leaders", ()) for request in cluster.sent)
        said = (*cluster.lines, *cluster.logs, *cluster.traces, *cluster.replies.values(), *leaders)
        return "\n".join(map(str, said))

    for first in (0, 3):
        ids = [(first + n) % 4 for n in range(4)]
        others = played(*(20_000 + each for each in ids))
        assert played(*ids) == re.sub("2000(?=[0-3])|2(?=900[0-3])", "", others), "and ports are of 9000 and the id"
