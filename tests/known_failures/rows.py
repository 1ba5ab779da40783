"""The failures that ZooKeeper-mode controllers really had: one row each, with what must hold, in a sentence.

A test says which rows it covers by the marker `known_failure("E1", "E2")`; `table` draws docs/known-failures.md from
both. Keys and Kafka's issue numbers are those of the project's list of known failures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Row:
    """One failure. `issue` is Kafka's number, "-" where it has none; `where` says if the row only applies in part."""

    issue: str
    must_hold: str
    where: str = ""


#: heading -> keys that begin with this letter
SECTIONS: Final[dict[str, str]] = {
    "Election and office": "E",
    "Failover": "F",
    "State machines and brokers": "S",
    "Topic deletion": "D",
    "Reassignment": "R",
    "ISR": "I",
    "Request channel and event queue": "C",
    "ZooKeeper client and registration": "Z",
    "Admin tools": "A",
    "Performance": "P",
    "Holes that Kafka 3.9 still has": "X",
}

_NO_ALTER_PARTITION: Final = (
    "AlterPartition comes with inter.broker.protocol 2.7; at 2.6 it is not offered, which is tested"
)

ROWS: Final[dict[str, Row]] = {
    "E1": Row(
        "KAFKA-532",
        "Control requests and state znodes carry the controller epoch; a broker that saw a newer one refuses with 11, "
        "and a controller never overwrites a state of a newer one",
    ),
    "E2": Row(
        "KAFKA-1096",
        "Epoch and fencing version come from the own election alone: one controller id per epoch, and every write "
        "with an older version fails",
    ),
    "E3": Row(
        "KAFKA-4229",
        "After any burst of session events whoever acts owns `/controller` in its present session, and new topics get "
        "leaders",
    ),
    "E4": Row(
        "(minor)",
        "A failover that fails gives the office up in full; the next term works and epochs stop growing",
    ),
    "F1": Row(
        "KAFKA-840",
        "Requests by znode that waited for a controller are granted at failover, after the state machines have started",
    ),
    "F2": Row("KAFKA-928", "A second term of one process is like the first"),
    "F3": Row(
        "KAFKA-4443, KAFKA-831",
        "A broker hears of the live brokers before its first LeaderAndIsr, and of all its replicas before elections",
    ),
    "F4": Row("KAFKA-4447, KAFKA-1578", "Who has resigned sends no request and writes nothing, whatever was queued"),
    "F5": Row("KAFKA-10193", "Each caller that waits in the queue of an expired session gets exactly one answer"),
    "S1": Row(
        "KAFKA-708, KAFKA-5083",
        "The last member stays in the ISR of a partition without leader, and nobody else leads it",
    ),
    "S2": Row("KAFKA-1503, KAFKA-3670", "Leaders are chosen in the order of the replicas, never in that of the ISR"),
    "S3": Row("KAFKA-972, KAFKA-1867", "Each change of membership reaches every live broker, also without partitions"),
    "S4": Row("KAFKA-5502, KAFKA-3085", "One read when an event is processed serves all changes so far, each once"),
    "S5": Row(
        "KAFKA-7235, KAFKA-1120",
        "A higher czxid is a bounce: failure, then start, with requests that carry the new broker epoch",
    ),
    "S6": Row("KAFKA-9866", "The balance never tries a first replica that is offline or out of the ISR"),
    "S7": Row("KAFKA-5329", "Replicas keep one order in the topic znode and in every request"),
    "D1": Row(
        "KAFKA-1558",
        "After a failover a deletion waits for the move of its topic; an election that names a topic in deletion "
        "refuses that one alone",
        "a deletion asked for in the middle of a move starts at once, as in Kafka 3.9 (recorded, and in "
        "docs/deviations.md)",
    ),
    "D2": Row("KAFKA-3175", "With deletion disabled markers go, at the event and at failover, and nothing else does"),
    "D3": Row("KAFKA-9946", "Only the success of an entry that was sent with delete=true counts as deleted"),
    "D4": Row(
        "KAFKA-9539, KAFKA-13972",
        "StopReplica carries the leader epoch; a broker refuses a lower one with 74 and obeys an equal one",
    ),
    "D5": Row("KAFKA-13572, KAFKA-4441", "After every event each gauge equals a recount"),
    "R1": Row(
        "KAFKA-1097, KAFKA-1170",
        "Leaders learn the new replicas before the ISR loses the old ones, and the ISR ends within the replicas",
    ),
    "R2": Row("KAFKA-4214", "A move survives its target being down at failover and ends when it is back"),
    "R3": Row("KAFKA-6193", "The reassignment znode always holds exactly the entries neither done nor refused"),
    "R4": Row("(minor)", "Adding and removing replicas are told apart when a move is resumed"),
    "R5": Row("KAFKA-10314", "Adding replicas are announced as new, the others are not, each time"),
    "I1": Row(
        "KAFKA-1382",
        "A conditional write whose reply was lost is read back: the leader adopts its version, the controller decides "
        "again",
    ),
    "I2": Row(
        "KAFKA-1367, KAFKA-2406",
        "ISR notices become one UpdateMetadata of exactly these partitions, and are all deleted",
    ),
    "I3": Row("KAFKA-7152, KAFKA-4485", "A follower at the leader's end is in sync, however old its last fetch is"),
    "I4": Row("KAFKA-9769", "A broker adopts a leader epoch only with a completed transition"),
    "I5": Row(
        "KAFKA-14010",
        "A failed ISR write is tried again at the latest after the next LeaderAndIsr",
        _NO_ALTER_PARTITION,
    ),
    "I6": Row("KAFKA-14144", "Equal content is success (I1 at this protocol version)", _NO_ALTER_PARTITION),
    "I7": Row("KAFKA-14154", "A zombie never refuses a leader for good", _NO_ALTER_PARTITION),
    "C1": Row("KAFKA-1188", "A raised leader epoch goes to every live replica; an older request changes nothing"),
    "C2": Row("KAFKA-1305", "A stalled broker delays only itself, with a bounded backlog"),
    "C3": Row("KAFKA-2300", "A request that cannot be built or sent leaves nothing behind that stops the next"),
    "C4": Row("(minor)", "Every type of event is handled and timed; no instrumentation loses one"),
    "Z1": Row("KAFKA-1971", "A second broker with a taken id is refused and leaves the registration alone"),
    "Z2": Row("KAFKA-7165, KAFKA-992, KAFKA-1387", "After a lost session a broker replaces its own old registration"),
    "Z3": Row("KAFKA-13461, KAFKA-7987", "A resignation that keeps the session is followed by an election that works"),
    "A1": Row(
        "KAFKA-10779, KAFKA-4596",
        "Throttles of a move that replaces another one take the original replicas as sources, and only its partitions",
    ),
    "P1": Row("KAFKA-1355, KAFKA-901", "A new partition costs one entry per broker, not all metadata"),
    "P2": Row("KAFKA-4415, KAFKA-4420", "A controlled shutdown shares its entries and sends StopReplica twice"),
    "P3": Row("KAFKA-5642", "Round trips grow with batches, not with partitions; a conflict repeats only its own"),
    "P4": Row("KAFKA-6116", "Log bytes grow with the partitions that an event touches"),
    "P5": Row("KAFKA-5879", "A burst of notices is read once and told once"),
    "P6": Row("KAFKA-6753, KAFKA-10040", "An event without effect costs the same in a large cluster"),
    "P7": Row(
        "KAFKA-17061, KAFKA-10794, KAFKA-6481, KAFKA-6630",
        "Work grows at most in step with brokers and partitions",
    ),
    "X1": Row(
        "KAFKA-13407", "An own left-over `/controller` is deleted and the office won again; a foreign one waited for"
    ),
    "X2": Row("KAFKA-10548", "A deletion that waits names the brokers that it waits for"),
    "X3": Row("-", "The znodes of a deleted topic go deepest first, in pipelined batches"),
    "X4": Row("KAFKA-14845", "A foreign registration is final only after a session timeout"),
    "X5": Row("-", "A registration that vanishes between two looks at it is created again"),
    "X6": Row("KAFKA-6029", "A controlled shutdown is answered when the new leaders lead, or after a limit"),
}

_BROKER: Final = "it is of one request or one rule of a broker; the simulation cuts brokers off at any moment"
_COST: Final = "it is of cost: counts, not outcomes"
_REAL: Final = "it is of sessions and registrations, played with real and simulated clients, which lose them anywhere"

#: Rows that no fault at a step of the controller can make worse, and why.
WITHOUT_STEPS: Final[dict[str, str]] = {
    "F4": "a rival at every step is its fault: E2 and F5 have it",
    **dict.fromkeys(("I3", "I4", "I5", "I6", "I7"), _BROKER),
    **dict.fromkeys(("C2", "C3", "C4"), "it is of one channel, or of each type of event"),
    **dict.fromkeys(("Z1", "Z2", "Z3", "X4", "X5"), _REAL),
    "A1": "it is of what a tool computes before it writes",
    **dict.fromkeys((f"P{n}" for n in range(1, 8)), _COST),
    "X3": "D3 deletes with a fault at every step; this row is of the number of steps",
    "X6": "it is of an answer in time; F5 has the faults of its caller",
}
