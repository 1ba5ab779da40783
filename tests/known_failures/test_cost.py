"""P1 to P7: counts of requests, round trips, bytes and lines of code; never seconds."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from controller.core import events
from controller.core.effects import Read, Write
from controller.core.events import ElectionTrigger, ElectionType
from controller.wire.control import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from controller.wire.errors import ErrorCode
from controller.wire.types import BrokerId, TopicPartition
from controller.wire.zk_operations import Create
from tests.worlds.stage import Stage, metadata_in


def cluster(brokers: int, partitions: int, *, factor: int = 2, **settings: Any) -> Stage:
    """One topic whose leaders and followers are spread over the brokers."""
    stage = Stage(**settings)
    stage.broker_starts(*range(1, brokers + 1))
    stage.topic("t", **{f"p{n}": tuple((n + k) % brokers + 1 for k in range(factor)) for n in range(partitions)})
    stage.start()
    forget(stage)
    return stage


def forget(stage: Stage) -> None:
    """What was sent, logged and counted so far is of no interest, nor is the stage's own counting."""
    stage.sent.clear()
    stage.logs.clear()
    stage.lines.clear()
    stage.steps = 0
    stage.recounts = False


def lines_run(work: Callable[[], None]) -> int:
    """How many lines of the controller's core run: what an event costs, without a clock."""
    count = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        if "controller/core" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.known_failure("P1")
def test_a_new_partition_costs_one_entry_per_broker() -> None:
    stage = cluster(10, 2_000, factor=3)
    stage.topic("u", p0=(1, 2))
    stage.run()
    told = metadata_in(stage.sent)
    assert [len(request.partition_states) for request in told] == [1] * 10
    assert sorted(request.to for request in told) == list(range(1, 11))


@pytest.mark.known_failure("P2")
def test_a_controlled_shutdown_shares_its_entries() -> None:
    """The leader of 300 partitions among 30 brokers: one object per partition, two StopReplicas, one LeaderAndIsr per
    broker and batch."""
    stage = cluster(30, 1_000, factor=3)
    stage.run(events.ControlledShutdown(BrokerId(1), -1, 1))
    assert stage.replies[1].remaining == ()
    stops = [request for request in stage.sent if isinstance(request, StopReplicaRequest)]
    assert [request.to for request in stops] == [1, 1]
    told = metadata_in(stage.sent)
    for batch in {id(request.partition_states): request.partition_states for request in told}.values():
        assert sum(request.partition_states is batch for request in told) == 30, "one tuple for all brokers"
    leaders = [request for request in stage.sent if isinstance(request, LeaderAndIsrRequest)]
    assert max(sum(request.to == broker for request in leaders) for broker in range(1, 31)) <= 2
    entries = [entry for request in leaders for entry in request.partition_states]
    assert len({id(entry) for entry in entries}) <= len(entries) / 2, "an entry is shared by the replicas"


@pytest.mark.known_failure("P3")
@pytest.mark.parametrize("operation", ["failover", "broker failure", "controlled shutdown"])
def test_round_trips_do_not_grow_with_partitions(operation: str) -> None:
    """A step is one pipelined batch, however many partitions it concerns."""
    steps = []
    for partitions in (100, 1_000):
        stage = cluster(5, partitions)
        match operation:
            case "failover":
                stage.new_controller()
                forget(stage)
                stage.start()
            case "broker failure":
                stage.broker_dies(1)
                stage.run()
            case "controlled shutdown":
                stage.run(events.ControlledShutdown(BrokerId(1), -1, 1))
        steps.append(stage.steps)
    assert steps[0] == steps[1] <= 60


@pytest.mark.known_failure("P3")
def test_a_version_conflict_repeats_only_its_own_partition() -> None:
    stage = cluster(3, 300)
    led = [n for n in range(300) if stage.leadership(TopicPartition("t", n)).leader == 1]
    raced = TopicPartition("t", led[7])
    stage.leader_writes(raced, (1, 2))
    sizes: list[int] = []
    perform = stage.perform

    def counting(effect: Any) -> Any:
        if isinstance(effect, Read | Write) and "/state" in str(getattr(effect.ops[0], "path", "")):
            sizes.append(len(effect.ops))
        return perform(effect)

    stage.perform = counting
    stage.broker_dies(1)
    stage.run()
    assert stage.leadership(raced).leader == 2
    assert sizes[0] == len(led) and sizes[1:3] == [1, 1], (
        "all at once, then one read and one write of the one that lost"
    )


@pytest.mark.known_failure("P4")
@pytest.mark.parametrize("operation", ["controlled shutdown", "broker failure", "failover"])
def test_log_bytes_grow_with_what_an_event_touches(operation: str) -> None:
    sizes = []
    for partitions in (300, 600, 1_200):
        stage = cluster(5, partitions)
        if operation == "controlled shutdown":
            stage.run(events.ControlledShutdown(BrokerId(1), -1, 1))
        elif operation == "broker failure":
            stage.broker_dies(1)
            stage.run()
        else:
            stage.new_controller()
            forget(stage)
            stage.start()
        lines = [json.dumps(dict(line.fields), default=str) for line in stage.logs]
        sizes.append(sum(map(len, lines)))
        assert max(map(len, lines)) < 2_000
    assert sizes[2] <= 2.2 * sizes[1] and sizes[1] <= 2.2 * max(sizes[0], 2_000)


