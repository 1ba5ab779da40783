"""`.ci/setup` removes nothing that is not this tree's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_an_environment_that_is_linked_to_stays(tmp_path: Path) -> None:
    other, tree = tmp_path / "other", tmp_path / "tree"
    (other / "bin").mkdir(parents=True)
    (tree / ".ci").mkdir(parents=True)
    for name in (".ci/setup", "requirements.lock"):
        shutil.copy(ROOT / name, tree / name)
    (tree / ".venv").symlink_to(other)
    ran = subprocess.run([tree / ".ci" / "setup"], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert f".venv is a link to {other}" in ran.stderr and (other / "bin").is_dir()
