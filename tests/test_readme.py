"""The README is true: its commands exist and take the flags it shows, its folders are there, and it stays short."""

from __future__ import annotations

import contextlib
import importlib
import re
import shlex
import subprocess
from itertools import takewhile
from pathlib import Path

import pytest
import yaml

from controller import cli

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINES_MAX = 150


def commands(program: str) -> list[str]:
    """Every line of code or piece of inline code of the README that starts with that program."""
    found = re.findall(rf"^    ({program} .*)$", README, re.MULTILINE) + re.findall(rf"`({program} [^`]*)`", README)
    return sorted({line for line in found if "|" not in line and "..." not in line})


KWOB = commands("kwob")
MAKE = commands("make")


def test_it_is_short_enough_to_be_read() -> None:
    assert len(README.splitlines()) < LINES_MAX


def test_it_has_one_picture_and_the_two_commands() -> None:
    assert README.count("```mermaid") == 1
    assert "    make demo\n" in README and "    make test\n" in README


@pytest.mark.parametrize("line", MAKE)
def test_a_make_target_exists(line: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert line.split()[1] in targets


def test_make_help_lists_every_target() -> None:
    # Within `make test` this make is a sub-make, which would tell its directory.
    words = ["make", "--no-print-directory", "help"]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert phony is not None
    assert sorted(line.split()[1] for line in said.splitlines()) == sorted(phony[1].split())


@pytest.mark.parametrize("line", KWOB)
def test_a_command_is_there_and_knows_its_flags(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(line)[1:]
    assert words[0] in cli.COMMANDS, f"kwob has no {words[0]}"
    help_of = words[:2] if words[0] in ("replay", "fault", "controller") or "sweep" in words else words[:1]
    try:
        cli.main([*help_of, "--help"])
    except SystemExit as end:
        assert end.code in (0, None)
    said = capsys.readouterr()
    for flag in (word.split("=")[0] for word in words if word.startswith("--")):
        assert flag in said.out + said.err, f"{' '.join(help_of)} does not know {flag}"


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_every_subcommand_answers_to_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        cli.main([name, "--help"])
    except SystemExit as end:
        assert end.code in (0, None)
    said = capsys.readouterr()
    assert "usage" in (said.out + said.err).lower() or "--bootstrap-server" in said.out + said.err


FOLDERS = re.findall(r"^\| `([^`]+)` \|", README, re.MULTILINE)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_of_the_map_exists(folder: str) -> None:
    assert (ROOT / folder).is_dir()


@pytest.mark.parametrize("package", ["controller", "broker_sim"])
def test_no_folder_is_missing_from_the_map(package: str) -> None:
    inside = {
        f"{package}/{path.name}"
        for path in (ROOT / package).iterdir()
        if path.is_dir() and (path / "__init__.py").exists()
    }
    assert inside <= set(FOLDERS)


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.name)
def test_links_lead_somewhere(text: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", text.read_text(encoding="utf-8"))
    for link in links:
        assert link.startswith("http") or (text.parent / link).exists(), f"{text.name}: {link}"


def test_files_named_in_the_texts_exist() -> None:
    for text in TEXTS:
        for name in re.findall(r"`((?:controller|broker_sim|tests)/[\w/.]+)`", text.read_text(encoding="utf-8")):
            assert (ROOT / name).exists(), f"{text.name}: {name}"


def test_the_compose_file_is_what_the_readme_says() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    kinds = [re.sub(r"-\d+$", "", name) for name, service in services.items() for _ in range(service.get("scale", 1))]
    assert (kinds.count("controller"), kinds.count("broker"), kinds.count("zookeeper")) == (2, 3, 1)
    assert services["replay"]["profiles"] == ["replay"]
    assert all("healthcheck" in service for service in services.values() if "profiles" not in service)
    racks = [re.findall(r"--rack (\S+)", str(service.get("command"))) for service in services.values()]
    assert [rack for found in racks for rack in found] == ["a,b,c"]


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, s in yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"].items()
        if "command" in s
    ],
)
def test_a_service_starts_a_command_that_there_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    service = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"][name]
    words = shlex.split(service["command"])
    if words[0] == "--help":
        return
    with contextlib.suppress(SystemExit):
        cli.main([*takewhile(lambda word: not word.startswith("--"), words[:2]), "--help"])
    said = capsys.readouterr().out
    assert all(word in said for word in words if word.startswith("--"))


def test_the_version_is_told_once() -> None:
    assert importlib.import_module("importlib.metadata").version("kwob") in (ROOT / "CHANGELOG.md").read_text()
