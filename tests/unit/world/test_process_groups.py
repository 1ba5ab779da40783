"""A process group has ended when its last member has, not with its leader."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from controller.local.leftovers import end_processes
from controller.world.real.process_groups import is_ending, kill_group, living_members

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="members are listed on Linux only")


def orphan(words: str) -> tuple[int, int]:
    """A process group whose leader has ended and is reaped, and its member, whose command line has these words."""
    shell = subprocess.Popen(
        ["/bin/sh", "-c", f"{sys.executable} -c 'import time; time.sleep(600)' \"$0\" >/dev/null & echo $!", words],
        stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    with shell:
        assert shell.stdout is not None
        member = int(shell.stdout.read())
    return shell.pid, member


def test_a_group_lives_on_without_its_leader() -> None:
    group, member = orphan("x")
    assert living_members(group) == [member]
    assert asyncio.run(kill_group(group, 20))
    assert living_members(group) == []
    assert asyncio.run(kill_group(group, 20)), "of one that has ended"


def test_a_zombie_does_not_live() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE, start_new_session=True) as zombie:
        assert zombie.stdout is not None
        zombie.stdout.read()
        while living_members(zombie.pid):
            pass
        assert Path(f"/proc/{zombie.pid}").exists()
        assert is_ending(zombie.pid)
    assert not is_ending(zombie.pid), "it is gone"
    assert not is_ending(os.getpid())


@pytest.mark.parametrize("is_ours", [True, False])
def test_what_was_left_is_ended_also_when_its_leader_is_gone(tmp_path: Path, is_ours: bool) -> None:
    group, member = orphan(str(tmp_path / "zoo.cfg") if is_ours else "elsewhere")
    try:
        (tmp_path / "processes.json").write_text(json.dumps({"zookeeper": [group, 1]}))
        assert asyncio.run(end_processes(tmp_path)) == ([f"zookeeper (process {group})"] if is_ours else [])
        assert living_members(group) == ([] if is_ours else [member])
    finally:
        asyncio.run(kill_group(group, 20))
