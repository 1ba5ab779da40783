"""Changes of a partition, and records about brokers and configs, as rows of a trace. Pure.

The controller's rows are of role `controller`. What a leader must have seen (that it leads, that its AlterPartition was
granted) are rows of role `broker`. `key` = `made_by` and `value` = the cause tell who made a change: inferred, always.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from broker_sim.replay.metadata_log.causes import BY_LEADERS
from broker_sim.replay.metadata_log.fold import Change, Kind
from broker_sim.replay.schema import SRC_METADATA, SRC_SNAPSHOT
from controller.wire.trace import BROKER_REGISTERED_KEY, COLUMNS, STOP_UNKNOWN, TraceEvent
from controller.wire.whole import whole

MADE_BY: Final = "made_by"
#: `value` of an assignment with which a topic begins.
CREATED: Final = "created"
#: Leader of a partition that has none.
NOBODY: Final = -1
#: The broker of a controller's row where nothing tells which controller it was.
NO_CONTROLLER: Final = -1
#: Rows of log files of the same ms have the numbers below.
_SEQ_SHIFT: Final = 12
_SEQ_FIRST: Final = 1 << (_SEQ_SHIFT - 1)

#: Columns of the rows that come out.
EMITTED: Final = (*COLUMNS, "role", "file")


@dataclass(slots=True)
class Teller:
    """Tells the changes of one partition; feed them in the order of the log, drain `rows`.

    `controllers`: which controller led the quorum in an epoch.
    """

    topic: str
    partition: int
    controllers: Mapping[int, int]
    file: str | None = None
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    _seq: int = -1
    _leader: int = NOBODY
    _leader_epoch: int = -1

    def feed(self, change: Change) -> None:
        """Takes the next change."""
        if change.event == Kind.WITHOUT_STATE:
            return
        self._tell(change)
        if self._leader not in (NOBODY, change.leader):
            self._steps_down(change)
        self._leader = NOBODY if change.leader is None else change.leader
        self._leader_epoch = -1 if change.leader_epoch is None else change.leader_epoch

    def _tell(self, change: Change) -> None:
        match change.event:
            case Kind.DELETED:
                self._by_controller(change, TraceEvent.DELETE)
            case Kind.UNKNOWN:
                self._by_controller(change, TraceEvent.STOP, value=STOP_UNKNOWN)
            case Kind.CREATED | Kind.SNAPSHOT:
                self._begins(change)
            case _:
                self._changes(change)

    def _steps_down(self, change: Change) -> None:
        """Who led learns that another does, that nobody may, or that the partition is gone. Whether it lives does not
        matter: what it saw as the leader ends here."""
        epochs = _epochs(change) if change.leader_epoch is not None else {"epoch": self._leader_epoch}
        self._row(change, TraceEvent.FOLLOWER, broker=self._leader, replica=change.leader, **epochs)

    # -- changes -----------------------------------------------------------------------------------------------------

    def _begins(self, change: Change) -> None:
        created = CREATED if change.event == Kind.CREATED else None
        self._by_controller(change, TraceEvent.ASSIGN, **_assignment(change), value=created)
        self._elected(change)

    def _changes(self, change: Change) -> None:
        if change.cause in BY_LEADERS:
            self._by_leader(change)
        else:
            self._elected(change)
        if change.is_reassigned:
            self._by_controller(change, TraceEvent.ASSIGN, **_assignment(change))

    def _elected(self, change: Change) -> None:
        state = {"replica": change.leader, "isr": change.isr, "isr_old": change.isr_old}
        self._by_controller(change, TraceEvent.ELECT, **state, **_epochs(change), **_made_by(change))
        self._leads(change)

    def _leads(self, change: Change) -> None:
        """The leader learns of what it did not ask for: also of a change within its epoch."""
        if change.leader is not None and change.leader >= 0:
            self._row(
                change,
                TraceEvent.LEADER,
                broker=change.leader,
                isr=change.isr,
                **_epochs(change),
                **_assignment(change),
            )

    def _by_leader(self, change: Change) -> None:
        """Who left and who joined, one row each. Where the change ends the epoch that the leader asked in (a
        reassignment is complete), it is a write of the controller, too. One with which nobody joins (a move is
        complete as it is asked for) is the controller's alone."""
        old, isr = change.isr_old or [], change.isr or []
        bumped = change.leader_epoch != self._leader_epoch
        moves_on = bumped and (change.is_reassigned or change.leader != self._leader)
        gone, came = [r for r in old if r not in isr], [r for r in isr if r not in old]
        if change.is_reassigned and not came:
            gone = []
        both = bool(gone and came)
        for replicas, event in ((gone, TraceEvent.ISR_SHRINK), (came, TraceEvent.ISR_EXPAND)):
            if both and event is TraceEvent.ISR_SHRINK:
                continue  # a replica that is moved away: it leaves by the controller's doing
            for replica in replicas:
                self._row(
                    change,
                    event,
                    broker=self._leader,
                    replica=replica,
                    isr_old=old,
                    isr=[*old, *came] if both else isr,
                    epoch=self._leader_epoch if moves_on else change.leader_epoch,
                    zk_version=None if moves_on or both else change.partition_epoch,
                    err=0,
                    done=change.ts,
                    **_made_by(change),
                )
        if moves_on or both or not (gone or came):
            self._elected(change)
        elif bumped:
            self._leads(change)

    # -- rows --------------------------------------------------------------------------------------------------------

    def _by_controller(self, change: Change, event: TraceEvent, **columns: Any) -> None:
        controller = self.controllers.get(change.controller_epoch, NO_CONTROLLER)
        self._row(change, event, broker=controller, role="controller", **columns)

    def _row(self, change: Change, event: TraceEvent, *, role: str = "broker", **columns: Any) -> None:
        self._seq = max(self._seq + 1, first_seq(change.ts))
        entry = {
            "seq": self._seq,
            "ts": change.ts,
            "ev": event.value,
            "topic": self.topic,
            "partition": self.partition,
            "src": SRC_SNAPSHOT if change.event == Kind.SNAPSHOT else SRC_METADATA,
            "role": role,
            "file": self.file,
            **columns,
        }
        self.rows.append(tuple(map(entry.get, EMITTED)))


