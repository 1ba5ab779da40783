"""What can be done to a test cluster that runs, wherever it runs: look, break, heal, wait. Every call blocks."""

from __future__ import annotations

import argparse
import asyncio
import io
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from controller.admin.checks.conditions import Condition, wait_until
from controller.admin.checks.truth import Truth
from controller.admin.cluster.client import AdminClient
from controller.admin.cluster.queries import alter_reassignments, create_topic, describe_topics
from controller.admin.toolkit.machine import no_zookeeper, this_machine
from controller.admin.why.command import explain
from controller.embedded.alike import as_text
from controller.embedded.backends import Backend, LoopThread
from controller.embedded.cluster import EmbeddedPlan
from controller.local.cluster_file import BrokerRow
from controller.local.fault_file import check_against
from controller.wire.fault_rows import Fault, FaultError, Kill, Stop, parse_row
from controller.wire.types import BrokerId, TopicPartition
from controller.world.real.net import TcpNetwork

Result = TypeVar("Result")
#: How long waits take at most, unless said otherwise (seconds).
LIMIT_S: Final = 30.0
_LOOK_S: Final = 0.02


class Handles:
    """The handles. Whoever starts the cluster sets `_loop` and `_backend`, and says how it was meant to be."""

    _loop: LoopThread | None = None
    _backend: Backend | None = None

    def _has_shape(self, plan: EmbeddedPlan) -> None:
        self._plan = plan
        self._faults: dict[str, Fault] = {}
        self._names_given: set[str] = set()

    # -- what to connect to --------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,host:port,...`, as every Kafka client takes it."""
        return self._running.bootstrap

    @property
    def folder(self) -> Path:
        """Where its data is: logs of partitions, traces."""
        return self._plan.folder

    @property
    def metrics(self) -> Mapping[str, str]:
        """The pages for Prometheus: `host:port` by name (`broker-1`, `controller-901`), of what runs now."""
        return self._run(self._running.metrics())

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """All brokers, also those that are down."""
        return self._plan.broker_ids

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        replicas: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        timeout_s: float = LIMIT_S,
    ) -> None:
        """Returns once every partition has a leader and a full ISR. Default: one partition, three replicas or as many
        as there are brokers; `replicas` (partition -> brokers, the preferred leader first) places them by hand.

        Raises: Refused (Kafka's error code and words); TimeoutError; ValueError for brokers that there are not, and for
        `replicas` beside a number of partitions or replicas.
        """
        if replicas is not None and (partitions, replication_factor) != (None, None):
            raise ValueError("replicas says how many partitions and replicas there are: leave the numbers out")
        by_hand = {number: self._brokers(ids) for number, ids in (replicas or {}).items()}
        factor = min(3, self._plan.brokers) if replication_factor is None else replication_factor

        async def create(admin: AdminClient) -> None:
            try:
                async with asyncio.timeout(timeout_s):
                    await create_topic(
                        admin,
                        name,
                        partitions=-1 if by_hand else 1 if partitions is None else partitions,
                        replication_factor=-1 if by_hand else factor,
                        assignment=by_hand,
                        configs=as_text(configs or {}),
                    )
            except TimeoutError:
                raise TimeoutError(f"waited {timeout_s:g} s for topic {name}: no answer; is a controller up?") from None

        self._ask(create)
        self.wait_for_full_isr(name, timeout_s=timeout_s)

    def reassign(self, topic: str, replicas: Mapping[int, Sequence[int]]) -> None:
        """Begins to move partitions to these brokers; `wait_for_no_moves` waits for the end.

        Raises: Refused; ValueError for brokers that there are not.
        """
        targets = {TopicPartition(topic, number): self._brokers(ids) for number, ids in replicas.items()}

        async def move(admin: AdminClient) -> None:
            for refused in (await alter_reassignments(admin, targets)).values():
                if refused is not None:
                    raise refused

        self._ask(move)

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """The leader, as clients are told; None when there is none. Raises: Refused, KeyError (no such partition)."""

        async def look(admin: AdminClient) -> int | None:
            found = (await describe_topics(admin, [topic]))[topic]
            if isinstance(found, Exception):
                raise found
            leaders = {p.partition: p.leader for p in found.partitions}
            if partition not in leaders:
                raise KeyError(f"{topic} has no partition {partition}; it has 0 to {len(leaders) - 1}")
            return leaders[partition]

        leader: int | None = self._ask(look)
        return leader

    def isr(self, topic: str, partition: int = 0) -> frozenset[int]:
        """The in-sync replicas, as ZooKeeper has them; clients are told seconds later, as by Kafka. Raises KeyError."""
        found = self._run(self._running.truth()).partitions
        if (replicas := TopicPartition(topic, partition)) not in found:
            raise KeyError(f"there is no partition {replicas}")
        return frozenset(found[replicas].isr)

    # -- what to break -------------------------------------------------------------------------------------------------

    def kill_broker(self, broker_id: int) -> None:
        """As by SIGKILL: its connections break, ZooKeeper notices when the session has timed out."""
        self._down(broker_id, "kill")

    def stop_broker(self, broker_id: int) -> None:
        """Controlled shutdown: its leaders move first. Returns at once; `wait_for_leader` waits."""
        self._down(broker_id, "stop")

    def start_broker(self, broker_id: int) -> None:
        """Starts a broker that was killed or stopped, on its data and port. Returns at once."""
        name = f"down-{self._one(broker_id)}"
        if name not in self._faults:
            raise ValueError(f"broker {broker_id} is not down")
        self.heal(name)

    def kill_controller(self, controller_id: int | None = None) -> int:
        """As by SIGKILL: another one takes over when its session has timed out. Default: the active one.

        Returns: its id. Raises: ValueError when there is no such controller.
        """
        self._require_controller(controller_id)
        found = controller_id if controller_id is not None else self._run(self._running.active_controller())
        if found is None:
            raise ValueError("no controller is active")
        self._run(self._running.kill_controller(found))
        return found

    def start_controller(self, controller_id: int) -> None:
        """Starts it again. Raises: ValueError when there is no such controller."""
        self._require_controller(controller_id)
        self._run(self._running.start_controller(controller_id))

    def pause_replication(self, broker_id: int, topic: str | None = None, partition: int | None = None) -> str:
        """The broker's followers stop fetching: all, of one topic, of one partition. An ISR shrinks once something is
        written that they lack: until then they are in sync, as in Kafka. Returns what `heal` takes."""
        return self._put_in_force(
            fault="pause_replication", broker=self._one(broker_id), topic=topic, partition=partition
        )

    def slow_link(
        self, broker_id: int, peer: int | None = None, *, delay_ms: int = 0, jitter_ms: int = 0,
        bytes_per_second: int | None = None,
    ) -> str:  # fmt: skip
        """Bytes travel slowly: all of the broker's, or those between it and `peer`. Returns what `heal` takes."""
        return self._put_in_force(
            fault="slow_link", broker=self._one(broker_id), peer=peer, delay_ms=delay_ms, jitter_ms=jitter_ms,
            bytes_per_second=bytes_per_second,
        )  # fmt: skip

    def cut_link(self, broker_id: int, peer: int | None = None) -> str:
        """Connections break and no new one comes about: all of the broker's, or those to `peer`."""
        return self._put_in_force(fault="cut_link", broker=self._one(broker_id), peer=peer)

    def fail_log_dir(self, broker_id: int, number: int = 1) -> str:
        """The broker's first, second, ... log directory fails, as a broken disk would make it. With the last one the
        broker is gone, as by SIGKILL, until that is healed."""
        broker_id = self._one(broker_id)
        paths = self._running.log_dirs_of(broker_id)
        if not 1 <= number <= len(paths):
            raise ValueError(f"broker {broker_id} has no log directory {number}; it has 1 to {len(paths)}")
        path = paths[number - 1]
        return self._put_in_force(fault="fail_log_dir", broker=broker_id, log_dir=str(path))

    def expire_session(self, broker_id: int) -> str:
        """The broker's ZooKeeper session ends; it registers again with a new epoch."""
        return self._put_in_force(fault="expire_session", broker=self._one(broker_id))

    def api_error(
        self, api: str, error_code: str, *, broker_id: int | None = None, every: int | None = None,
        nth: int | None = None, client: str | None = None,
    ) -> str:  # fmt: skip
        """Answers to requests of that API (Kafka's names) carry that error: all, each `every`th, only the `nth`, only
        those of clients whose id fits the pattern. The request is carried out all the same."""
        return self._put_in_force(
            fault="api", api=api, action="error", error_code=error_code, broker=broker_id, every=every, nth=nth,
            client=client,
        )  # fmt: skip

    def fault(self, **columns: Any) -> str:
        """Any fault, by the columns of docs/faults.md. Returns what `heal` takes; an `id` does not count.

        Raises: FaultError, for this and every other fault: what is wrong with it, and what there is.
        """
        return self._put_in_force(**columns)

    def heal(self, *names: str) -> None:
        """Ends these faults; without names all of them, and what was down starts again.

        Raises: ValueError for a name that no fault was given.
        """
        for name in names:
            if name not in self._names_given:
                raise ValueError(f"no fault was called {name!r}; there are {', '.join(self._faults) or 'none'}")
        for name in names or tuple(self._faults):
            self._faults.pop(name, None)
        self._set_faults()

    def _down(self, broker_id: int, fault: str) -> None:
        one = self._one(broker_id)
        self._put_in_force(f"down-{one}", fault=fault, broker=one)

    def _put_in_force(self, name: str | None = None, /, **columns: Any) -> str:
        called = name or f"f{len(self._names_given) + 1}"
        row = parse_row({**{k: v for k, v in columns.items() if v is not None}, "id": called})
        check_against(row, self._brokers_there_are())
        self._names_given.add(called)
        self._faults[called] = row
        self._set_faults()
        return called

    def _brokers_there_are(self) -> list[BrokerRow]:
        racks = self._plan.racks
        return [
            BrokerRow(
                id=broker_id, pid=None, listener="", rack=racks[place % len(racks)] if racks else None,
                log_dirs=[str(path) for path in self._running.log_dirs_of(broker_id)],
            )
            for place, broker_id in enumerate(self.broker_ids)
        ]  # fmt: skip

    def _one(self, broker_id: int) -> BrokerId:
        """Raises: FaultError for one that there is not, also for None, as of a partition without a leader: a fault
        without a broker would be one of all brokers."""
        if broker_id not in self.broker_ids:
            raise FaultError(f"there is no broker {broker_id!r}; there are {', '.join(map(str, self.broker_ids))}")
        return BrokerId(self.broker_ids[self.broker_ids.index(broker_id)])

    def _brokers(self, ids: Sequence[int]) -> list[BrokerId]:
        """Raises: ValueError for one that there is not."""
        return [self._one(broker_id) for broker_id in ids]

    def _require_controller(self, controller_id: int | None) -> None:
        there_are = self._plan.controller_ids
        if controller_id is not None and controller_id not in there_are:
            raise ValueError(f"there is no controller {controller_id}; there are {', '.join(map(str, there_are))}")

    def _set_faults(self) -> None:
        self._run(self._running.set_faults(list(self._faults.values())))

    # -- what to wait for ----------------------------------------------------------------------------------------------

    def wait_for_full_isr(self, *topics: str, timeout_s: float = LIMIT_S) -> None:
        """Until these topics (or all) have leaders that clients are told of, and ZooKeeper every replica in its ISR.

        Raises: TimeoutError, which says what is missing.
        """

        async def wait() -> str | None:
            limit_s = asyncio.get_running_loop().time() + timeout_s
            while (missing := _not_full(await self._running.truth(), topics)) is not None:
                if asyncio.get_running_loop().time() > limit_s:
                    return missing
                await asyncio.sleep(_LOOK_S)
            return None

        missing = self._run(wait())
        if missing is not None:
            raise TimeoutError(f"waited {timeout_s:g} s for full ISRs: {missing}")
        self.wait_for_leader(*topics, timeout_s=timeout_s)

    def wait_for_leader(self, *topics: str, timeout_s: float = LIMIT_S) -> None:
        """Until every partition of these topics (or of all) has a leader, says every broker, and none that was killed
        or stopped. Raises: TimeoutError."""
        self._wait(Condition.LEADER, topics, timeout_s)

    def wait_for_no_moves(self, *topics: str, timeout_s: float = LIMIT_S) -> None:
        """Until no partition of these topics (or of all) is being reassigned. Raises: TimeoutError."""
        self._wait(Condition.NO_MOVES, topics, timeout_s)

    def _wait(self, condition: Condition, topics: Sequence[str], timeout_s: float) -> None:
        downs = [
            f for f in self._faults.values() if isinstance(f, Kill | Stop) and (f.from_ms, f.until_ms) == (None, None)
        ]
        going = {b.id for b in self._brokers_there_are() if any(f.concerns(BrokerId(b.id), b.rack) for f in downs)}

        async def wait(admin: AdminClient) -> str | None:
            return await wait_until(admin, [condition], topics=topics, going=going, timeout_s=timeout_s)

        missing = self._ask(wait)
        if missing is not None:
            raise TimeoutError(f"waited {timeout_s:g} s for {condition}: {missing}")

    # -- what happened -------------------------------------------------------------------------------------------------

    def isr_history(self, topic: str | None = None) -> list[dict[str, Any]]:
        """The rows of the traces that tell of leaders and ISRs, in the order of time: `ts` (ms since the epoch), `ev`
        (`leader`, `isr_shrink`, `isr_expand`, `elect`), `broker`, `topic`, `partition`, `isr`, `isr_old`, `epoch`."""
        kinds = ("leader", "isr_shrink", "isr_expand", "elect")
        rows = self._run(self._running.trace())
        return [row for row in rows if row["ev"] in kinds and topic in (None, row.get("topic"))]

    def events(self) -> list[Mapping[str, Any]]:
        """The last log lines of all programs, oldest first: `event`, `level` and the keys of docs/logs.md."""
        return list(self._run(self._running.events()))

    def why(self, topic: str) -> str:
        """What `kwob why` says of a topic or of one partition (`orders-3`)."""
        output = io.StringIO()
        options = argparse.Namespace(target=topic, bootstrap_server=self.bootstrap_servers, zookeeper=None, json=False)
        machine = replace(this_machine(), out=output, err=output)
        self._run(explain(options, machine, no_zookeeper))
        return output.getvalue()

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _running(self) -> Backend:
        if self._backend is None:
            raise RuntimeError("the cluster does not run; use it in a `with`, or call start()")
        return self._backend

    def _require_stopped(self) -> None:
        """A second start would leave what the first one started to nobody. Raises: RuntimeError."""
        if self._loop is not None:
            raise RuntimeError("the cluster runs already: start() it, or use it in a `with`, but not both")

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        if self._loop is None:
            work.close()
            raise RuntimeError("the cluster does not run; use it in a `with`, or call start()")
        return self._loop.run(work)

    def _ask(self, question: Any) -> Any:
        async def ask() -> Any:
            async with AdminClient(TcpNetwork(), self.bootstrap_servers) as admin:
                return await question(admin)

        return self._run(ask())


def _not_full(truth: Truth, topics: Sequence[str]) -> str | None:
    """What keeps these topics (or all) from having full ISRs."""
    absent = sorted(set(topics) - truth.topics)
    if absent:
        return f"there is no topic {absent[0]}"
    short = [str(tp) for tp in truth.not_whole() if not topics or tp.topic in topics]
    return f"not in {', '.join(short[:3])}" if short else None
