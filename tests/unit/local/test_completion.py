"""What shells complete, and that every page of kwob's own commands has examples and says its exit codes."""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

from controller import cli
from controller.local.completion import SHELLS, pages_of, script, subcommands


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command that is not one of Kafka's tools, by `command` or `command program`."""
    made = {}
    for name, command in cli.COMMANDS.items():
        if command.heading != cli.TOOLS:
            for number, target in enumerate(cli.parsers_of(name, command)):
                made[f"{name} {number}".removesuffix(" 0")] = cli.made(target)()
        for word, target in cli.SUBCOMMANDS.get(name, {}).items():
            made[f"{name} {word}"] = cli.made(target)()
    return made


def pages(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """A parser and its subcommands'."""
    return [parser, *(page for one in subcommands(parser).values() for page in pages(one))]


@pytest.mark.parametrize("name", sorted(parsers()))
def test_every_page_has_examples_that_parse(name: str) -> None:
    import shlex

    parser = parsers()[name]
    for page in pages(parser):
        text = page.format_help()
        assert "examples:" in text, page.prog
        for line in text[text.index("examples:") :].splitlines():
            words = shlex.split(line, comments=True) if line.startswith("  kwob ") else []
            if words and "|" not in words:
                command, *more = words[1:]
                assert command == name.split()[0], f"{page.prog}: {line}"
                if more[:1] and more[0] in cli.SUBCOMMANDS.get(command, {}):
                    parsers()[f"{command} {more[0]}"].parse_args(more[1:])
                else:
                    parser.parse_args(more)
    top = parser.format_help() + "".join(page.format_help() for page in pages(parser))
    assert "exit codes:" in top.lower(), parser.prog


def _itself(page: argparse.ArgumentParser) -> argparse.ArgumentParser:
    return page


WRONG = ["", "x", "-1", "0", "2", "nan", "1e999", "9" * 30, "a=b", ",", "1/0", "1..0", "\u2603"]


@pytest.mark.parametrize("name", sorted(parsers()))
def test_a_wrong_value_is_told_in_words(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """argparse names the function that reads a value, where that says no more: `invalid parse_scale value`."""
    for page in pages(parsers()[name]):
        flags = [flag for flag in pages_of("", partial(_itself, page))[""].flags if flag != "--help"]
        for words in ([f"{flag}={value}"] for flag in flags for value in WRONG):
            with contextlib.suppress(SystemExit):
                page.parse_args(words)
            found = re.findall(r"invalid (?!int|float|choice)\w+ value", capsys.readouterr().err)
            assert found == [], (page.prog, words)


def test_every_command_has_a_page() -> None:
    """A parser is found by its name (`cli.parsers_of`): one of another name was completed with nothing."""
    made = cli.completions()
    assert [name for name in cli.COMMANDS if not made[name].words] == []


CASES = [
    (["kwob", "reas"], {"reassign-partitions"}),
    (["kwob", "up", "--br"], {"--brokers", "--broker-processes"}),
    (["kwob", "broker", ""], {"kill", "stop", "start", "run", "--data", "--help"}),
    (["kwob", "fault", "slow-link", "--pe"], {"--peer"}),
    (["kwob", "fault", "--data", "up", "ki"], {"kill"}),
    (["kwob", "topics", "--under"], {"--under-replicated-partitions", "--under-min-isr-partitions"}),
    (["kwob", "explain", "layout", "--scheme", ""], {"kafka", "naive"}),
    (["kwob", "completion", "z"], {"zsh"}),
    (["kwob", "wait", "--un"], {"--until"}),
    (["kwob", "logs", "--level", "w"], {"warning"}),
    (["kwob", "rehearse", "sw"], {"sweep"}),
    (["kwob", "rehearse", "sweep", "--ea"], {"--each"}),
    (["kwob", "rehearse", "compare", "--j"], {"--json"}),
    (["kwob", "rehearse", "--fa"], {"--fail-on"}),
]


@pytest.fixture(scope="module")
def bash_script() -> str:
    return script("bash", cli.completions())


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(("words", "expected"), CASES, ids=[" ".join(words) for words, _ in CASES])
def test_bash_completes(words: list[str], expected: set[str], bash_script: str) -> None:
    quoted = " ".join(f"'{word}'" for word in words)
    play = f"{bash_script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _kwob; echo ${{COMPREPLY[@]}}"
    ran = subprocess.run(["bash", "--norc", "-c", play], capture_output=True, text=True, check=True, timeout=30)
    assert set(ran.stdout.split()) == expected and ran.stderr == ""


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
@pytest.mark.parametrize(("words", "expected"), CASES, ids=[" ".join(words) for words, _ in CASES])
def test_fish_completes(words: list[str], expected: set[str], tmp_path: Path) -> None:
    """Fish offers options only after a dash."""
    (tmp_path / "kwob.fish").write_text(script("fish", cli.completions()))
    play = f"source '{tmp_path}/kwob.fish'; complete -C '{' '.join(words)}'"
    ran = subprocess.run(["fish", "--no-config", "-c", play], capture_output=True, text=True, check=True, timeout=30)
    offered = {line.split("\t")[0] for line in ran.stdout.splitlines()}
    assert offered == {word for word in expected if words[-1].startswith("-") or not word.startswith("-")}
    assert ran.stderr == ""


@pytest.mark.parametrize("shell", sorted(SHELLS))
def test_a_script_of_each_shell_is_whole(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    text = capsys.readouterr().out
    for name in cli.COMMANDS:
        assert name in text
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=text, text=True, check=True, timeout=30)


def test_what_a_parser_takes() -> None:
    parser = argparse.ArgumentParser(prog="x")
    run = parser.add_subparsers().add_parser("run", help="runs it")
    run.add_argument("--mode", choices=["a", "b"], help="how")
    pages = pages_of("x", lambda: parser)
    assert pages["x"].commands == {"run": "runs it"}
    assert pages["x run"].choices == {"--mode": ["a", "b"]} and pages["x run"].flags["--mode"] == "how"
