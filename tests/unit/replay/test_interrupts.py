"""Ctrl-C while Spark starts: no JVM is left behind."""

from __future__ import annotations

import os
import signal

import pytest
from pyspark import SparkContext, accumulators

from broker_sim.replay.session import spark_session


class Jvm:
    def __init__(self) -> None:
        self.proc, self.is_killed = self, False

    def kill(self) -> None:
        self.is_killed = True


@pytest.mark.parametrize("has_begun", [False, True], ids=["before it is there", "when it is there"])
def test_the_jvm_ends_with_an_interrupted_start(monkeypatch: pytest.MonkeyPatch, has_begun: bool) -> None:
    jvm = Jvm()

    def start(*_: object) -> object:
        if has_begun:
            monkeypatch.setattr(SparkContext, "_gateway", jvm)
        os.kill(os.getpid(), signal.SIGINT)
        monkeypatch.setattr(SparkContext, "_gateway", jvm)
        return object()

    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr("broker_sim.replay.session._start", start)
    monkeypatch.setattr("broker_sim.replay.session._point_to_java", lambda *_: None)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), spark_session("local[1]"):
        pytest.fail("it goes on")
    assert jvm.is_killed and signal.getsignal(signal.SIGINT) is before


def test_the_jvm_ends_with_a_start_that_pyspark_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    jvm = Jvm()

    def start(*_: object) -> object:
        monkeypatch.setattr(SparkContext, "_gateway", jvm)
        raise KeyboardInterrupt

    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr("broker_sim.replay.session._start", start)
    monkeypatch.setattr("broker_sim.replay.session._point_to_java", lambda *_: None)
    with pytest.raises(KeyboardInterrupt), spark_session("local[1]"):
        pytest.fail("it goes on")
    assert jvm.is_killed


def test_what_fails_because_the_jvm_was_ended_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    class Session:
        def stop(self) -> None:
            raise ConnectionRefusedError

    monkeypatch.setattr(SparkContext, "_gateway", Jvm())
    monkeypatch.setattr("broker_sim.replay.session._start", lambda *_: Session())
    monkeypatch.setattr("broker_sim.replay.session._point_to_java", lambda *_: None)
    before = accumulators.AccumulatorTCPServer.handle_error
    monkeypatch.setattr(accumulators.AccumulatorTCPServer, "handle_error", before)  # and put back
    with pytest.raises(KeyboardInterrupt), spark_session("local[1]"):
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            raise ConnectionRefusedError  # as `collect` does, which tells the JVM that it is over
    assert accumulators.AccumulatorTCPServer.handle_error is not before, "the driver says that the JVM hung up"
