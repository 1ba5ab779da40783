"""A Spark session that starts quickly and says nothing: local by default, any master unchanged."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext, accumulators
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from broker_sim.replay.errors import ReplayRefused, reason_of
from controller.world.real.java import JavaNotFound, find_java, java_locale, spark_java_home

#: Quiet from the first line: log4j reads this before Spark can be told anything. The gateway has a row of its own
#: because Spark otherwise takes it for a shell, sets the level to WARN, and says so.
_LOG4J: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""
#: Shuffle partitions of a local run; adaptive execution joins small ones. A cluster's own setting is kept.
_LOCAL_SHUFFLE_PARTITIONS: Final = 64
#: An input smaller than this is replayed faster by code that is not optimized first.
SMALL_INPUT_BYTES: Final = 64 * 1024 * 1024

_CONF: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    # Spark 4.3 otherwise measures a batch after each of its rows, at a cost that grows with the batch: 15 times slower.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}
_LOCAL_CONF: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(_LOCAL_SHUFFLE_PARTITIONS),
    "spark.driver.memory": "2g",
    "spark.python.daemon.module": "broker_sim.replay.python_workers",
}
#: For small inputs: starting is most of the work, so nothing is planned or compiled that need not be.
_SMALL_CONF: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
}
#: An input smaller than this is read before code for it would be generated and compiled: Spark interprets its plans,
#: which takes a third off the whole. (The second key is one that Spark keeps for its own tests.)
TINY_INPUT_BYTES: Final = 4 * 1024 * 1024
_TINY_CONF: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
#: What listens to the JVM in the driver.
_AccumulatorServer: Final[Any] = accumulators.AccumulatorTCPServer
#: A standalone master whose workers are on this machine.
_ON_THIS_MACHINE: Final = re.compile(r"spark://(localhost|127\.0\.0\.1)(:|$)")
_SMALL_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: Left to itself the JVM's optimizing compiler takes a fourth of the CPU of a replay of three million rows, most of it
#: for code that plans. So only what runs ten times as often is optimized: half of that, and tasks are no slower.
_GREAT_JVM: Final = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)


@contextmanager
def spark_session(master: str = "local[*]", *, input_bytes: int = SMALL_INPUT_BYTES) -> Iterator[SparkSession]:
    """A session on `master`, stopped at the end. Files it needs for itself are removed with it.

    `input_bytes` is what will be read: a local session for a small input is tuned to start quickly.

    Raises: ReplayRefused, when there is no Java 17 or later, or Spark does not start on this master.
    """
    with tempfile.TemporaryDirectory(prefix="kwob-spark-") as scratch:
        _point_to_java(Path(scratch), master)
        with _interrupts() as take_interrupts:
            try:
                session = _start(master, Path(scratch), input_bytes)
            except BaseException:
                _end_jvm()
                raise
            take_interrupts()  # from pyspark, whose handler talks to a JVM that may be in the middle of an answer
            try:
                yield session
            finally:
                with suppress(Py4JError, OSError), warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # that the JVM is gone already: Ctrl-C has ended it
                    session.stop()


@contextmanager
def _interrupts() -> Iterator[Callable[[], None]]:
    """Ctrl-C in the block ends the JVM, with all that waits for it, and raises KeyboardInterrupt; nobody complains.

    While the JVM is being launched nobody can end it: Ctrl-C waits until it is there. Gives what takes Ctrl-C again,
    after somebody else took it, and raises one that waited. What fails because the JVM is gone is an interrupt, too:
    pyspark tells the JVM when it leaves a call. Nothing happens in a thread, which gets no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return

    waiting = interrupted = False

    def end(_: int, __: FrameType | None) -> None:
        nonlocal waiting, interrupted
        interrupted = True
        for name in (None, "py4j", "py4j.clientserver", "py4j.java_gateway", "pyspark"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        _AccumulatorServer.handle_error = lambda *_: None  # that the JVM hung up would come with a stack trace
        if not (waiting := not _end_jvm()):
            raise KeyboardInterrupt

    def take() -> None:
        signal.signal(signal.SIGINT, end)
        if waiting:
            _end_jvm()
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, end)
    try:
        yield take
    except Exception:
        if interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)