def first_seq(ts: int) -> int:
    """The first number of a row of the metadata log in a ms."""
    return (ts * 1000 << _SEQ_SHIFT) + _SEQ_FIRST


def _epochs(change: Change) -> dict[str, Any]:
    return {"epoch": change.leader_epoch, "zk_version": change.partition_epoch}


def _assignment(change: Change) -> dict[str, Any]:
    return {"replicas": change.replicas, "adding": change.adding, "removing": change.removing}


def _made_by(change: Change) -> dict[str, Any]:
    return {"key": MADE_BY, "value": change.cause}


# -- brokers and configs ----------------------------------------------------------------------------------------------

#: Settings that the rules, the tables or a reader of them need. Others stay in the log: some are secrets.
SETTINGS: Final = (
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
    "replica.lag.time.max.ms",
)
#: Types of resources that a ConfigRecord names.
BROKER_RESOURCE: Final = 4
TOPIC_RESOURCE: Final = 2


class BrokerChange:
    """What a record tells of a broker; the values of `broker_events.event`."""

    REGISTERED: Final = "registered"
    UNREGISTERED: Final = "unregistered"
    FENCED: Final = "fenced"
    UNFENCED: Final = "unfenced"
    CONTROLLED_SHUTDOWN: Final = "controlled_shutdown"


#: Whoever is fenced, or shut down, serves nobody.
_ALIVE: Final = {
    BrokerChange.REGISTERED: TraceEvent.BROKER_DOWN,
    BrokerChange.UNREGISTERED: TraceEvent.BROKER_DOWN,
    BrokerChange.FENCED: TraceEvent.BROKER_DOWN,
    BrokerChange.UNFENCED: TraceEvent.BROKER_UP,
}
RACK_KEY: Final = "broker.rack"


def broker_rows(
    *, ts: int, controller: int, event: str, broker: int, epoch: int | None, rack: str | None
) -> Iterator[dict[str, Any]]:
    """A broker that was registered, fenced or unfenced, as rows."""
    common: dict[str, Any] = {"seq": first_seq(ts), "ts": ts, "broker": controller}
    common |= {"role": "controller", "src": SRC_METADATA}
    if event in _ALIVE:
        value = None if epoch is None else str(epoch)
        key = BROKER_REGISTERED_KEY if event == BrokerChange.REGISTERED else None
        yield {**common, "ev": _ALIVE[event].value, "replica": broker, "key": key, "value": value}
    if event == BrokerChange.REGISTERED and rack is not None:
        yield {**common, "seq": common["seq"] + 1, "ev": "config", "replica": broker, "key": RACK_KEY, "value": rack}


def config_row(
    *, ts: int, controller: int, resource: int, name: str, key: str, value: str | None
) -> dict[str, Any] | None:
    """A setting of a topic, of a broker, or (without a name) of all brokers; None for one that nothing here needs."""
    is_broker, is_topic = resource == BROKER_RESOURCE, resource == TOPIC_RESOURCE
    if key not in SETTINGS or not (is_topic or (is_broker and (not name or whole(name) is not None))):
        return None
    whose = {"topic": name} if is_topic else {"replica": int(name) if name else None}
    common = {"seq": first_seq(ts), "ts": ts, "broker": controller, "role": "controller", "src": SRC_METADATA}
    return {**common, **whose, "ev": "config", "key": key, "value": value}
