"""`pip install kwob` from the built wheel, in an environment that has nothing else and far from the repository.

`make test-wheel`, about a minute. Needs a package index, or pip's cache of it.
"""

from __future__ import annotations

import json
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from controller.cli import COMMANDS, TOOLS
from controller.local.extras import NEEDED

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
#: What the files of all wheels of the light core may hold; byte code comes to it where pip makes it.
LIGHT_BYTES_MAX = 40_000_000
SIZES = """
import json
from importlib.metadata import distributions
sizes = {}
for each in distributions():
    files = [(file.suffix, file.locate()) for file in each.files or ()]
    sizes[each.name] = [sum(p.stat().st_size for s, p in files if (s == ".pyc") is code) for code in (False, True)]
print(json.dumps(sizes))
"""
TEST_OF_A_USER = """
def test_a_broker_is_lost(kafka_cluster):
    kafka_cluster.create_topic("orders", partitions=3)
    kafka_cluster.kill_broker(kafka_cluster.leader("orders"))
    kafka_cluster.wait_for_leader("orders")
    assert "not alive" in kafka_cluster.why("orders")
"""


def run(*words: object, cwd: Path, limit_s: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words], cwd=cwd, capture_output=True, text=True, timeout=limit_s, check=False
    )


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    built = run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", out, ".", cwd=ROOT)
    assert built.returncode == 0, built.stderr
    (found,) = out.glob("kwob-*.whl")
    return found


class Project:
    """A folder of its own, with an environment in which packages are installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        made = run(sys.executable, "-m", "venv", folder / "env", cwd=folder)
        assert made.returncode == 0, made.stderr

    def install(self, *what: object) -> None:
        """Skips the test where there is no package index."""
        got = run(self.folder / "env" / "bin" / "pip", "install", "--quiet", *what, cwd=self.folder, limit_s=500)
        if got.returncode != 0 and re.search("No matching distribution|Could not find a version", got.stderr):
            pytest.skip(f"no package index has them: {got.stderr.strip().splitlines()[-1]}")
        assert got.returncode == 0, got.stderr

    def kwob(self, *words: object) -> subprocess.CompletedProcess[str]:
        return run(self.folder / "env" / "bin" / "kwob", *words, cwd=self.folder)

    def python(self, *words: object) -> subprocess.CompletedProcess[str]:
        return run(self.folder / "env" / "bin" / "python", *words, cwd=self.folder)


@pytest.fixture(scope="module")
def light(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    project = Project(tmp_path_factory.mktemp("light"))
    project.install(wheel)
    yield project


def test_it_is_light(light: Project) -> None:
    sizes: dict[str, list[int]] = json.loads(light.python("-c", SIZES).stdout)
    ours = {name: size for name, size in sizes.items() if name not in ("pip", "setuptools")}
    files, code = (sum(size[n] for size in ours.values()) for n in (0, 1))
    print(f"{len(ours)} packages, {files:,} bytes, and {code:,} bytes of byte code")
    assert files <= LIGHT_BYTES_MAX, sorted(ours.items(), key=lambda each: -each[1][0])[:8]
    assert {"pyspark", "numpy", "pandas", "confluent-kafka"} & set(ours) == set()


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - set(NEEDED)))
def test_a_command_of_the_core_explains_itself(light: Project, name: str) -> None:
    words = ("bash",) if name == "completion" else ("--help",)
    ran = light.kwob(name, *words)
    tool = COMMANDS[name].heading == TOOLS  # Kafka's tools give 1
    assert ran.returncode == (1 if tool else 0), ran.stderr
    assert "Traceback" not in ran.stderr and len(ran.stdout + ran.stderr) > 300


@pytest.mark.parametrize("name", sorted(NEEDED))
@pytest.mark.parametrize("words", [(), ("run", "x")])
def test_a_command_that_needs_an_extra_says_which_in_one_line(
    light: Project, name: str, words: tuple[str, ...]
) -> None:
    ran = light.kwob(name, *words)
    wanted = f"kwob {name} needs packages that are not installed: pip install 'kwob[{','.join(NEEDED[name])}]'\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", wanted)


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_its_help_explains_it_or_says_the_same(light: Project, name: str) -> None:
    ran = light.kwob(name, "--help")
    assert "usage: kwob" in ran.stdout or re.fullmatch(r"kwob .* pip install 'kwob\[.*\]'\n", ran.stderr), ran.stderr


def test_simulated_worlds_need_no_more(light: Project) -> None:
    ran = light.kwob("sim", "run", "--seeds", "1..2", "--workers", "1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    ran = light.kwob("sim", "run", "--seeds", "1..2", "--master", "local[1]")
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert "pip install 'kwob[replay]'" in ran.stderr


def test_real_processes_say_what_they_need(light: Project) -> None:
    code = "from controller.embedded.handles import KafkaCluster; KafkaCluster(mode='processes').start()"
    ran = light.python("-c", code)
    assert ran.returncode == 1
    assert "pip install 'kwob[up]'" in ran.stderr


def test_the_plugin_is_there_and_a_cluster_with_it(light: Project) -> None:
    light.install("pytest")
    (light.folder / "test_service.py").write_text(TEST_OF_A_USER)
    ran = light.python("-m", "pytest", "-q", "test_service.py")
    assert ran.returncode == 0, ran.stdout
    assert "1 passed" in ran.stdout


def test_the_example_passes_by_what_its_workflow_types(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    project = Project(tmp_path_factory.mktemp("example"))
    shutil.copytree(ROOT / "docs" / "examples" / "service", project.folder / "service")
    steps = yaml.safe_load((project.folder / "service/.github/workflows/test.yml").read_text())["jobs"]["test"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == ["pip install -r requirements.txt", "pytest -q"]
    (project.folder / "constraints.txt").write_text("kwob==" + wheel.name.split("-")[1])
    constraints = ("--constraint", project.folder / "constraints.txt", "--find-links", wheel.parent)
    project.install("-r", project.folder / "service" / "requirements.txt", *constraints)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = run(project.folder / "env" / "bin" / "pytest", "-q", cwd=project.folder / "service")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ran.returncode == 0 and "3 passed" in ran.stdout, ran.stdout
    worked = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert worked < 10, "seconds of a processor; how long that takes depends on who else works on the machine"
