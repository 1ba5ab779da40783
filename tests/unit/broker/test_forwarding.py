"""The way to the controller, asked directly: which answers are refusals, and what ends while one is waited for."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from broker_sim.forwarding import says_not_controller
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.zk_operations import Create
from controller.wire.znodes import BrokerIdZNode
from tests.unit.broker.test_clients_never_see_the_controller import CREATE, NOT_CONTROLLER, Controller, elapsed
from tests.worlds.fuzz import few

CODES = st.sampled_from([ErrorCode.NONE, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT])
VALUES: Any = st.recursive(
    st.one_of(st.text(max_size=1), st.none(), st.integers(40, 42)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.fixed_dictionaries({"name": inner}, optional={"error_code": CODES.map(int), "topics": inner}),
        st.fixed_dictionaries({"error_code": CODES.map(int)}, optional={"partitions": inner}),
    ),
    max_leaves=5,
)


@few(60)
@given(VALUES)
@example({"topics": [{"error_code": 0}, {"error_code": 41}]})
@example({"error_code": 0, "topics": [{"partitions": [{"error_code": 41}]}]})
def test_wherever_an_answer_says_that_it_is_not_the_controller_all_of_it_is_refused(answer: Any) -> None:
    """At the top, on a topic or on a partition, and whatever is said beside it."""
    is_said = re.search(rf"'error_code': {int(ErrorCode.NOT_CONTROLLER)}\b", f"{answer}") is not None
    assert says_not_controller(answer) == is_said


def test_a_broker_of_kafka_that_takes_the_office_ends_the_wait(in_memory: Any) -> None:
    """Clients see it, and ask it themselves."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        old, new = Controller(cluster, 901, NOT_CONTROLLER), Controller(cluster, 5)
        await old.listen()
        await new.listen()
        await old.tell(1)
        client = await cluster.connect(1)
        asking = asyncio.ensure_future(elapsed(client.call(ApiKey.CREATE_TOPICS, 5, CREATE)))
        await cluster.world.sleep(2)
        assert not asking.done() and old.asked
        data = BrokerIdZNode.encode(new.broker, 0)
        zk = cluster.brokers[1].zk
        await cluster.in_broker(1, zk.perform([Create(BrokerIdZNode.path(5), data, ephemeral=True)]))
        await new.tell(2)
        answer, took_s = await asking
        assert answer.topics[0].error_code == ErrorCode.NOT_CONTROLLER and not new.asked
        assert took_s < 4

    in_memory(scenario)


def test_who_gives_up_takes_its_connection_along(in_memory: Any) -> None:
    """A late answer would be taken for that of the next request."""

    async def scenario(cluster: Any) -> None:
        broker = await cluster.start(1)
        controller = Controller(cluster, 901)
        controller.takes_s = 0.5
        await controller.listen()
        await controller.tell()
        ask = broker.context.forwarding.ask(ApiKey.CREATE_TOPICS, 5, CREATE, timeout_ms=20_000)
        asking = asyncio.ensure_future(cluster.in_broker(1, ask))
        await cluster.world.sleep(0.2)
        assert len(controller.connected) == 1
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await cluster.world.sleep(1)
        assert not controller.connected
        answer = await cluster.in_broker(
            1, broker.context.forwarding.ask(ApiKey.CREATE_TOPICS, 5, CREATE, timeout_ms=9)
        )
        assert answer is not None and controller.accepted == 2

    in_memory(scenario)
