"""A standalone Spark cluster on this machine, from pyspark's own jars: a master and workers as processes."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from controller.world.real.java import find_java, spark_java_home

LIMIT_S = 90
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


@contextmanager
def standalone_cluster(folder: Path, *, workers: int = 2) -> Iterator[str]:
    """Starts it and yields the master's URL once all workers are registered; everything ends with the block."""
    with ExitStack() as stack:
        home = spark_java_home(find_java(), folder)
        log = folder / "master.log"
        stack.enter_context(_process(folder, home, log, [_MASTER, "--host", "127.0.0.1", "--port", "0"]))
        url = _wait_for(log, r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            work = folder / f"worker-{number}"
            words = [_WORKER, "--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--work-dir", str(work), url]
            of_worker = folder / f"worker-{number}.log"
            stack.enter_context(_process(folder, home, of_worker, words))
            _wait_for(of_worker, "Successfully registered with master (spark://)")
        yield url


@contextmanager
def _process(folder: Path, java_home: Path, log: Path, words: list[str]) -> Iterator[None]:
    spark = Path(pyspark.__file__).parent
    settings = folder / "log4j2.properties"
    settings.write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.out.ref = out\nappender.out.type = Console\n"
        "appender.out.name = out\nappender.out.layout.type = PatternLayout\nappender.out.layout.pattern = %m%n\n"
    )
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_PUBLIC_DNS": "127.0.0.1"}
    environment |= {"SPARK_HOME": str(spark), "JAVA_HOME": str(java_home), "SPARK_DAEMON_MEMORY": "384m"}
    environment |= {"SPARK_DAEMON_JAVA_OPTS": f"-Dlog4j2.configurationFile={settings.as_uri()}"}
    # The script replaces itself by the JVM.
    command = ["bash", str(spark / "bin/spark-class"), *words, "--webui-port", "0"]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment, cwd=folder)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(log: Path, pattern: str) -> str:
    limit = time.monotonic() + LIMIT_S
    while time.monotonic() < limit:
        if found := re.search(pattern, log.read_text(errors="replace")):
            return found[1]
        time.sleep(0.05)
    said = log.read_text(errors="replace")[-2000:]
    raise AssertionError(f"{log.name} does not say {pattern!r} within {LIMIT_S} s:\n{said}")
