"""Every handle of a test cluster, in this process and in processes of its own; and that the page tells of each."""

from __future__ import annotations

import inspect
import re
import threading
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from controller.embedded.backends import InThisProcess
from controller.embedded.handles import KafkaCluster
from controller.wire.fault_rows import Fault, FaultError
from tests.handles import CHECKS, SHAPE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "test-your-service.md"
HANDLES = sorted(name for name in dir(KafkaCluster) if not name.startswith("_"))
#: Of the class, not of the fixture: that starts and stops it.
OF_THE_CLASS = {"start", "stop"}


@pytest.fixture(
    scope="module",
    params=["embedded", pytest.param("processes", marks=[pytest.mark.slow, pytest.mark.timeout(400)])],
)
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with KafkaCluster(mode=request.param, **SHAPE) as started:
        yield started


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_handle_does_what_its_name_says(cluster: KafkaCluster, check: Callable[[Any], None]) -> None:
    check(cluster)
    cluster.heal()


def test_every_handle_is_checked() -> None:
    """By a check that calls it."""
    source = "".join(inspect.getsource(check) for check in CHECKS)
    used = set(re.findall(r"cluster\.(\w+)", source))
    assert set(HANDLES) - used == OF_THE_CLASS | {"folder", "metrics"}, "these two have tests of their own"


@pytest.mark.parametrize("name", HANDLES)
def test_a_handle_is_documented_and_typed(name: str) -> None:
    member = inspect.getattr_static(KafkaCluster, name)
    function = member.fget if isinstance(member, property) else member
    assert function.__doc__, "a docstring"
    hints = typing.get_type_hints(function)
    assert set(inspect.signature(function).parameters) - {"self"} | {"return"} <= set(hints) | {"columns"}
    table = PAGE.read_text().split("## What it can do")[1].split("## Recipes")[0]
    assert name in OF_THE_CLASS or re.search(rf"`{name}\b", table), f"{name} is not in the table of handles"


def test_every_option_is_in_the_table_of_the_marker() -> None:
    options = set(inspect.signature(KafkaCluster).parameters) - {"folder"}
    table = PAGE.read_text().split("## Which cluster")[1].split("```")[0]
    assert {name for name in options if f"| `{name}` |" not in table} == set()


def test_a_second_start_is_refused_and_the_cluster_goes_on() -> None:
    before = threading.active_count()
    with KafkaCluster(brokers=1) as cluster:
        running = threading.active_count()
        with pytest.raises(RuntimeError, match="runs already"):
            cluster.start()
        assert threading.active_count() == running
        cluster.create_topic("t")
    assert threading.active_count() == before
    with pytest.raises(RuntimeError, match="does not run"):
        cluster.create_topic("u")


#: a handle -> the fault that it is; brokers 1, 2 and 3 are in racks a, b and a
FAULTS: list[tuple[str, Callable[[KafkaCluster], str], dict[str, Any]]] = [
    ("pause_replication", lambda c: c.pause_replication(2), {"broker": 2}),
    ("pause_replication", lambda c: c.pause_replication(2, "t"), {"broker": 2, "topic": "t"}),
    ("pause_replication", lambda c: c.pause_replication(2, "t", 0), {"broker": 2, "topic": "t", "partition": 0}),
    ("slow_link", lambda c: c.slow_link(1, 3, delay_ms=5), {"broker": 1, "peer": 3, "delay_ms": 5}),
    ("slow_link", lambda c: c.slow_link(1, bytes_per_second=9), {"broker": 1, "bytes_per_second": 9}),
    ("cut_link", lambda c: c.cut_link(3, 1), {"broker": 3, "peer": 1}),
    ("fail_log_dir", lambda c: c.fail_log_dir(2), {"broker": 2, "log_dir": "data-1"}),
    ("fail_log_dir", lambda c: c.fail_log_dir(2, 2), {"broker": 2, "log_dir": "data-2"}),
    ("api", lambda c: c.api_error("Fetch", "NOT_CONTROLLER", nth=1), {"nth": 1}),
    ("kill", lambda c: c.fault(fault="kill", rack="b", broker=2), {"broker": 2, "rack": "b"}),
]


def test_each_handle_is_the_fault_that_its_words_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what was given, 0 among it; who is not in the rack that is named is refused."""
    with KafkaCluster(brokers=3, racks=["a", "b"], log_dirs=2) as cluster:
        for name in ("t", "t2", "ot"):
            cluster.create_topic(name)
        assert {row["topic"] for row in cluster.isr_history("t")} == {"t"}
        rows: list[Fault] = []

        async def keep(_: object, faults: Sequence[Fault]) -> None:
            rows[:] = faults

        monkeypatch.setattr(InThisProcess, "set_faults", keep)
        for kind, handle, columns in FAULTS:
            handle(cluster)
            about = {name: Path(v).name if name == "log_dir" else v for name, v in rows[-1].about().items()}
            assert rows[-1].fault == kind and columns.items() <= about.items(), about
            assert not {"topic", "partition", "peer", "rack", "nth", "log_dir"} & (about.keys() - columns.keys())
        for broker, rack in ((1, "b"), (2, "a"), (3, "b")):
            with pytest.raises(FaultError, match="none of the brokers"):
                cluster.fault(fault="kill", broker=broker, rack=rack)
        assert len(rows) == len(FAULTS)
