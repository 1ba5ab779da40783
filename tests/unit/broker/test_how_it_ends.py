"""Whatever fails while a broker stops: no other step is left out, so that its logs are closed and its session ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import pytest
from structlog.testing import capture_logs

from broker_sim.shutdown import ControlledShutdown
from controller.wire import log_events as ev

#: what refuses to end -> where its end is.
STEPS: dict[str, Callable[[Any], tuple[Any, str]]] = {
    "the controlled shutdown": lambda broker: (ControlledShutdown, "run"),
    "the configs": lambda broker: (broker.context.configs, "stop"),
    "the server": lambda broker: (broker.server, "close"),
    "the metrics": lambda broker: (broker.metrics, "close"),
    "the groups": lambda broker: (broker.context.groups, "stop"),
    "the forwarding": lambda broker: (broker.context.forwarding, "close"),
    "the tasks": lambda broker: (broker.context.supervisor, "stop"),
    "nothing": lambda broker: (broker, "nothing"),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails_skips_no_other(in_memory: Any, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Source: Kafka 3.9 `KafkaServer.shutdown`, which swallows what each step raises."""

    async def scenario(cluster: Any) -> list[Any]:
        broker = cluster.make(1)
        broker.identity = replace(broker.identity, metrics=("broker-1", 9404))
        await cluster.in_broker(1, broker.start())
        session, where = broker.zk.session_id, STEPS[step](broker)

        def refuse(*_: object, **__: object) -> NoReturn:
            raise RuntimeError("it refuses")

        with monkeypatch.context() as patched, capture_logs() as lines:
            patched.setattr(*where, refuse, raising=False)
            await cluster.in_broker(1, broker.stop())
        assert session not in cluster.world.zookeeper.sessions, "so the controller hears at once that it has left"
        assert lines[-1]["event"] == ev.BROKER_STOPPED
        (log_dir,) = broker.identity.log_dirs
        assert (log_dir / ".kafka_cleanshutdown").exists()
        return [line for line in lines if line["event"] == ev.TASK_FAILED]

    assert len(in_memory(scenario)) == (step != "nothing")
