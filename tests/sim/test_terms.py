"""The plain version of what becomes of a term: rows of leaders in, complaints out; none for a sound one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from broker_sim.log.leader_epochs import LeaderEpochs
from controller.sim.oracles.terms import SETTLED_REQUESTS, Terms
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.records import build_values, place
from controller.wire.trace import TraceEvent
from controller.wire.types import BrokerId, TopicPartition

pytestmark = pytest.mark.sim
TP = TopicPartition("t", 0)
BATCH = build_values([(b"k", b"v")], timestamp=1)


class Log:
    """A batch at each offset, but for those that compaction has removed."""

    def __init__(self, epochs: list[tuple[int, int]], leo: int) -> None:
        self.epochs, self.leo, self.log_start_offset = LeaderEpochs(epochs), leo, 0
        self.removed: set[int] = set()

    def read(self, offset: int, **_: object) -> bytes:
        """See `broker_sim.log.log.Log`."""
        left = next((number for number in range(offset, self.leo) if number not in self.removed), None)
        return b"" if left is None else place(BATCH, base_offset=left, partition_leader_epoch=0)


def replica(epochs: list[tuple[int, int]], leo: int = 10) -> Any:
    log = Log(epochs, leo)
    return SimpleNamespace(log=log, leader_epoch=5)


class Host:
    """A broker's life."""

    def __init__(self, replicas: Any) -> None:
        self.replicas = replicas


class Connection:
    """Of the follower 2 to its leader."""

    def __init__(self) -> None:
        self.asks(1)

    def asks(self, request: int) -> None:
        """This is the request whose answer it waits for."""
        self.waits_for = request


class Scene:
    """Broker 1 leads `t-0` in epoch 5 with followers 2 and 3."""

    def __init__(self, min_isr: int = 1) -> None:
        self.connection = Connection()
        self.mine, self.other = replica([(1, 0), (5, 10)]), replica([(1, 0)])
        fetcher = _Fetcher(self.connection)
        manager = SimpleNamespace(table=SimpleNamespace(partitions={TP: self.other}), fetchers=_Fetchers(fetcher))
        leader = SimpleNamespace(table=SimpleNamespace(partitions={TP: self.mine}))
        cluster: Any = SimpleNamespace(
            brokers={1: Host(leader), 2: Host(manager)},
            shape=SimpleNamespace(min_insync_replicas=min_isr),
            world=SimpleNamespace(loop=SimpleNamespace(time=lambda: 3.0)),
        )
        history: Any = SimpleNamespace(configured=defaultdict(set))
        self.terms = Terms(cluster, history)

    def row(self, event: TraceEvent, **columns: Any) -> None:
        self.terms.row(BrokerId(1), event, 0, TP, columns)

    def leads(self, isr: tuple[int, ...] = (1, 2, 3)) -> None:
        self.row(TraceEvent.LEADER, epoch=5, hw=4, isr=isr, replicas=(1, 2, 3))

    def fetch(self, offset: int = 10, hw: int = 4, err: int = 0, who: int = 2, request: int = 0) -> None:
        if request:
            self.connection.asks(request)
        self.row(TraceEvent.FETCH, replica=who, offset=offset, hw=hw, err=err, epoch=5, req_epoch=4)

    def decides(self, name: str = ev.ISR_EXPAND_DECIDED, replicas: tuple[int, ...] = (3,), hw: int = 4) -> None:
        place = {"broker_id": 1, "topic": "t", "partition": 0, "leader_epoch": 5}
        self.terms.event({"event": name, **place, "replicas": list(replicas), "hw": hw})

    def settles(self, err: int = 0, isr: tuple[int, ...] = (1, 2, 3)) -> None:
        self.row(TraceEvent.ISR_EXPAND, err=err, epoch=5, isr=isr)


def all_is_well(scene: Scene) -> None:
    scene.fetch()  # of nobody's follower
    scene.leads((1, 2))
    for number in range(1, 4):
        scene.fetch(hw=3 + number, request=number)
    scene.fetch(who=3, offset=8)
    scene.decides(hw=7)
    scene.fetch(hw=8, request=5)
    scene.settles()
    scene.decides(ev.ISR_SHRINK_DECIDED)
    scene.settles(err=1)
    scene.row(TraceEvent.APPEND, hw=9)
    scene.row(TraceEvent.FOLLOWER, hw=9)
    scene.leads()
    scene.decides()
    scene.row(TraceEvent.STOP)
    scene.row(TraceEvent.FOLLOWER, hw=0)


