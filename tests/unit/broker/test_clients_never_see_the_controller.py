"""A controller that is no broker: not in Metadata, not in DescribeCluster; what is for it is forwarded to it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from controller.wire import protocol
from controller.wire.errors import ErrorCode
from controller.wire.framing import FrameBuffer
from controller.wire.protocol import ApiKey
from controller.wire.types import Broker, BrokerId, Endpoint
from controller.wire.zk_operations import Create, Delete, Exists, ZkCode
from controller.wire.znodes import BrokerIdZNode
from tests.worlds.played_requests import answered, read, versions

CREATE = {"topics": [{"name": "t", "num_partitions": 1, "replication_factor": 1}], "timeout": 20_000}
DONE = {"topics": [{"name": "t", "error_code": 0}]}
NOT_CONTROLLER = {"topics": [{"name": "t", "error_code": ErrorCode.NOT_CONTROLLER}]}


class Controller:
    """Answers CreateTopics as it is told; what it was asked is in `asked`, who is connected to it in `connected`."""

    def __init__(
        self, cluster: Any, number: int, answer: Any = None, *, host: str = "controller-{}", port: int = 9092
    ) -> None:
        self.cluster, self.number, self.answer = cluster, number, DONE if answer is None else answer
        self.asked: list[protocol.Request] = []
        self.takes_s = 0.0
        self.accepted, self.connected = 0, list[Any]()
        self.endpoint = Endpoint(host=host.format(number), port=port)
        self.machine = cluster.world.machine(self.endpoint.host)

    @property
    def broker(self) -> Broker:
        return Broker(broker_id=BrokerId(self.number), endpoints=(self.endpoint,))

    async def listen(self) -> None:
        await self.machine.network.listen(self.endpoint.host, self.endpoint.port, self._accept)

    async def _accept(self, connection: Any) -> None:
        self.accepted += 1
        self.connected.append(connection)
        try:
            await self._serve(connection)
        finally:
            self.connected.remove(connection)

    async def _serve(self, connection: Any) -> None:
        frames = FrameBuffer()
        while data := await connection.recv():
            for frame in frames.feed(data):
                request = protocol.decode_request(bytes(frame))
                self.asked.append(request)
                await asyncio.sleep(self.takes_s)
                if self.answer == "break":
                    connection.close()
                    return
                connection.send(
                    protocol.encode_response(request.api_key, request.api_version, request.correlation_id, self.answer)
                )

    async def tell(self, epoch: int = 1) -> None:
        """An UpdateMetadata to every broker: this is the controller."""
        live = (*self.cluster.registered(), self.broker)
        for broker_id in self.cluster.brokers:
            await self.cluster.update_metadata(
                broker_id, (), live, controller_id=BrokerId(self.number), controller_epoch=epoch
            )


async def elapsed(work: Any) -> tuple[Any, float]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    return await work, loop.time() - began


def test_brokers_are_listed_without_it_and_name_themselves(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        for number in (1, 2):
            await cluster.start(number)
        controller = Controller(cluster, 901)
        await controller.tell()
        for number in (1, 2):
            metadata = await cluster.call(number, ApiKey.METADATA, 9, {"topics": []})
            assert ([b.node_id for b in metadata.brokers], metadata.controller_id) == ([1, 2], number)
            for version in (0, 1):
                described = await cluster.call(number, ApiKey.DESCRIBE_CLUSTER, version, {})
                assert ([b.broker_id for b in described.brokers], described.controller_id) == ([1, 2], number)
            assert described.endpoint_type == 1
        cache = cluster.brokers[1].context.metadata
        assert cache.controller_endpoint == controller.broker.endpoints[0], "where brokers go themselves"
        assert 901 not in cache.alive_brokers()

    in_memory(scenario)


def test_a_broker_of_kafka_that_is_the_controller_is_seen_and_nothing_is_forwarded(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        controller = Controller(cluster, 5)
        await controller.listen()
        zk = cluster.brokers[1].zk
        data = BrokerIdZNode.encode(controller.broker, 0)
        await cluster.in_broker(1, zk.perform([Create(BrokerIdZNode.path(5), data, ephemeral=True)]))
        await controller.tell()
        metadata = await cluster.call(1, ApiKey.METADATA, 9, {"topics": []})
        assert ([b.node_id for b in metadata.brokers], metadata.controller_id) == ([1, 5], 5)
        answer, took_s = await elapsed(cluster.call(1, ApiKey.CREATE_TOPICS, 5, CREATE))
        assert answer.topics[0].error_code == ErrorCode.NOT_CONTROLLER
        assert took_s < 1 and not controller.asked

    in_memory(scenario)


#: whom UpdateMetadata names, whether that is a broker, who is asked -> whom clients are to ask
NAMED: list[tuple[int | None, bool, int, int]] = [
    (None, False, 7, -1),
    (None, True, 7, -1),
    (9, True, 7, 9),
    (3, True, 7, 3),
    (0, True, 7, 0),
    (901, False, 7, 7),
    (901, False, 3, 3),
    (901, False, 5, 3),  # itself does not have the listener
    (901, False, 4, 3),  # nobody names itself alive
]


@pytest.mark.parametrize(("controller", "is_broker", "asked", "named"), NAMED)
@pytest.mark.parametrize("api", [ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER])
def test_who_takes_what_only_a_controller_answers(
    api: ApiKey, controller: int | None, is_broker: bool, asked: int, named: int
) -> None:
    """Before version 1 Metadata cannot say it, nor which cluster it is before version 2."""
    listeners = {7: "PLAINTEXT", 3: "PLAINTEXT", 5: "OTHER"}
    brokers = {
        number: Broker(
            broker_id=BrokerId(number),
            endpoints=(Endpoint(host=f"h{number}", port=number, listener=listener),),
            rack=None if number == 7 else f"r{number}",
        )
        for number, listener in listeners.items()
    }
    rows = [{"host": f"h{number}", "port": number, "rack": brokers[BrokerId(number)].rack} for number in (3, 7)]
    body: dict[str, Any] = {"topics": []} if api is ApiKey.METADATA else {}
    for version in versions(api):
        cache = SimpleNamespace(brokers=brokers, controller_id=controller, controller_is_broker=is_broker, topics=())
        cache.wait_until = AsyncMock(return_value=False)
        found = answered(api, version, body, broker_id=asked, cluster_id="c", metadata=cache)
        key = "node_id" if api is ApiKey.METADATA else "broker_id"
        numbered = [{**row, key: number} for row, number in zip(rows, (3, 7), strict=True)]
        answer = {"brokers": numbered, "cluster_id": "c", "controller_id": named, **body}
        assert found == read(api, version, answer)
        cache.brokers = {}
        found = answered(api, version, body, broker_id=asked, cluster_id="c", metadata=cache)
        assert found.get("controller_id", -1) == (named if is_broker and (api, version) != (ApiKey.METADATA, 0) else -1)


def test_controllers_are_not_described_by_a_broker(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        for endpoint_type, code in ((2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
            answer = await cluster.call(1, ApiKey.DESCRIBE_CLUSTER, 1, {"endpoint_type": endpoint_type})
            assert (answer.error_code, answer.brokers) == (code, ())

    in_memory(scenario)


def test_a_request_is_forwarded_and_answered_as_the_controller_did(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        failed = {"name": "t", "error_code": ErrorCode.TOPIC_ALREADY_EXISTS, "error_message": "Topic 't' exists."}
        controller = Controller(cluster, 901, {"topics": [failed]})
        await controller.listen()
        await controller.tell()
        answer = await cluster.call(1, ApiKey.CREATE_TOPICS, 5, CREATE)
        (topic,) = answer.topics
        assert (topic.error_code, topic.error_message) == (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' exists.")
        (request,) = controller.asked
        assert (request.api_version, request.body.topics[0].name, request.body.timeout) == (5, "t", 20_000)

    in_memory(scenario)


FIRST = [
    ("it is not the controller any more", NOT_CONTROLLER),
    ("its connections break", "break"),
    ("nobody is there", None),
]


@pytest.mark.parametrize("first", [row[1] for row in FIRST], ids=[row[0] for row in FIRST])
def test_a_controller_that_moves_is_found_again_within_the_time(in_memory: Any, first: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        old, new = Controller(cluster, 901, first), Controller(cluster, 902)
        if first is not None:
            await old.listen()
        await new.listen()
        await old.tell()
        asking = asyncio.ensure_future(elapsed(cluster.connect(1)))
        connection, _ = await asking
        asking = asyncio.ensure_future(elapsed(connection.call(ApiKey.CREATE_TOPICS, 5, CREATE)))
        await cluster.world.sleep(5)
        assert not asking.done()
        await new.tell(epoch=2)
        answer, took_s = await asking
        assert answer.topics[0].error_code == 0
        assert took_s < 6
        assert len(new.asked) == 1

    in_memory(scenario)


PLACES = [
    ("another machine", {}, {}),
    ("another port of the machine", {"host": "both"}, {"host": "both", "port": 9093}),
]


@pytest.mark.parametrize(("_", "former", "present"), PLACES, ids=[row[0] for row in PLACES])
@pytest.mark.parametrize("at_once", [1, 3])
def test_who_was_the_controller_is_asked_no_more_though_its_connections_are_open(
    in_memory: Any, _: str, former: dict[str, Any], present: dict[str, Any], at_once: int
) -> None:
    """It may have been cut off from ZooKeeper, and not know that it is not the controller: it would say that it did."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        old, new = Controller(cluster, 901, **former), Controller(cluster, 902, **present)
        old.takes_s = 0.1
        for epoch, controller in enumerate((old, new), 1):
            await controller.listen()
            await controller.tell(epoch)
            await forwarded(cluster, at_once)
        await cluster.world.sleep(1)
        assert (len(old.asked), len(new.asked)) == (at_once, at_once)
        assert not old.connected and new.connected

    in_memory(scenario)


