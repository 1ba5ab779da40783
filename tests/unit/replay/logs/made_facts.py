"""Facts of one partition, and rows as they come out, for tests of what becomes of them."""

from __future__ import annotations

from typing import Any

from broker_sim.replay.logs.facts import Fact, What
from broker_sim.replay.logs.texts_of_controllers import CUT
from broker_sim.replay.logs.waiting_rows import EMITTED
from broker_sim.replay.logs.weave import Weave

Told = tuple[int, Fact]


def of(broker: int, what: str, **columns: Any) -> Fact:
    return Fact(broker, 0, what, "t", 0, file="server.log", **columns)


def leads(epoch: int = 0, **columns: Any) -> Fact:
    return of(1, What.LEADER, **{"offset": 0, "epoch": epoch} | columns)


def follows(offset: int, epoch: int = 1) -> Fact:
    return of(1, What.FOLLOWER, offset=offset, epoch=epoch)


def state(version: int | None, epoch: int, *isr: int, leader: int = 1, **columns: Any) -> Fact:
    return of(9, What.ELECT, replica=leader, epoch=epoch, isr=list(isr), zk_version=version, **columns)


def passing(version: int, epoch: int, *isr: int) -> Fact:
    """What a broker of a quorum says of a state that it skips."""
    return state(version, epoch, *isr, replicas=[1, 2, 3], adding=[], removing=[], key=CUT)


def updated(version: int, *isr: int) -> Fact:
    return of(1, What.UPDATED, isr=list(isr), zk_version=version)


def asked(replica: int, offset: int, err: int = 0, broker: int = 1) -> Fact:
    """A fetch that a request tells of."""
    return of(broker, What.FETCH, replica=replica, offset=offset, err=err, req_epoch=0, session=7, correlation=3)


def recorded(replica: int, offset: int) -> Fact:
    return of(1, What.FETCH, replica=replica, offset=offset, err=0)


def produced(offset: int) -> Fact:
    return of(1, What.PRODUCED, offset=offset, bytes=10)


def woven(told: list[Told], **known: Any) -> list[dict[str, Any]]:
    """What rows say, without where and in which order they stand."""
    weave = Weave(**known)
    for ms, fact in told:
        weave.feed(fact._replace(at_us=ms * 1000))
    weave.finish()
    rows = [dict(zip(EMITTED, row, strict=True)) for row in weave.rows]
    seqs = [(row["broker"], row["seq"]) for row in rows]
    assert len(set(seqs)) == len(seqs) and seqs == sorted(seqs, key=lambda pair: pair[1] >> 12), "rows stand in order"
    hidden = ("seq", "topic", "partition", "file")
    return [{name: value for name, value in row.items() if value is not None and name not in hidden} for row in rows]


def row(ts: int, ev: str, broker: int = 1, **columns: Any) -> dict[str, Any]:
    return {"ts": ts, "ev": ev, "broker": broker, "src": "log", "role": "broker"} | columns


def guess(ts: int, ev: str, broker: int = 1, **columns: Any) -> dict[str, Any]:
    return row(ts, ev, broker, **{"src": "inferred"} | columns)


CONTROLLER: dict[str, Any] = {"broker": 9, "role": "controller"}
