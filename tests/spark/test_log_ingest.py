"""Log files of a cluster through the job: rows, state writes, bounds; copies and torn files change nothing."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import BooleanType, StringType, StructField, StructType
from rich.console import Console

from broker_sim.replay import job
from broker_sim.replay.errors import ReplayRefused
from broker_sim.replay.ingest import neighbours
from broker_sim.replay.ingest.job import Source
from broker_sim.replay.job import Replayed, ReplaySettings
from broker_sim.replay.logs import frames, woven
from broker_sim.replay.logs.files import log_files
from broker_sim.replay.metadata_log.rows import with_added
from broker_sim.replay.progress import StepProgress
from broker_sim.replay.schema import CLOCK_WENT_BACK
from controller.wire.trace import TRACE_VERSION

pytestmark = pytest.mark.spark

NOON = 1_717_329_600_000  # 2024-06-02 12:00:00 UTC, 14:00 in Berlin


def at(seconds: float, text: str, logger: str = "kafka.cluster.Partition") -> str:
    ms = round(seconds * 1000)
    return f"[2024-06-02 14:{ms // 60_000:02d}:{ms // 1000 % 60:02d},{ms % 1000:03d}] INFO {text} ({logger})"


def of_orders(seconds: float, text: str) -> str:
    return at(seconds, f"[Partition orders-0 broker=1] {text}")


STATE_CHANGE = "state.change.logger"
SERVER = [
    "[2024-06-02 14:00:00,000] INFO KafkaConfig values: ",
    "\treplica.lag.time.max.ms = 10000",
    "\tmin.insync.replicas = 2",
    " (kafka.server.KafkaConfig)",
    at(0.1, "[LogDirFailureHandler]: Starting", "kafka.server.ReplicaManager$LogDirFailureHandler"),
    at(1, "[KafkaServer id=1] started", "kafka.server.KafkaServer"),
    "java.lang.IllegalStateException: of no interest",
    "\tat java.base/java.lang.Thread.run(Thread.java:840)",
    of_orders(60, "Shrinking ISR from 1,2,3 to 1,2. Leader: (highWatermark: 10, endOffset: 20). "
                  "Out of sync replicas: (brokerId: 3, endOffset: 10)."),
    of_orders(60.004, "ISR updated to 1,2  and version updated to 1"),
    of_orders(90, "ISR updated to 1,2,3  and version updated to 2"),
    of_orders(100, "ISR updated to everyone"),
    of_orders(101, "ISR updated to 1,2  and version updated to 3")[:-30],
]  # fmt: skip
CONTROLLER_OF_1 = [
    at(2, "[Controller id=1 epoch=1] Changed partition orders-0 state from NonExistentPartition to NewPartition with "
          "assigned replicas 1,2,3", STATE_CHANGE),
    at(2.1, "[Controller id=1 epoch=1] Changed partition orders-0 from NewPartition to OnlinePartition with state "
            "LeaderAndIsr(leader=1, leaderEpoch=0, isrWithBrokerEpoch=List(BrokerState(brokerId=1, brokerEpoch=-1), "
            "BrokerState(brokerId=2, brokerEpoch=-1), BrokerState(brokerId=3, brokerEpoch=-1)), "
            "leaderRecoveryState=RECOVERED, partitionEpoch=0)", STATE_CHANGE),
    at(2.2, "[Broker id=1] Leader orders-0 with topic id None starts at leader epoch 0 from offset 0 with partition "
            "epoch 0, high watermark 0, ISR [1,2,3], adding replicas [] and removing replicas [] . Previous leader "
            "None and previous leader epoch was -1.", STATE_CHANGE),
    at(120, "[Controller id=1 epoch=1] Partition orders-0 state changed to (Leader:1,ISR:1,3,LeaderRecoveryState:"
            "RECOVERED,LeaderEpoch:1,ZkVersion:4,ControllerEpoch:1) after removing replica 2 from the ISR as part of "
            "transition to OfflineReplica", STATE_CHANGE),
]  # fmt: skip


def write(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "server.log.1").write_text("\n".join(SERVER[:9]) + "\n")
    (folder / "server.log").write_text("\n".join(SERVER[9:]))
    (folder / "state-change.log.gz").write_bytes(gzip.compress("\n".join(CONTROLLER_OF_1).encode()))
    return folder


def quiet() -> StepProgress:
    return StepProgress(Console(stderr=True), quiet=True)


def run(spark: SparkSession, source: Source, out: Path, *, only_ingest: bool = False) -> Replayed:
    settings = ReplaySettings(source=source, out=out)
    work = job.ingest_only if only_ingest else job.run
    return work(spark, settings, job.check(settings), quiet())


def table(out: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(out / name).to_pylist()
    return rows


@pytest.fixture(scope="module")
def done(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Replayed, Path]:
    base = tmp_path_factory.mktemp("logs")
    logs = write(base / "logs")
    return run(spark, Source(kafka_logs=(logs,), zones=("Europe/Berlin",)), base / "out"), base


def test_every_state_write_is_there_and_a_missing_one_is_told_of(done: tuple[Replayed, Path]) -> None:
    replayed, base = done
    names = ("zk_version", "leader_epoch", "leader", "isr", "written_by", "source", "ts")
    told = [tuple(row[n] for n in names) for row in table(base / "out", "state_writes")]
    assert told == [
        (0, 0, 1, [1, 2, 3], "controller", "log", NOON + 2100),
        (1, 0, 1, [1, 2], "leader", "log", NOON + 60_004),
        (2, 0, 1, [1, 2, 3], "leader", "log", NOON + 90_000),
        (4, 1, 1, [1, 3], "controller", "log", NOON + 120_000),
    ]
    assert replayed.summary["noticed"] == {"missing_state": 1}


def test_without_fetches_no_rule_is_run_and_times_have_bounds(done: tuple[Replayed, Path]) -> None:
    _, base = done
    history = table(base / "out", "isr_history")
    assert {row["source"] for row in history} == {"log"}
    assert [row["event"] for row in history if row["event"].startswith("isr_")] == ["isr_shrink", "isr_expand"]
    (came_back,) = [row for row in table(base / "out", "catch_up") if row["replica"] == 3]
    # Removed at 60 s with a lag of 10 s and a check every 5 s.
    assert (came_back["caught_up_min_ts"] - NOON, came_back["caught_up_max_ts"] - NOON) == (45_000, 50_000)
    assert (came_back["out_of_isr_ms"], came_back["catch_up_ms"]) == (30_000, None)
    windows = {(row["window"], row["from_ts"] - NOON, row["to_ts"] - NOON) for row in table(base / "out", "windows")}
    assert ("under_replicated", 60_000, 90_000) in windows


def test_bad_lines_are_counted_and_shown(done: tuple[Replayed, Path]) -> None:
    replayed, base = done
    assert {k: n for k, n in replayed.summary["quarantined"].items() if n} == {"torn": 1, "unknown_text": 1}
    assert {row["source"] for row in table(base / "out", "quarantine")} == {"log"}


def test_copies_and_cut_files_change_no_row(spark: SparkSession, done: tuple[Replayed, Path]) -> None:
    _, base = done
    logs = write(base / "more" / "b1")
    (logs / "server.log.2024-06-02-14").write_text("\n".join(SERVER[4:11]) + "\n")
    noise = (random.Random(n).randbytes(60).hex() for n in range(2000))
    packed = gzip.compress("\n".join([*CONTROLLER_OF_1, *noise]).encode())
    (logs / "cut.log.gz").write_bytes(packed[: len(packed) // 2])
    again = run(
        spark, Source(kafka_logs=(base / "more",), zones=("1=Europe/Berlin",)), base / "again", only_ingest=True
    )
    first, second = (
        pq.read_table(folder / "trace").sort_by([("seq", "ascending"), ("ev", "ascending")]).drop_columns(["file"])
        for folder in (base / "out", base / "again")
    )
    assert first.equals(second)
    torn = [row["file"] for row in table(base / "again", "quarantine") if "cannot be unpacked" in row["line"]]
    assert [Path(file).name for file in torn] == ["cut.log.gz"]
    assert again.summary["quarantined"]["torn"] == 2


def fetch_request(seconds: float) -> str:
    """Replica 2 asks for orders-0 from offset 5 on."""
    asked = {"topic": "orders", "partitions": [{"partition": 0, "currentLeaderEpoch": 0, "fetchOffset": 5}]}
    call = {
        "requestHeader": {"requestApiKeyName": "FETCH", "correlationId": 1},
        "request": {"replicaId": 2, "sessionId": 0, "sessionEpoch": 0, "topics": [asked], "forgottenTopicsData": []},
        "response": {"errorCode": 0, "sessionId": 77, "responses": []},
        "totalTimeMs": 4.0,
        "requestQueueTimeMs": 1.0,
        "localTimeMs": 1.0,
        "remoteTimeMs": 0.0,
    }
    return at(seconds, f"Completed request:{json.dumps(call, separators=(',', ':'))}", "kafka.request.logger")


def test_a_broker_that_records_fetches_itself_is_not_asked_by_its_requests(spark: SparkSession, tmp_path: Path) -> None:
    """Else each fetch would be there twice; for a broker without DEBUG lines, requests are all there is."""
    recorded = of_orders(10, "Recorded replica 2 log end offset (LEO) position 7.").replace("INFO", "DEBUG")
    for broker, extra in ((1, [recorded]), (4, [])):
        folder = tmp_path / f"logs-{broker}"
        folder.mkdir()
        told = [line.replace("broker=1", f"broker={broker}").replace("id=1", f"id={broker}") for line in extra]
        started = at(1, f"[KafkaServer id={broker}] started", "kafka.server.KafkaServer")
        (folder / "server.log").write_text("\n".join([started, *told]) + "\n")
        (folder / "kafka-request.log").write_text(fetch_request(20) + "\n")
    source = Source(kafka_logs=(tmp_path / "logs-1", tmp_path / "logs-4"), zones=("Europe/Berlin",))
    run(spark, source, tmp_path / "out", only_ingest=True)
    fetches = [row for row in table(tmp_path / "out", "trace") if row["ev"] == "fetch"]
    assert {(row["broker"], row["replica"], row["offset"]) for row in fetches} == {(1, 2, 7), (4, 2, 5)}


def led(seconds: float, epoch: int) -> str:
    return at(seconds, f"[Broker id=1] Leader orders-0 with topic id None starts at leader epoch {epoch} from offset 0 "
                       "with partition epoch 0, high watermark 0, ISR [1,2], adding replicas [] and removing replicas "
                       "[] . Previous leader None and previous leader epoch was -1.", STATE_CHANGE)  # fmt: skip


#: A clock that went back from 11 s to 5 s, and a write that lets one in and puts another out at once.
ODD = [
    led(10, 0),
    of_orders(11, "ISR updated to 1,2  and version updated to 1"),
    led(20, 1),
    at(20.001, "Reset state of replica to Replica(replicaId=2, topic=orders, partition=0, lastCaughtUpTimeMs="
               f"{NOON + 5000})", "kafka.cluster.Replica"),
    of_orders(30, "ISR updated to 1,3  and version updated to 2"),
]  # fmt: skip


def test_what_is_odd_is_told_of_once(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("\n".join(ODD) + "\n")
    source = Source(kafka_logs=(tmp_path / "server.log",), zones=("Europe/Berlin",))
    ingested = run(spark, source, tmp_path / "out", only_ingest=True)
    assert ingested.summary["noticed"]["clock_went_back"] == 1
    (lane,) = [row for row in table(tmp_path / "out", "notices") if row["reason"] == "clock_went_back"]
    assert (lane["topic"], lane["partition"], lane["broker"], lane["first_ts"]) == ("orders", 0, 1, NOON + 5000)
    (refused,) = table(tmp_path / "out", "quarantine")
    assert (refused["reason"], refused["source"], Path(refused["file"]).name) == ("contradictory", "log", "server.log")
    assert (json.loads(refused["line"])["isr"], json.loads(refused["line"]).get("key")) == ([1, 3], None)
    assert [row["ev"] for row in table(tmp_path / "out", "trace")] == ["leader", "leader", "elect"]


def test_log_files_that_say_nothing_of_replication_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(at(1, "hello") + "\n")
    with pytest.raises(ReplayRefused, match="none said anything about replication"):
        run(spark, Source(kafka_logs=(tmp_path / "server.log",)), tmp_path / "out", only_ingest=True)


def test_woven_rows_are_judged_as_if_they_were_compared(spark: SparkSession, tmp_path: Path) -> None:
    """None stands twice, and each tells itself what a comparison with the row before would find."""
    folder = write(tmp_path / "logs")
    (folder / "odd.log").write_text("\n".join(ODD) + "\n")
    files = log_files([folder])
    rows = woven.rows(frames.write_facts(spark, files, {None: ZoneInfo("Europe/Berlin")}, tmp_path / "facts"))
    ordered = neighbours.in_order(with_added(rows.drop(CLOCK_WENT_BACK)))
    ddl = StructType(
        [*ordered.schema, StructField(CLOCK_WENT_BACK, BooleanType()), StructField("repeats", StringType())]
    )
    compared = ordered.mapInArrow(neighbours.compared, schema=ddl).toArrow()
    alone = rows.toArrow()
    assert sorted(map(str, alone.to_pylist())) == sorted(map(str, compared.select(alone.column_names).to_pylist()))
    assert compared["repeats"].null_count == len(compared) and any(alone[CLOCK_WENT_BACK].to_pylist())


def test_a_trace_whose_clock_went_back(spark: SparkSession, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"ev": "start", "value": "5"}, *({"ev": "tick"} for _ in range(5))]
    times = [5, 90_000, 1000, 2000, 3000, 1500]
    told = [{"seq": i, "ts": ts, "broker": 1, **row} for i, (ts, row) in enumerate(zip(times, rows, strict=True))]
    lines = [*map(json.dumps, told), json.dumps(told[2]), '{"seq": 9, "ts']
    (tmp_path / "broker-1-5.jsonl").write_text("\n".join(lines) + "\n")
    ingested = run(spark, Source(traces=(tmp_path,)), tmp_path / "out", only_ingest=True)
    assert (ingested.summary["rows"], ingested.summary["duplicates"]) == (6, 1)
    (notice,) = table(tmp_path / "out", "notices")
    assert (notice["reason"], notice["rows"], notice["first_ts"]) == ("clock_went_back", 2, 1000)
    assert [(row["reason"], row["line"]) for row in table(tmp_path / "out", "quarantine")] == [("torn", lines[-1])]


def test_ingested_rows_are_read_again(spark: SparkSession, done: tuple[Replayed, Path]) -> None:
    _, base = done
    once = run(spark, Source(traces=(base / "out" / "trace",)), base / "reread", only_ingest=True)
    assert once.summary["rows"] == pq.read_table(base / "out" / "trace").num_rows
    assert table(base / "reread", "state_writes") == table(base / "out", "state_writes")


def test_a_trace_of_another_version_is_refused_row_by_row(spark: SparkSession, tmp_path: Path) -> None:
    def rows(broker: int, version: int) -> str:
        told: list[dict[str, Any]] = [
            {"ev": "start", "value": "5"},
            {"ev": "config", "key": "trace.version", "value": str(version)},
            {"ev": "tick"},
        ]
        return "\n".join(json.dumps({"seq": i, "ts": 5 + i, "broker": broker, **row}) for i, row in enumerate(told))

    (tmp_path / "broker-1-5.jsonl").write_text(rows(1, TRACE_VERSION))
    (tmp_path / "broker-2-5.jsonl").write_text(rows(2, TRACE_VERSION + 1))
    ingested = run(spark, Source(traces=(tmp_path,)), tmp_path / "out", only_ingest=True)
    assert ingested.summary["rows"] == 3
    assert ingested.summary["quarantined"]["unknown_version"] == 3