async def forwarded(cluster: Any, at_once: int) -> None:
    clients = [await cluster.connect(1) for _ in range(at_once)]
    answers = await asyncio.gather(*(client.call(ApiKey.CREATE_TOPICS, 5, CREATE) for client in clients))
    assert [answer.topics[0].error_code for answer in answers] == [0] * at_once


def test_connections_to_the_controller_are_used_again_and_not_many_are_kept(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        controller = Controller(cluster, 901)
        controller.takes_s = 0.5
        await controller.listen()
        await controller.tell()
        for at_once, accepted, kept in ((1, 1, 1), (1, 1, 1), (3, 3, 3), (2, 3, 3), (7, 7, 4), (4, 7, 4)):
            _, took_s = await elapsed(forwarded(cluster, at_once))
            await cluster.world.sleep(0.1)
            assert (controller.accepted, len(controller.connected)) == (accepted, kept), at_once
            assert took_s == pytest.approx(0.5, abs=0.05), "no request waits for another"
        for connection in controller.connected:
            connection.close()
        await cluster.world.sleep(1)
        _, took_s = await elapsed(forwarded(cluster, 1))
        assert took_s == pytest.approx(0.5, abs=0.05), "one that was closed is not tried first"

    in_memory(scenario)


def test_a_broker_that_ends_leaves_no_connection_to_the_controller(in_memory: Any) -> None:
    """Neither one that is kept nor one on which something is asked."""

    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1)
        controller = Controller(cluster, 901)
        controller.takes_s = 0.5
        await controller.listen()
        await controller.tell()
        await forwarded(cluster, 2)
        asking = asyncio.ensure_future(forwarded(cluster, 1))
        await cluster.world.sleep(0.2)
        assert len(controller.connected) == 2
        await cluster.in_broker(1, broker.kill())
        await asyncio.gather(asking, return_exceptions=True)
        await cluster.world.sleep(1)
        assert not controller.connected

    in_memory(scenario)


