"""What the records of a partition leave of groups and offsets, whatever stands among them and however they are batched.

Source: Kafka 3.9 `GroupMetadataManager.doLoadGroupsAndOffsets`.
"""

from __future__ import annotations

from typing import Any, Final

import structlog
from hypothesis import example, given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from broker_sim.groups.log import LoadedPartition
from broker_sim.groups.records import (
    CommittedOffset,
    OffsetKey,
    StoredGroup,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from controller.wire import log_events as ev
from controller.wire.records import build_values, place
from controller.wire.types import TopicPartition

Pair = tuple[bytes | None, bytes | None]
GROUPS, PLACES = ("g", "h"), (TopicPartition("t", 0), TopicPartition("t", 1))
OFFSET_KEYS: Final = {(group, tp): encode_offset_key(OffsetKey(group, tp)) for group in GROUPS for tp in PLACES}
GROUP_KEYS: Final = {group: encode_group_key(group) for group in GROUPS}
A_VALUE: Final = encode_offset_value(CommittedOffset(offset=77))
#: Records that say nothing: keys of other formats, of which there is none, and such as are cut; then such values.
USELESS: Final[list[Pair]] = [
    *((key, A_VALUE) for key in (None, b"", b"\x00\x09", b"\x00\x03later", b"\xff\xff", GROUP_KEYS["g"][:-1])),
    *((key, None) for key in (None, b"\x00\x09", OFFSET_KEYS["g", PLACES[0]][:-1])),
    *((key, value) for key in OFFSET_KEYS.values() for value in (b"", b"\x00\x63", b"\x00\x03")),
    *((key, value) for key in GROUP_KEYS.values() for value in (b"", b"\x00\x63", b"\x00\x03")),
    (OFFSET_KEYS["g", PLACES[0]], A_VALUE[:-1]),
]


def stored(generation: int) -> StoredGroup:
    return StoredGroup(
        protocol_type="", generation=generation, protocol=None, leader=None, state_changed_ms=1, members=()
    )


class Model:
    """The last value of each key, if it has not been taken back."""

    def __init__(self) -> None:
        self.groups: dict[str, StoredGroup] = {}
        self.offsets: dict[tuple[str, TopicPartition], int] = {}

    def take(self, step: Any) -> Pair:
        """The record that says this."""
        match step:
            case ("group", group, None):
                self.groups.pop(group, None)
                return GROUP_KEYS[group], None
            case ("group", group, number):
                self.groups[group] = stored(number)
                return GROUP_KEYS[group], encode_group_value(self.groups[group])
            case ("offset", key, None):
                self.offsets.pop(key, None)
                return OFFSET_KEYS[key], None
            case ("offset", key, number):
                self.offsets[key] = number
                return OFFSET_KEYS[key], encode_offset_value(CommittedOffset(offset=number))
            case _:
                useless: Pair = step
                return useless


NUMBERS = st.none() | st.integers(0, 9)
STEPS = (
    st.tuples(st.just("group"), st.sampled_from(GROUPS), NUMBERS)
    | st.tuples(st.just("offset"), st.sampled_from(list(OFFSET_KEYS)), NUMBERS)
    | st.sampled_from(USELESS)
)
KEY: Final = ("g", PLACES[0])


@given(st.lists(st.lists(STEPS, min_size=1, max_size=8), max_size=4))
@example([[("offset", KEY, 1), useless, ("offset", KEY, 2), ("group", "h", 3)] for useless in USELESS])
@example([[*USELESS, ("offset", KEY, 2), *USELESS, ("group", "g", 3)], [("offset", KEY, None)]])
def test_what_cannot_be_read_costs_nothing_but_itself(batches: list[list[Any]]) -> None:
    """What stands before and behind it counts, in its batch and in the next; each such record is named in the log."""
    model, found, end, useless = Model(), LoadedPartition(), 0, []
    with capture_logs() as lines:
        for steps in batches:
            useless += [end + n for n, step in enumerate(steps) if step in USELESS]
            batch = build_values([model.take(step) for step in steps], timestamp=1)
            found.take(place(batch, base_offset=end, partition_leader_epoch=0), structlog.get_logger())
            end += len(steps)
    assert found.groups == model.groups
    offsets = {(g, tp): each for g, of_group in found.offsets.items() for tp, each in of_group.items()}
    assert offsets == {key: CommittedOffset(offset=number) for key, number in model.offsets.items()}
    assert [(line["event"], line["offset"]) for line in lines] == [(ev.GROUP_RECORD_REFUSED, at) for at in useless]
