"""The examples that end the help of Kafka's tools: each has a command line that its tool takes."""

from __future__ import annotations

import io
import shlex
from dataclasses import replace
from importlib import import_module

import pytest

from controller.admin import commands
from controller.admin.commands import Command
from controller.admin.toolkit.machine import this_machine
from controller.admin.toolkit.texts import V39

TOOLS = {name: each for name, each in vars(commands).items() if isinstance(each, Command)}


def helped(tool: Command, *words: str) -> str:
    err = io.StringIO()
    assert tool.main([*words, "--help"], replace(this_machine(), out=io.StringIO(), err=err)) == 1
    return err.getvalue()


@pytest.mark.parametrize("name", TOOLS)
def test_the_help_of_today_ends_with_examples_and_that_of_an_older_version_does_not(name: str) -> None:
    tool = TOOLS[name]
    assert helped(tool).endswith("\nexamples:\n" + "".join(f"  {line}\n" for line in tool.examples))
    assert "examples:" not in helped(tool, "--compat", "3.9")


@pytest.mark.parametrize(("name", "line"), [(name, line) for name, tool in TOOLS.items() for line in tool.examples])
def test_an_example_is_a_command_line_of_its_tool(name: str, line: str) -> None:
    words = shlex.split(line)
    assert words[:2] == ["kwob", name.replace("_", "-")]
    tool = import_module(TOOLS[name].module).tool_of(V39, words[2:])
    tool.check(tool.table.parse(words[2:]))
