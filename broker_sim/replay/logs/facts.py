"""What one line of a log says, as a flat value. Pure; crosses the border to Arrow as columns."""

from __future__ import annotations

from typing import Final, NamedTuple


class What:
    """The values of `Fact.what`. Those that are trace events carry the event's name."""

    CONFIG: Final = "config"
    START: Final = "start"
    DOWN: Final = "down"
    LEADER: Final = "leader"
    FOLLOWER: Final = "follower"
    #: a log was deleted; `key` is the dir in which it was, where the line has it
    STOP: Final = "stop"
    ASSIGN: Final = "assign"
    ELECT: Final = "elect"
    BROKER_UP: Final = "broker_up"
    BROKER_DOWN: Final = "broker_down"
    FETCH: Final = "fetch"
    APPEND: Final = "append"
    HW: Final = "hw"
    TICK: Final = "tick"
    #: a copy of the log is being made in dir `key`; it has taken the place of the log
    COPY: Final = "copy"
    COPIED: Final = "copied"
    #: the deletion of a topic has begun: `topic` alone
    DELETE: Final = "delete"
    #: a follower lost its connection to broker `replica`
    LOST: Final = "lost"
    #: an attempt to shrink: `isr_old`, `isr`, and who is out as `value` ("3:1000:1717315210000 …")
    SHRINKING: Final = "shrinking"
    #: an attempt to expand, with both sets (up to 2.7)
    EXPANDING: Final = "expanding"
    #: an attempt to expand, with the replica alone (DEBUG)
    SUBMITTED: Final = "submitted"
    #: the ISR was written: `isr`, `zk_version`
    UPDATED: Final = "updated"
    #: the write was refused; the ISR stays
    REFUSED: Final = "refused"
    #: a follower's state was set back by a leadership: `cu` (TRACE)
    RESET: Final = "reset"
    #: the replica set of a leadership, from a LeaderAndIsr request
    LED: Final = "led"
    #: the assignment that a request to a leader carries
    SENT: Final = "sent"
    #: the controller raised the epoch and nothing else
    BUMP: Final = "bump"
    #: the brokers that a new controller sees
    LIVE: Final = "live"
    #: a produce request's base offset; how far it reached is told by what follows
    PRODUCED: Final = "produced"
    #: requests were answered from `at_us` to `ts` without a pause
    ANSWERED: Final = "answered"
    #: a fetch within a session, and what it names
    SESSION: Final = "session"
    SESSION_ASK: Final = "session_ask"
    SESSION_ERROR: Final = "session_error"
    SESSION_FORGET: Final = "session_forget"


#: Not said by a line. A line that cannot be used: `key` is the reason, `value` the line.
BAD: Final = "bad"
#: A broker of which there are facts: `value` is what marks its kind.
SEEN: Final = "seen"
#: What stands for the broker of a group that is of no broker.
CLUSTER: Final = -1
#: Of the cluster, not of who wrote it: woven in one group.
OF_CLUSTER: Final = (What.LOST, What.BROKER_UP, What.BROKER_DOWN, What.LIVE)
#: What is needed only to expand fetch sessions.
OF_SESSIONS: Final = (What.SESSION, What.SESSION_ASK, What.SESSION_ERROR, What.SESSION_FORGET)


class Fact(NamedTuple):
    """One thing that a line says. Column names as in `controller.wire.trace`.

    First what every fact has, and fetches and appends, of which there are many; then what the rare ones have.
    """

    broker: int | None
    #: orders facts of a broker, microseconds since the epoch; a line's time has ms only.
    at_us: int
    what: str
    topic: str | None = None
    partition: int | None = None
    #: ms, the time that counts for the decision; `at_us` where null
    ts: int | None = None
    replica: int | None = None
    offset: int | None = None
    leo: int | None = None
    hw: int | None = None
    bytes: int | None = None
    req_epoch: int | None = None
    err: int | None = None
    session: int | None = None
    #: correlation id of a fetch within a session
    correlation: int | None = None
    epoch: int | None = None
    isr: list[int] | None = None
    isr_old: list[int] | None = None
    replicas: list[int] | None = None
    adding: list[int] | None = None
    removing: list[int] | None = None
    zk_version: int | None = None
    cu: int | None = None
    key: str | None = None
    value: str | None = None
    #: where the line stands: the file, and a number that is greater than that of the line before
    file: str | None = None
    line: int | None = None
    #: order among the facts of one line
    sub: int = 0

    @property
    def content(self) -> tuple[object, ...]:
        """All but where it stands: equal facts of two copies of a file have the same."""
        return self[:_PLACE]


_PLACE: Final = Fact._fields.index("file")
