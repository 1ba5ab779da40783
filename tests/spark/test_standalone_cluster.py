"""The job on a Spark cluster: a master and two workers as processes, by `--master` and by `spark-submit`.

Takes a minute or two, so it runs with the suites of a wider machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from broker_sim.replay.generator.plan import ClusterPlan
from broker_sim.replay.generator.write import generate
from controller.world.real.java import find_java, spark_java_home
from tests.spark.standalone import standalone_cluster
from tests.worlds.rehearsals import GB, brokers, topic, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 600


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("generated") / "cluster"
    plan = ClusterPlan(brokers=4, partitions_per_topic=4, hours=0.3, seed=3, fault_every_ms=10_000)
    assert generate(plan, out, form="jsonl").changes
    return out


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


def _told(trace: Path) -> set[tuple[object, ...]]:
    rows = pq.read_table(trace / "truth").to_pylist()
    changes = [r for r in rows if r["event"] in ("isr_shrink", "isr_expand")]
    return {(r["topic"], r["partition"], r["ts"], r["event"], r["leader"], tuple(r["isr"])) for r in changes}


def _derived(out: Path) -> set[tuple[object, ...]]:
    rows = pq.read_table(out / "isr_history").to_pylist()
    changes = [r for r in rows if r["source"] == "replayed"]
    return {(r["topic"], r["partition"], r["ts"], r["event"], r["leader"], tuple(r["isr"])) for r in changes}


def _run(words: list[str], cwd: Path, **environment: str) -> None:
    env = {**os.environ, **environment}
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


def test_two_workers_find_the_truth(master: str, trace: Path, tmp_path: Path) -> None:
    words = ["run", "--trace", str(trace / "trace"), "--out", str(tmp_path / "out"), "--master", master, "--check"]
    _run([sys.executable, "-m", "broker_sim.replay", *words], tmp_path)
    assert _derived(tmp_path / "out") == _told(trace)
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["comparison"]["spurious"] == summary["comparison"]["missing"] == 0


def test_the_packaged_job_is_submitted(master: str, trace: Path, tmp_path: Path) -> None:
    """As docs/replay.md tells: the packages in one archive, and the module's file as what is run."""
    archive = tmp_path / "kwob.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for package in ("controller", "broker_sim"):
            for file in sorted((ROOT / package).rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    packed.write(file, file.relative_to(ROOT))
    spark = Path(pyspark.__file__).parent
    java_home = spark_java_home(find_java(), tmp_path)
    job = ROOT / "broker_sim/replay/__main__.py"
    words = ["run", "--trace", str(trace / "trace"), "--out", str(tmp_path / "out"), "--master", master]
    submit = ["bash", str(spark / "bin/spark-submit"), "--master", master, "--py-files", str(archive), str(job), *words]
    environment = {"SPARK_HOME": str(spark), "JAVA_HOME": str(java_home), "SPARK_LOCAL_IP": "127.0.0.1"}
    _run(submit, tmp_path, **environment, PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable)
    assert _derived(tmp_path / "out") == _told(trace)


def test_a_sweep_of_rehearsals_is_the_same_there_and_here(master: str, tmp_path: Path) -> None:
    cluster = {"brokers": brokers(6), "topics": {"t": topic([1, 2], [3, 4], [5, 6], [1, 4], bytes=GB)}}
    path = write(tmp_path, cluster=cluster)
    words = ["rehearse", "sweep", str(path), "--each", "broker", "--at", "worst,5s", "--for", "30s", "--out"]
    _run([sys.executable, "-m", "controller.cli", *words, str(tmp_path / "there"), "--master", master], tmp_path)
    _run([sys.executable, "-m", "controller.cli", *words, str(tmp_path / "here"), "--workers", "1"], tmp_path)
    there, here = (json.loads((tmp_path / name / "sweep.json").read_text()) for name in ("there", "here"))
    assert there == here
    assert [row["varied"].get("loss") for row in there] == [f"broker {n}" for n in range(1, 7) for _ in "ab"] + [None]
    assert (tmp_path / "there" / "rehearsal.html").exists()


def test_log_files_say_the_same_there_and_here(master: str, tmp_path: Path) -> None:
    """Two workers write rows and what is refused; here one process does."""
    logs = ROOT.parent / "shared" / "data" / "isr" / "kill-and-restarts"
    if not logs.exists():
        pytest.skip(f"no recorded run at {logs}")
    for name, where in (("there", master), ("here", "local[1]")):
        words = ["run", "--kafka-logs", str(logs), "--out", str(tmp_path / name), "--master", where]
        _run([sys.executable, "-m", "broker_sim.replay", *words], tmp_path)
    for table in ("isr_history", "state_writes", "quarantine", "absences", "windows"):
        there, here = (_sorted_rows(tmp_path / name / table) for name in ("there", "here"))
        assert there == here and (there or table == "quarantine"), table
    assert not [path for path in (tmp_path / "there").iterdir() if path.name.endswith(".new")], "nothing is left over"


def _sorted_rows(table: Path) -> list[str]:
    rows = pq.read_table(table).to_pylist() if table.exists() else []
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)


KRAFT_RUNS = [ROOT / "tests" / "kraft_runs" / "elr", ROOT.parent / "shared" / "data" / "kraft" / "faults-a"]


@pytest.mark.parametrize("run", [pytest.param(run, id=run.name) for run in KRAFT_RUNS])
def test_a_kraft_clusters_metadata_log_is_exact_on_the_cluster(master: str, tmp_path: Path, run: Path) -> None:
    """Two workers decode it, and all that Kafka's own decoder says is there: versions, times, epochs, leaders, ISRs."""
    if not run.exists():
        pytest.skip(f"no recorded run at {run}")
    out = tmp_path / "out"
    words = ["-m", "broker_sim.replay", "run", "--metadata-log", str(run / "metadata")]
    _run([sys.executable, *words, "--out", str(out), "--master", master], ROOT)
    names = ("topic", "partition", "offset", "leader", "leader_epoch", "partition_epoch")
    rows = pq.read_table(out / "partition_changes").to_pylist()
    found = {
        (*(r[n] for n in names), r["ts"], tuple(r["isr"]), tuple(r["replicas"]))
        for r in rows
        if r["event"] in ("created", "changed")
    }
    truth = [json.loads(line) for line in (run / "truth.jsonl").read_text().splitlines()]
    assert found == {(*(r[n] for n in names), r["ms"], tuple(r["isr"]), tuple(r["replicas"])) for r in truth}
    assert len(truth) > 100


def test_worlds_are_played_there_as_here(master: str, tmp_path: Path) -> None:
    words = ["sim", "run", "--seeds", "0..5", "--json", "--set", "steps=3", "--set", "brokers=3"]
    told = []
    for how in (["--master", master], ["--workers", "1"]):
        command = [sys.executable, "-m", "controller.cli", *words, *how]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        told.append(json.loads(done.stdout))
    there, here = told
    assert there["seeds"] == here["seeds"] == 6 and not there["failures"]
    assert there["virtual_s"] == pytest.approx(here["virtual_s"]), "the same worlds, to the last virtual second"