def _end_jvm() -> bool:
    """Whether there was one."""
    if (process := _jvm()) is not None:
        process.kill()
    return process is not None


def _jvm() -> subprocess.Popen[bytes] | None:
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    return process


@contextmanager
def tuned_for(spark: SparkSession, input_bytes: int) -> Iterator[None]:
    """What runs in the block reads so much: planned as a session for such an input would; nothing changes on a cluster.

    A step of a great job that reads little is mostly planning, and compiling what is then run once.
    """
    if not str(spark.sparkContext.master).startswith("local"):
        yield
        return
    settings = _sql_conf(input_bytes)
    before = {key: spark.conf.get(key) for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            spark.conf.set(key, str(old))


def _sql_conf(input_bytes: int) -> dict[str, str]:
    small, tiny = input_bytes < SMALL_INPUT_BYTES, input_bytes < TINY_INPUT_BYTES
    return (_SMALL_CONF if small else {}) | (_TINY_CONF if tiny else {})


def size_of(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _point_to_java(scratch: Path, master: str) -> None:
    """Sets the environment of the JVM that pyspark is about to start."""
    try:
        os.environ["JAVA_HOME"] = str(spark_java_home(find_java(), scratch))
    except JavaNotFound as error:
        raise ReplayRefused(f"the replay runs on Spark, which needs Java: {error}") from error
    os.environ.update(java_locale(os.environ))
    # What workers import must not depend on the folder that the command was typed in.
    os.environ["PYTHONSAFEPATH"] = "1"
    root = Path(__file__).resolve().parents[2]
    if "site-packages" not in root.parts:
        others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([str(root), *filter(None, others)]))
    # Workers must be this interpreter, with its libraries, not the first python3 of the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    address = driver_address(master)
    if address is not None:
        os.environ.setdefault("SPARK_LOCAL_IP", address)


def driver_address(master: str) -> str | None:
    """Where the driver listens: on this machine alone, when nobody else has to reach it; None: where Spark chooses."""
    is_here = master.startswith("local") or _ON_THIS_MACHINE.match(master) is not None
    return "127.0.0.1" if is_here else None


def _start(master: str, scratch: Path, input_bytes: int) -> SparkSession:
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J)
    local = master.startswith("local")
    is_small = local and input_bytes < SMALL_INPUT_BYTES
    tuning = _SMALL_JVM if is_small else _GREAT_JVM if local else ""
    options = f"-Dlog4j2.configurationFile={log4j.as_uri()} {tuning}".rstrip()
    builder = SparkSession.builder.appName("kwob replay").master(master)
    settings = {**_CONF, "spark.driver.extraJavaOptions": options, "spark.executorEnv.PYTHONSAFEPATH": "1"}
    if local:
        settings |= _LOCAL_CONF | _sql_conf(input_bytes)
        settings["spark.local.dir"] = str(scratch)
        settings["spark.sql.warehouse.dir"] = str(scratch / "warehouse")
    for key, value in settings.items():
        builder = builder.config(key, value)
    complaints = scratch / "jvm-stderr"
    try:
        _launch_jvm(master, settings, complaints)
        session: SparkSession = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        why = _complaint(complaints) or reason_of(error)
        raise ReplayRefused(f"Spark does not start on master {master}: {why}") from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def _launch_jvm(master: str, settings: Mapping[str, str], complaints: Path) -> None:
    """Starts the JVM, if none runs yet, and keeps what it writes to standard error from the terminal, in a file.

    That is warnings of the JVM about modules, and stack traces of tasks that were under way when Spark closed. What a
    job dies of comes as an exception.
    """
    if SparkContext._gateway is None:
        conf = SparkConf(loadDefaults=False).setMaster(master).setAll(list(settings.items()))
        with complaints.open("wb") as stderr:
            SparkContext._ensure_initialized(gateway=launch_gateway(conf, {"stderr": stderr}))


def _complaint(complaints: Path) -> str | None:
    """The first line that tells of an error."""
    with suppress(OSError):
        lines = complaints.read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.strip() for line in lines if "rror" in line or "xception" in line), None)
    return None
