"""What the embedded ZooKeeper's process is given: folders that Java reads as they are."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from controller.world.real import embedded_zookeeper
from controller.world.real.embedded_zookeeper import EmbeddedZooKeeper, EmbeddedZooKeeperError
from controller.world.real.java import Java


@pytest.mark.parametrize("name", ["größe", "a\\tb", "x [1] y"])
def test_its_data_are_below_its_folder_whatever_that_is_called(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java takes a file of properties for Latin-1, and a backslash in it for an escape; in the locale C it opens no
    file whose path is not all ASCII."""
    monkeypatch.setenv("LC_ALL", "C")
    started: dict[str, Any] = {}
    monkeypatch.setattr(
        embedded_zookeeper, "find_java", lambda: Java(executable=Path("java"), home=Path(), version=21, found_by="PATH")
    )
    monkeypatch.setattr(embedded_zookeeper, "_classpath", lambda: "")
    monkeypatch.setattr(subprocess, "Popen", lambda command, **given: started.update(given, command=command))
    folder = tmp_path / name
    EmbeddedZooKeeper(folder).spawn()
    config = (folder / "zoo.cfg").read_bytes()
    (data,) = [line.partition(b"=")[2] for line in config.splitlines() if line.startswith(b"dataDir=")]
    as_java = data.decode("latin-1").encode("latin-1").decode("unicode_escape")
    assert Path(started["cwd"], as_java) == folder / "data"
    assert Path(started["cwd"], started["command"][-1]) == folder / "zoo.cfg"
    assert (started["env"]["LC_ALL"], started["env"]["PATH"]) == ("C.UTF-8", os.environ["PATH"])
    assert any(str(folder) in word for word in started["command"])  # an orphan is found by it


#: What it says of a folder whose snapshot is gone, with the stack that follows.
LAST_WORDS = """\
2026-11-28T00:55:53,603 ERROR QuorumPeerMain: Unexpected exception, exiting abnormally
java.io.IOException: No snapshot found, but there are log entries. Something is broken!
""" + "\n".join([*(f"\tat org.apache.zookeeper.server.Frame{n}.run(Frame.java:1)" for n in range(20)), "\t... 3 more"])


class Broken(EmbeddedZooKeeper):
    """Ends at once, with these words."""

    def spawn(self) -> subprocess.Popen[bytes]:
        self._data.mkdir()
        self.log_file.write_text(LAST_WORDS)
        return subprocess.Popen(["false"], stdin=subprocess.PIPE, start_new_session=True)


def test_why_it_ended_is_told_although_a_stack_follows(tmp_path: Path) -> None:
    server = Broken(tmp_path / "zookeeper", port=1)
    with pytest.raises(EmbeddedZooKeeperError, match="No snapshot found, but there are log entries") as ended:
        asyncio.run(server.start())
    assert "Frame" not in str(ended.value)
