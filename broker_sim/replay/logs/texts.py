"""Kafka's messages about replication, 1.x to 4.x: who speaks, and what is said. Pure.

A message is looked up by its speaker (the bracket in front) and its first word, so that an irrelevant line costs one
look. One that begins as a row of a table does and does not fit the rest is of a text that is not known: it counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from broker_sim.replay.logs import texts_of_kraft
from broker_sim.replay.logs.said import Said, Text
from broker_sim.replay.logs.texts_of_controllers import OF_CONTROLLER
from broker_sim.replay.logs.texts_of_leaders import OF_BROKER, OF_PARTITION
from broker_sim.replay.logs.texts_of_processes import BARE, DELETER, FETCHER, OF_REPLICA_MANAGER, OF_SERVER


def _by_word(table: tuple[Text, ...]) -> dict[str, tuple[Text, ...]]:
    """The rows by the first word of a message; those that begin with any word have no word."""
    words = dict.fromkeys(text.begins.partition(" ")[0] for text in table)
    return {word: tuple(text for text in table if text.begins.partition(" ")[0] == word) for word in words}


#: The last group that matches names the speaker: its number in the pattern, and what it may say.
_SPEAKER: Final = re.compile(
    r"\[(?:Partition ([\w.-]+)-(\d+) broker=(\d+)|Broker id=(\d+)|Controller (?:id=)?(\d+)(?:,? epoch=\d+)?|"
    r"ReplicaManager broker=(\d+)|(?:Kafka|Broker)Server id=(\d+)|QuorumController id=(\d+)|"
    r"(?:DynamicConfigPublisher (?:nodeType=)?broker|BrokerMetadataPublisher) id=(\d+))\]:?,? "
)
_LEADER: Final = 3
_SPOKEN: Final = {
    _LEADER: _by_word(OF_PARTITION),
    4: _by_word((*OF_BROKER, *texts_of_kraft.OF_BROKER)),
    5: _by_word((*OF_CONTROLLER, *texts_of_kraft.OF_QUORUM)),  # those of 3.3 and 3.4 have this name, too
    6: _by_word(OF_REPLICA_MANAGER),
    7: _by_word(OF_SERVER),
    8: _by_word(texts_of_kraft.OF_QUORUM),
    9: _by_word(texts_of_kraft.OF_CONFIGS),
}
_BARE: Final = _by_word(BARE)
#: A message that matches none of these says nothing that is needed: what Spark looks at before Python does.
RELEVANT: Final = "|".join(
    [
        r"\[Partition \S+ broker=\d+\] (?:"
        + "|".join([*(re.escape(t.begins) for t in OF_PARTITION if t.begins), r"\S+ starts at [Ll]eader"])
        + ")",
        r"\[Broker id=\d+\] (?:" + "|".join(f"{t.begins}\\S+" for t in (*OF_BROKER, *texts_of_kraft.OF_BROKER)) + ")",
        r"\[QuorumController id=\d+\] (?:" + "|".join(sorted({t.begins for t in texts_of_kraft.OF_QUORUM})) + ")",
        r"\[(?:DynamicConfigPublisher (?:nodeType=)?broker|BrokerMetadataPublisher) id=\d+\] Updating topic ",
        r"\[Controller [^\]]*\]:?,? (?:"
        + "|".join(sorted({re.escape(t.begins) for t in (*OF_CONTROLLER, *texts_of_kraft.OF_QUORUM)}))
        + ")",
        r"\[ReplicaManager broker=\d+\] (?:Evaluating ISR list|\d+ written to log)",
        r"\[(?:Kafka|Broker)Server id=\d+\],? shut down completed",
        *(re.escape(t.begins) for t in BARE if t.begins not in (FETCHER, DELETER)),
        r"\[ReplicaFetcher [^\]]*\] (?:Node \d+ disconnected|Connection to node \d+ )",
        r"\[Topic Deletion Manager \d+\],? (?:Handling deletion for topics|Topic deletion callback for) ",
        "KafkaConfig values:",
        "Completed request:",
    ]
)


class UnknownText(ValueError):
    """A message begins like one that is needed, but goes on in a way that is not known."""


def said_by(text: str) -> tuple[int | None, list[Said]]:
    """Who speaks (a broker's id, where the message tells), and what is said; nothing for an irrelevant message.

    Raises: UnknownText.
    """
    speaker = _SPEAKER.match(text)
    if speaker is None:
        return None, _first_fit(_BARE, text)
    role = speaker.lastindex
    assert role is not None
    found = _first_fit(_SPOKEN[role], text[speaker.end() :])
    if role == _LEADER:
        topic, partition = speaker[1], int(speaker[2])
        for fact in found:
            fact["topic"], fact["partition"] = topic, partition
    return int(speaker[role]), found


def _first_fit(table: Mapping[str, tuple[Text, ...]], message: str) -> list[Said]:
    begins_alike = False
    for text in table.get(message.partition(" ")[0]) or table.get("", ()):
        if message.startswith(text.begins):
            match = text.pattern.match(message)
            if match is not None:
                return list(text.says(match))
            begins_alike = begins_alike or bool(text.begins and text.begins not in _SHARED)
    if begins_alike or _TELLING.search(message):
        raise UnknownText(message)
    return []


#: Beginnings that irrelevant messages share, and what tells the relevant ones from them.
_SHARED: Final = frozenset(
    {"Changed partition ", "Partition ", "Log for partition ", "Leader ", "Follower ", FETCHER, DELETER}
    | {"Skipped ", "The request from broker ", "Unfenced broker "}
)
_TELLING: Final = re.compile(r" with state LeaderAndIsr\(| after removing replica |starts at leader epoch")
