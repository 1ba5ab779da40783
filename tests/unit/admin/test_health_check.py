"""`kwob health`: what it takes to be called healthy, and what is said of each other state."""

from __future__ import annotations

from typing import Any

import pytest

from controller.admin.health import main_async as health
from controller.wire.protocol import ApiKey


def check(tool: Any, cluster: Any, *argv: str) -> Any:
    return tool(health, cluster, argv, bootstrap=None)


def test_a_node_that_lists_itself_is_healthy(cluster: Any, tool: Any) -> None:
    outcome = check(tool, cluster, "b1:9092", "--id", "1")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    (asked,) = cluster.requests(ApiKey.METADATA)
    assert (list(asked.topics), asked.allow_auto_topic_creation) == ([], False), "a check creates nothing"


def test_a_broker_that_no_controller_told_of_itself_is_not(cluster: Any, tool: Any) -> None:
    cluster.answers[ApiKey.METADATA] = lambda broker, body: {"brokers": [], "controller_id": -1, "topics": []}
    outcome = check(tool, cluster, "b1:9092", "--id", "1")
    assert (outcome.code, outcome.err) == (
        1,
        "b1:9092 is not healthy: it does not list 1 among the nodes it knows (none)\n",
    )


def test_another_node_at_the_address_is_not(cluster: Any, tool: Any) -> None:
    outcome = check(tool, cluster, "b1:9092", "--id", "7")
    assert (outcome.code, outcome.err) == (
        1,
        "b1:9092 is not healthy: it does not list 7 among the nodes it knows (0, 1, 2)\n",
    )


def test_nobody_there_is_one_line(cluster: Any, tool: Any) -> None:
    cluster.down = {1}
    outcome = check(tool, cluster, "b1:9092", "--id", "1")
    assert outcome.code == 1
    assert outcome.err.startswith("b1:9092 is not healthy: ") and outcome.err.count("\n") == 1


def test_what_speaks_another_protocol_is_one_line(cluster: Any, tool: Any) -> None:
    cluster.greeting = b"SSH-2.0-OpenSSH_9.2\r\n"
    outcome = check(tool, cluster, "b1:9092", "--id", "1")
    assert outcome.code == 1
    assert outcome.err.startswith("b1:9092 is not healthy: ") and outcome.err.count("\n") == 1


def test_a_frozen_node_is_given_up_at_the_limit(cluster: Any, tool: Any) -> None:
    # A frame of 64 kB is announced, and most of it never comes.
    cluster.greeting = (1 << 16).to_bytes(4, "big")
    outcome = check(tool, cluster, "b1:9092", "--id", "1", "--timeout-s", "2")
    assert (outcome.code, outcome.err) == (1, "b1:9092 is not healthy: no answer within 2 s\n")
    assert outcome.took_s == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize("address", ["b1", ":9092", "b1:", "b1:0", "b1:65536", "b1:x"])
def test_an_address_that_is_none_is_refused(
    cluster: Any, tool: Any, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    with pytest.raises(SystemExit) as end:
        check(tool, cluster, address, "--id", "1")
    assert end.value.code == 2
    assert "is not host:port" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["b1:1", "b1:65535", "[::1]:9092", "::1:9092"])
def test_ports_to_the_last_are_taken(cluster: Any, tool: Any, address: str) -> None:
    assert check(tool, cluster, address, "--id", "1").code == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--id", "x"], "argument --id: 'x' is neither a whole number nor by-name"),
        (["--id", "1_0"], "argument --id: '1_0' is neither"),
        (["--id", "1", "--timeout-s", "nan"], "argument --timeout-s: 'nan' is no number of seconds above 0"),
        (["--id", "1", "--timeout-s", "0"], "'0' is no number of seconds"),
        (["--id", "1", "--timeout-s", "inf"], "'inf' is no number of seconds"),
        (["--id", "1", "--timeout-s", "soon"], "'soon' is no number of seconds"),
        ([], "the following arguments are required: --id"),
    ],
)
def test_what_is_no_id_and_no_limit_is_refused(
    cluster: Any, tool: Any, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as end:
        check(tool, cluster, "b1:9092", *words)
    assert end.value.code == 2 and message in capsys.readouterr().err


#: how this container is called -> its id
NAMES = [("kwob-broker-3", 3), ("broker12", 12), ("a7-b", None), (None, None)]


@pytest.mark.parametrize(("name", "node_id"), NAMES)
def test_an_id_by_name_is_the_number_at_its_end(
    cluster: Any,
    tool: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str | None,
    node_id: int | None,
) -> None:
    monkeypatch.setattr("controller.admin.health.own_name", lambda: name)
    cluster.answers[ApiKey.METADATA] = lambda *_: {"brokers": [], "controller_id": -1, "topics": []}
    try:
        said = check(tool, cluster, "b1:9092", "--id", "by-name").err
    except SystemExit as end:
        said = f"{end.code} {capsys.readouterr().err}"
    if node_id is None:
        assert said.startswith("2 ") and "no name server knows this machine by a name that ends in a number" in said
    else:
        assert f"it does not list {node_id} among" in said