def test_without_a_controller_the_refusal_comes_when_the_time_is_over(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        answer, took_s = await elapsed(cluster.call(1, ApiKey.CREATE_TOPICS, 5, {**CREATE, "timeout": 4_000}))
        assert answer.topics[0].error_code == ErrorCode.NOT_CONTROLLER
        assert took_s == pytest.approx(4, abs=0.3)

    in_memory(scenario)


@pytest.mark.parametrize("takes_s", [4, 100])
def test_a_controller_that_needs_all_the_time_is_asked_once(in_memory: Any, takes_s: int) -> None:
    """Also where that is more than `request.timeout.ms`, after which who asks again would find the topic made."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        controller = Controller(cluster, 901, {"topics": [{"name": "t", "error_code": ErrorCode.REQUEST_TIMED_OUT}]})
        controller.takes_s = takes_s
        await controller.listen()
        await controller.tell()
        client = await cluster.connect(1)
        asked = {**CREATE, "timeout": takes_s * 1_000}
        answer = await client.call(ApiKey.CREATE_TOPICS, 5, asked, timeout_s=200)
        assert answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert len(controller.asked) == 1

    in_memory(scenario)


def test_a_controller_that_cannot_be_reached_is_given_up_after_a_while_whatever_time_there_is(in_memory: Any) -> None:
    """`request.timeout.ms`: nobody has the request yet, so who asks again finds nothing done."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        controller = Controller(cluster, 901)
        await controller.listen()
        await controller.tell()
        client = await cluster.connect(1)
        cluster.world.network.cut("broker-1", controller.machine.name)
        asked = client.call(ApiKey.CREATE_TOPICS, 5, {**CREATE, "timeout": 120_000}, timeout_s=200)
        answer, took_s = await elapsed(asked)
        assert answer.topics[0].error_code == ErrorCode.NOT_CONTROLLER
        assert 30 <= took_s <= 36 and controller.asked == []

    in_memory(scenario)


# -- what kind of controller it is ------------------------------------------------------------------------------------


class Sight:
    """What broker 1 makes of its controllers. Those below 900 are brokers of Kafka, registered while they are told."""

    def __init__(self, cluster: Any) -> None:
        self._cluster, self._zookeeper = cluster, cluster.world.zookeeper
        self._asked = 0
        self._zookeeper.on_operation.append(self._count)

    def _count(self, _: Any, op: Any, __: Any) -> None:
        self._asked += isinstance(op, Exists) and op.path.startswith("/brokers/ids/")

    async def register(self, number: int, *, is_there: bool = True) -> None:
        path = BrokerIdZNode.path(BrokerId(number))
        data = BrokerIdZNode.encode(Controller(self._cluster, number).broker, 0)
        op = Create(path, data, ephemeral=True) if is_there else Delete(path)
        (done,) = await self._cluster.in_broker(1, self._cluster.brokers[1].zk.perform([op]))
        assert done.ok

    async def of(self, number: int, epoch: int, *, silence: str = "") -> tuple[bool, int]:
        """Whether clients see it, once it has told who it is; how often ZooKeeper was asked. It is answered soon."""
        asked = self._asked
        if silence == "it does not answer in time":
            self._zookeeper.hold_answers("broker-1")
        elif silence:
            self._zookeeper.tree.refusal = lambda op: ZkCode.NO_AUTH if isinstance(op, Exists) else None
        _, took_s = await elapsed(Controller(self._cluster, number).tell(epoch))
        assert took_s < 1.5
        self._zookeeper.let_answers_go("broker-1")
        self._zookeeper.tree.refusal = lambda op: None
        metadata = await self._cluster.call(1, ApiKey.METADATA, 9, {"topics": []})
        is_seen = metadata.controller_id == number
        expected = ([1, number], number) if is_seen else ([1], 1)
        assert ([broker.node_id for broker in metadata.brokers], metadata.controller_id) == expected
        return is_seen, self._asked - asked


#: controllers before, each in its epoch -> whether they leave a controller visible
BEFORE = {"nobody": ([], False), "a broker": ([6], True), "no broker": ([902], False), "both": ([902, 6], True)}


@pytest.mark.parametrize("number", [5, 901], ids=["a broker", "no broker"])
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("silence", ["it refuses", "it does not answer in time"])
def test_zookeeper_is_asked_what_the_controller_is_until_it_says_so_once_for_each_epoch(
    in_memory: Any, silence: str, before: str, number: int
) -> None:
    """Meanwhile the controller passes for what the one before it was."""
    earlier, as_before = BEFORE[before]
    is_broker = number < 900

    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        sight = Sight(cluster)
        for one in filter(lambda one: one < 900, {5, *earlier}):
            await sight.register(one)
        for epoch, one in enumerate(earlier, 1):
            assert await sight.of(one, epoch) == (one < 900, 1)
        for _ in range(2):
            assert await sight.of(number, 10, silence=silence) == (as_before, 1)
        assert await sight.of(number, 10) == (is_broker, 1), "it says so now"
        await sight.register(number, is_there=not is_broker)
        for silent in ("", silence):
            assert await sight.of(number, 10, silence=silent) == (is_broker, 0), "nobody changes in office"
        assert await sight.of(number, 11, silence=silence) == (is_broker, 1)
        assert await sight.of(number, 11) == (not is_broker, 1), "another life under the same number"

    in_memory(scenario)