def a_watermark_is_forgotten(scene: Scene) -> None:
    scene.leads()
    scene.fetch(hw=9)
    scene.row(TraceEvent.FOLLOWER, hw=8)


def it_rises_past_one_that_joins(scene: Scene) -> None:
    scene.leads((1, 2))
    scene.fetch(who=3, offset=6)
    scene.decides()
    scene.fetch(hw=7)


def it_rises_with_too_few(scene: Scene) -> None:
    scene.leads((1,))
    scene.fetch(hw=5)


def it_tries_again_after_a_refusal(scene: Scene) -> None:
    scene.leads()
    scene.decides(ev.ISR_SHRINK_DECIDED)
    scene.settles(err=1)
    scene.decides(ev.ISR_SHRINK_DECIDED)


def its_follower_has_another_history(scene: Scene) -> None:
    scene.leads()
    scene.other.log.epochs.entries = [(1, 0), (3, 9)]
    scene.fetch()


def compaction_has_left_nothing_there(scene: Scene) -> None:
    its_follower_has_another_history(scene)
    scene.terms.broken.clear()
    scene.other.log.removed = {9}
    scene.fetch()


def its_follower_has_a_former_topics_log(scene: Scene) -> None:
    scene.leads()
    scene.other.log.epochs.entries = [(1, 0), (6, 9)]
    scene.fetch()
    scene.fetch()


def a_fetch_counts_twice(scene: Scene) -> None:
    scene.leads()
    scene.fetch(request=1)
    scene.fetch(request=2 + SETTLED_REQUESTS)
    scene.fetch()


def a_fenced_follower_asks_on(scene: Scene) -> None:
    scene.leads()
    for request in (1, 2):
        scene.fetch(err=int(ErrorCode.FENCED_LEADER_EPOCH), request=request)


def test_a_fetch_that_is_fenced_while_it_waits_counts_once() -> None:
    scene = Scene(min_isr=1)
    scene.leads()
    scene.fetch(request=1)
    scene.fetch(request=2 + SETTLED_REQUESTS)
    scene.fetch(err=int(ErrorCode.FENCED_LEADER_EPOCH))
    assert scene.terms.broken == []


def test_a_request_of_a_former_connection_that_comes_late_is_another() -> None:
    scene = Scene(min_isr=1)
    scene.leads()
    scene.fetch(request=1)
    scene.fetch(request=2 + SETTLED_REQUESTS)
    scene.fetch(offset=8)
    assert scene.terms.broken == []


@pytest.mark.parametrize(
    ("happens", "min_isr", "complaint"),
    [
        (a_watermark_is_forgotten, 1, "a watermark is forgotten: broker 1 led t-0 with 9, it follows with 8"),
        (it_rises_past_one_that_joins, 1, "rises to 7 while [3] may be in its ISR: they have fetched up to [6]"),
        (it_rises_with_too_few, 2, "rises to 5, its ISR is (1,), not 2"),
        (it_tries_again_after_a_refusal, 1, "again, though a write was refused"),
        (its_follower_has_another_history, 1, "has offset 9 in epoch 3, its leader 1 in epoch 1"),
        (a_fetch_counts_twice, 1, "counts one fetch of t-0 by 2 twice"),
        (a_fenced_follower_asks_on, 1, "broker 2 was fenced by 1 and asks on"),
    ],
)
def test_what_must_not_be_is_found(happens: Callable[[Scene], None], min_isr: int, complaint: str) -> None:
    scene = Scene(min_isr)
    happens(scene)
    assert [complaint in line for line in scene.terms.broken] == [True], scene.terms.broken


@pytest.mark.parametrize(
    "happens", [all_is_well, compaction_has_left_nothing_there, its_follower_has_a_former_topics_log]
)
def test_a_sound_leader_is_left_alone(happens: Callable[[Scene], None]) -> None:
    scene = Scene(min_isr=2)
    happens(scene)
    assert scene.terms.broken == []
    assert scene.terms.compared > 1


def test_since_when_a_watermark_is_where_it_is() -> None:
    scene = Scene()
    scene.leads()
    scene.fetch(hw=9)
    assert [scene.terms.reached_s(1, TP, end) for end in (4, 9, 10)] == [3.0, 3.0, None]
    assert scene.terms.reached_s(2, TP, 4) is None


class _Fetcher:
    """What follows `t-0` over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._client = SimpleNamespace(_connection=connection)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp == TP


class _Fetchers:
    def __init__(self, fetcher: _Fetcher) -> None:
        self.fetchers = {(BrokerId(1), 0): fetcher}
