"""`kwob spark master` and `kwob spark worker`: a standalone Spark cluster from pyspark's own jars, for `replay run
--master`. Each becomes the JVM, which ends at SIGTERM.

Source: `org.apache.spark.deploy.{master.Master, worker.Worker}` of Spark 4, and its `bin/spark-class`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from controller.world.help_text import help_end
from controller.world.real.java import JavaNotFound, find_java, java_locale, spark_java_home

MASTER_PORT: Final = 7077
_CLASSES: Final = {"master": "org.apache.spark.deploy.master.Master", "worker": "org.apache.spark.deploy.worker.Worker"}
#: What the process itself needs, beside the executors of a worker.
_DAEMON_MEMORY: Final = "384m"


def command_line() -> argparse.ArgumentParser:
    """The parser."""
    parser = argparse.ArgumentParser(
        prog="kwob spark",
        description="A standalone Spark cluster, on which replays run: one master, and workers that know its address.",
        **help_end(
            [
                "kwob spark master --host 0.0.0.0",
                "kwob spark worker spark://spark-master:7077 --cores 1 --memory 1g",
            ],
            "1 it cannot be started; 2 wrong arguments; else the JVM's",
        ),
    )
    parts = parser.add_subparsers(dest="part", required=True)
    master = parts.add_parser(
        "master", help="the process that workers and replays ask", **help_end(["kwob spark master"])
    )
    master.add_argument("--host", default="127.0.0.1", help="address to listen at (default: 127.0.0.1)")
    master.add_argument("--port", type=int, default=MASTER_PORT, metavar="P", help=f"(default: {MASTER_PORT})")
    worker = parts.add_parser(
        "worker", help="a process that runs executors", **help_end(["kwob spark worker spark://127.0.0.1:7077"])
    )
    worker.add_argument("master", metavar="URL", help="spark://HOST:PORT of the master")
    worker.add_argument("--host", help="its address for others (default: 127.0.0.1 for a master there, else Spark's)")
    worker.add_argument("--cores", type=int, default=1, metavar="N", help="of its executors (default: 1)")
    worker.add_argument(
        "--memory", default="1g", metavar="M", help="of its executors, as Spark writes it (default: 1g)"
    )
    worker.add_argument("--work-dir", type=Path, metavar="DIR", help="for what executors print (default: a new folder)")
    return parser


def main(argv: Sequence[str]) -> int:
    """Becomes the JVM; returns only where that fails."""
    options = command_line().parse_args(argv)
    import pyspark

    scratch = Path(tempfile.mkdtemp(prefix="kwob-spark-"))
    try:
        java_home = spark_java_home(find_java(), scratch)
    except JavaNotFound as error:
        print(f"kwob spark: {error}", file=sys.stderr)
        return 1
    spark = Path(pyspark.__file__).parent
    words = ["bash", str(spark / "bin" / "spark-class"), *java_words(options, scratch)]
    return os.execvpe(words[0], words, environment(os.environ, spark, java_home))


def java_words(options: argparse.Namespace, scratch: Path) -> list[str]:
    """The class and its arguments. Its web page is off the way: any free port."""
    words = [_CLASSES[options.part], "--webui-port", "0"]
    if options.part == "master":
        return [*words, "--host", options.host, "--port", str(options.port)]
    from broker_sim.replay.session import driver_address  # it loads Spark

    host = options.host or driver_address(options.master)
    named = [] if host is None else ["--host", host]
    work = options.work_dir or scratch / "work"
    of_executors = ["--cores", str(options.cores), "--memory", options.memory, "--work-dir", str(work)]
    return [*words, *named, *of_executors, options.master]


def environment(variables: Mapping[str, str], spark: Path, java_home: Path) -> dict[str, str]:
    """That of the JVM, and of the executors' Python: the one that runs this."""
    return {
        "SPARK_DAEMON_MEMORY": _DAEMON_MEMORY,
        **variables,
        **java_locale(variables),
        "SPARK_HOME": str(spark),
        "JAVA_HOME": str(java_home),
        "PYSPARK_PYTHON": sys.executable,
    }