@pytest.mark.known_failure("P5")
def test_a_burst_of_notices_is_read_once_and_told_once() -> None:
    """100 brokers add a notice each while the controller is busy."""
    stage = cluster(10, 100)
    for n in range(100):
        data = f'{{"version":1,"partitions":[{{"topic":"t","partition":{n}}}]}}'.encode()
        stage.others_write(Create("/isr_change_notification/isr_change_", data, sequence=True))
    reads: list[int] = []
    perform = stage.perform

    def counting(effect: Any) -> Any:
        if isinstance(effect, Read):
            reads.append(sum("/isr_change_" in str(op.path) and op.path.count("/") == 2 for op in effect.ops))
        return perform(effect)

    stage.perform = counting
    stage.run(*[events.IsrChangeNotification()] * 99)
    assert sum(reads) == 100
    assert [len(request.partition_states) for request in metadata_in(stage.sent)] == [100] * 10


IDLE: list[tuple[str, Callable[[], events.Event]]] = [
    ("the list of brokers", events.BrokerChange),
    ("the list of topics", events.TopicChange),
    ("no notice", events.IsrChangeNotification),
    ("no failed directory", events.LogDirEventNotification),
    ("no marker", events.TopicDeletion),
    ("an answer without an error", lambda: events.LeaderAndIsrResponseReceived(BrokerId(1), ErrorCode.NONE, {})),
    ("an answer to metadata", lambda: events.UpdateMetadataResponseReceived(BrokerId(1), ErrorCode.NONE)),
    ("no unclean leader wanted", lambda: events.UncleanLeaderElectionEnable(enabled=True)),
    ("a state of no move", lambda: events.PartitionReassignmentIsrChange(TopicPartition("t", 0))),
    ("the office as it was", events.ControllerChange),
    ("a topic as it was", lambda: events.PartitionModifications("u")),
    ("a listing of nothing", lambda: events.ListPartitionReassignments(None, 1)),
]


@pytest.mark.known_failure("P6")
@pytest.mark.parametrize(("_", "event"), IDLE, ids=[row[0] for row in IDLE])
def test_an_event_without_effect_costs_the_same_in_a_large_cluster(_: str, event: Callable[[], events.Event]) -> None:
    costs = []
    for partitions in (50, 1_000):
        stage = cluster(3, partitions)
        stage.topic("u", p0=(1,))
        stage.run()
        forget(stage)
        costs.append(lines_run(lambda stage=stage: stage.run(event())))  # type: ignore[misc]
        assert stage.sent == []
        assert stage.state.recount().items() <= stage.state.gauges().items()
    assert costs[0] == costs[1]


def elections(stage: Stage) -> None:
    """Of every tenth partition, by request."""
    wanted = frozenset(tp for tp in stage.state.all_partitions() if tp.partition % 10 == 0)
    stage.run(events.ReplicaLeaderElection(wanted, ElectionType.PREFERRED, ElectionTrigger.ADMIN_CLIENT, 1))


def deletions(stage: Stage) -> None:
    """Answers about replicas of a topic that is being deleted."""
    stage.silent.update(stage.channels)
    stage.make("/admin/delete_topics/t")
    stage.run()
    for broker_id in sorted(stage.channels):
        stage.release(broker_id)


def failure(stage: Stage) -> None:
    stage.broker_dies(1)
    stage.run()


def shutdown(stage: Stage) -> None:
    stage.run(events.ControlledShutdown(BrokerId(1), -1, 1))


def start(stage: Stage) -> None:
    stage.broker_starts(1_000)
    stage.run()


def balance(stage: Stage) -> None:
    stage.run(events.AutoPreferredReplicaLeaderElection())


def failed_dir(stage: Stage) -> None:
    broken = dict.fromkeys(stage.state.partitions_on(BrokerId(1)), ErrorCode.KAFKA_STORAGE_ERROR)
    stage.run(events.LeaderAndIsrResponseReceived(BrokerId(1), ErrorCode.NONE, broken))


def one_state(stage: Stage) -> None:
    """One partition of one notice."""
    notice = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
    stage.others_write(Create("/isr_change_notification/isr_change_", notice, sequence=True))
    stage.run()


@pytest.mark.known_failure("P7")
@pytest.mark.parametrize(
    "work", [elections, deletions, failure, shutdown, start, balance, failed_dir, one_state], ids=lambda f: f.__name__
)
def test_work_grows_at_most_in_step(work: Callable[[Stage], None]) -> None:
    """Twice the brokers or twice the partitions: at most about twice the lines that run."""
    costs = {}
    for brokers, partitions in ((8, 160), (16, 160), (8, 320)):
        stage = cluster(brokers, partitions)
        costs[brokers, partitions] = lines_run(lambda stage=stage: work(stage))  # type: ignore[misc]
    base = costs[8, 160]
    assert costs[16, 160] <= 2.2 * base and costs[8, 320] <= 2.2 * base, costs


@pytest.mark.known_failure("P1")
def test_metadata_goes_to_those_who_need_it() -> None:
    """An ISR notice of one partition among many: one entry each; a listing or an election refused: none."""
    stage = cluster(10, 500)
    one_state(stage)
    assert [len(r.partition_states) for r in stage.sent if isinstance(r, UpdateMetadataRequest)] == [1] * 10
    forget(stage)
    elections(stage)
    assert stage.sent == []
