"""Extras: pyproject.toml, the table behind the messages, and what our modules import say the same."""

from __future__ import annotations

import sys
import tomllib

import pytest

from controller import cli
from controller.local.extras import EXTRAS, NEEDED, extra_of
from tests.tidy.source import MODULES, ROOT, imports

#: Distributions whose module is called otherwise.
MODULE_OF = {
    "confluent-kafka": "confluent_kafka",
    "prometheus-client": "prometheus_client",
    "pyyaml": "yaml",
    "mkdocs-material": "material",
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: What pytest's plugin imports is there where pytest runs it; others look for a package's folder, or come with one.
ELSEWHERE = {"markupsafe", "pytest", "pydantic_core", "typing_extensions"}


def modules_of(requirements: list[str]) -> set[str]:
    """What these bring, with the extras of our own that they name."""
    found = set()
    for requirement in requirements:
        name = requirement.split(">")[0].split("=")[0].split("<")[0]
        if name.startswith("kwob["):
            for extra in name.removeprefix("kwob[").rstrip("]").split(","):
                found |= modules_of(PROJECT["optional-dependencies"][extra])
        else:
            found.add(MODULE_OF.get(name, name))
    return found


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_an_extra_brings_what_the_table_says(extra: str) -> None:
    brought = modules_of(PROJECT["optional-dependencies"][extra])
    assert set(EXTRAS[extra]) - {"py4j"} <= brought, "py4j comes with pyspark"


def test_what_is_imported_is_of_the_core_or_of_an_extra() -> None:
    known = modules_of(PROJECT["dependencies"]).union(*EXTRAS.values(), ELSEWHERE, sys.stdlib_module_names)
    ours = {"controller", "broker_sim"}
    found = {(name, used.partition(".")[0]) for name, path in MODULES.items() for used in imports(path)}
    assert sorted(each for each in found if each[1] not in known | ours) == []


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_a_command_says_in_one_line_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for module in {module for modules in EXTRAS.values() for module in modules}:
        monkeypatch.setitem(sys.modules, module, None)
    assert cli.main([name, "x"]) == 1
    wanted = f"kwob {name} needs packages that are not installed: pip install 'kwob[{','.join(NEEDED[name])}]'\n"
    assert capfd.readouterr() == ("", wanted)


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("pyspark.sql", "replay"),
        ("numpy", "rehearse"),
        ("pyarrow.parquet", "rehearse"),
        ("confluent_kafka", "load"),
        ("nosuch", None),
        (None, None),
    ],
)
def test_an_import_is_answered_by_the_extra_that_is_meant(module: str | None, extra: str | None) -> None:
    assert extra_of(module) == extra
    assert extra_of("pyspark", ("up",)) == "up"
