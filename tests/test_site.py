"""docs as a site, built strictly (no broken link, no page that the contents lack), and the example, which runs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tidy.source import ROOT

EXAMPLE = ROOT / "docs" / "examples" / "service"
CONFIG = ".ci/mkdocs.yml"


# Not --quiet: mkdocs then sees no warning, and strict has nothing to refuse.
def built(root: Path, out: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", CONFIG, "-d", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.skipif(find_spec("mkdocs") is None or find_spec("material") is None, reason="kwob[site] is not installed")
def test_the_site_is_built_strictly_and_a_broken_link_ends_that(tmp_path: Path) -> None:
    ran = built(ROOT, tmp_path / "site")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    pages = {path.stem for path in (tmp_path / "site").glob("*.html")} - {"404"}
    assert pages == {path.stem for path in (ROOT / "docs").glob("*.md")}
    for page in pages:
        text = (tmp_path / "site" / f"{page}.html").read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|link|img)\b[^>]*\b(?:src|href)="(https?:[^"]+)"', text)
        assert loaded == [], f"{page} loads from elsewhere"
    copy = tmp_path / "copy"
    shutil.copytree(ROOT / "docs", copy / "docs")
    shutil.copytree(ROOT / ".ci", copy / ".ci")
    with (copy / "docs" / "index.md").open("a") as page_file:
        page_file.write("\n[gone](gone.md)\n")
    ran = built(copy, tmp_path / "broken")
    assert ran.returncode != 0 and "gone.md" in ran.stdout + ran.stderr


def workflow() -> dict[str, Any]:
    text = (EXAMPLE / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def test_the_workflow_is_one_and_the_page_shows_its_steps() -> None:
    assert set(workflow()["on"]) == {"push", "pull_request"}
    (job,) = workflow()["jobs"].values()
    assert job["runs-on"] == "ubuntu-latest"
    assert all(len({"uses", "run"} & set(step)) == 1 for step in job["steps"])
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert yaml.safe_load(shown)["steps"] == job["steps"]
    commands = re.findall(r"^    (\S.*)$", page.replace(shown, ""), re.MULTILINE)
    assert [step["run"] for step in job["steps"] if "run" in step] == commands


@pytest.mark.pages
def test_what_the_workflow_types_passes_in_a_folder_of_its_own(tmp_path: Path) -> None:
    project = tmp_path / "service"
    shutil.copytree(EXAMPLE, project)
    (job,) = workflow()["jobs"].values()
    (words,) = [step["run"] for step in job["steps"] if step.get("run", "").startswith("pytest")]
    # The plugin is named, should it be installed or not.
    plugin = ["-p", "no:kwob", "-p", "controller.pytest_plugin", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [sys.executable, "-m", *shlex.split(words), *plugin],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    took = re.search(r"3 passed in ([\d.]+)s", ran.stdout)
    assert took is not None, ran.stdout
