"""`kwob plan`: what it searches, what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from controller.rehearse.plan import Verdict, size
from controller.rehearse.plan_command import main
from controller.rehearse.run import rehearse
from controller.rehearse.scenario_file import load
from controller.wire.sizes import parse_bytes
from tests.worlds.rehearsals import GB, brokers, play, topic, write

CLUSTER: dict[str, Any] = {
    "brokers": brokers(4),
    "topics": {"t": topic([1, 2, 3], [2, 3, 1], bytes=2 * GB, in_bytes_per_s=2e6)},
}
MOVE = {
    "do": "reassign",
    "at": 5,
    "partitions": [
        {"topic": "t", "partition": 0, "replicas": [4, 2, 3]},
        {"topic": "t", "partition": 1, "replicas": [2, 3, 4]},
    ],
}


def test_what_is_chosen_is_written_and_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = {"version": 1, "partitions": MOVE["partitions"]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    path = write(tmp_path, cluster=CLUSTER, events=[{"do": "reassign", "at": 5, "file": "plan.json"}])
    (tmp_path / "elsewhere").mkdir()
    chosen = tmp_path / "elsewhere" / "chosen.yaml"
    words = [str(path), "--max-link", "50%", "--throttles", "3MB,20MB,40MB,120MB", "--batches", "1,all"]
    assert main([*words, "--workers", "1", "--out", str(chosen), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert {row["verdict"] for row in printed["tries"]} >= {Verdict.HOLDS, Verdict.TOO_HIGH}
    assert printed["chosen"]["peak_link"] <= 0.5 < max(row["peak_link"] for row in printed["tries"])
    outcome = rehearse(load(chosen))
    assert outcome.moves_end_ms == printed["chosen"]["moves_end_ms"]
    assert main([*words, "--out", str(chosen)]) == 2
    assert "exists; --overwrite replaces it" in capsys.readouterr().err


SPREAD = {"do": "add_broker", "at": 5, "id": 5, "rack": "a", "spread": True}


@pytest.mark.parametrize("event", [MOVE, SPREAD], ids=["a move", "a broker that joins"])
@pytest.mark.parametrize("given_before", [{}, {"batch": 1}, {"throttle": "3MB", "batch": 2}], ids=str)
@pytest.mark.parametrize("batch", [0, 1, 2])
def test_what_is_rehearsed_and_written_is_what_was_tried_whatever_the_scenario_had(
    batch: int, given_before: dict[str, Any], event: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own throttle and batch do not count; without a batch all go at once."""
    topics = {"t": topic(*[[1, 2, 3], [2, 3, 1]] * 2, bytes=GB // 10)}
    cluster = {"brokers": brokers(4), "topics": topics}
    path = write(tmp_path, cluster=cluster, events=[{**event, **given_before}])
    chosen = tmp_path / "chosen.yaml"
    words = ["--max-link", "100%", "--throttles", "40MB", "--batches", str(batch or "all"), "--workers", "1"]
    assert main([str(path), *words, "--out", str(chosen), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)["chosen"]
    wanted = {**event, "throttle": "40MB", **({"batch": batch} if batch else {})}
    assert yaml.safe_load(chosen.read_text())["events"] == [wanted]
    assert printed["moves_end_ms"] == play(tmp_path, cluster=cluster, events=[wanted]).moves_end_ms


@pytest.mark.parametrize(
    ("rate", "text"), [(25e6, "25MB"), (2.5e9, "2.5GB"), (1000, "1kB"), (999, "999"), (1.5, "1.5")]
)
def test_a_size_is_written_as_a_person_would(rate: float, text: str) -> None:
    assert size(rate) == text


@given(
    st.integers(1, 10**15) | st.builds(lambda digits, zeros: digits * 10**zeros, st.integers(1, 99), st.integers(0, 12))
)
@example(12345678)
def test_a_size_that_is_written_is_that_size_again(rate: int) -> None:
    """To the last byte: what a scenario says is what was rehearsed."""
    assert parse_bytes(size(float(rate))) == rate


def test_nothing_that_holds_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, cluster=CLUSTER, events=[MOVE])
    assert main([str(path), "--throttles", "1MB", "--batches", "all", "--workers", "1"]) == 1
    printed = capsys.readouterr().out
    assert "too low: never ends: 2 copies, among them t-0 to broker 4: the throttle leaves less" in printed
    assert (
        "no throttle holds: 1MB/s is too low (never ends: " in printed
        and "higher --throttles or another plan may help" in printed
    )


@pytest.mark.parametrize(
    ("cluster", "events", "message"),
    [
        (CLUSTER, [], "nothing moves"),
        (
            CLUSTER,
            [{"do": "reassign", "partitions": [{"topic": "t", "partition": 1, "replicas": [2, 3, 1]}]}],
            "every partition of the plan is where the plan puts it",
        ),
        (
            {**CLUSTER, "topics": {}},
            [{"do": "add_broker", "id": 9, "rack": "a", "spread": True}],
            "nothing moves: the cluster has no partitions",
        ),
        ({**CLUSTER, "brokers": [{"id": n} for n in (1, 2, 3, 4)]}, [MOVE], "no broker's link is known"),
    ],
)
def test_what_cannot_be_planned_is_refused(
    cluster: dict[str, Any],
    events: list[Any],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([str(write(tmp_path, cluster=cluster, events=events))]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("place", "why"), [("", "it is a folder"), ("none/c.yaml", "none: No such file or directory")])
def test_a_place_where_no_file_can_be_is_told_before_the_search(
    tmp_path: Path, place: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "absent.yaml"), "--out", str(tmp_path / place), "--overwrite"]) == 2
    assert capsys.readouterr().err.endswith(f"{why}\n")


@pytest.mark.parametrize(
    "words", [["--max-link", "0"], ["--throttles", "0MB"], ["--throttles", "0.5"], ["--batches", "none"]]
)
def test_flags_that_say_nothing_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["move.yaml", *words])
    assert exit_.value.code == 2
    assert words[0] in capsys.readouterr().err
