"""The cluster of docker-compose.yml, built and started once, under a project name of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from testcontainers.compose import DockerCompose

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "kwob-test"
#: One call of the command line: a replay on a busy machine is the longest. Building has the test's own limit.
CALL_LIMIT_S = 480
BASE_IMAGES = ("python:3.11-slim", "zookeeper:3.9")


SERVICES = ("zookeeper", "controller-901", "controller-902", "broker")


@dataclass(frozen=True)
class Cluster:
    """What runs. `compose` runs one `docker compose` command and returns its standard output.

    `bootstrap` is for clients on the host, `internal` for those in the network.
    """

    bootstrap: str = "localhost:19091,localhost:19092,localhost:19093"
    internal: str = "broker:9092"

    def compose(self, *words: str) -> str:
        ran = self.try_compose(*words)
        assert ran.returncode == 0, f"docker compose {' '.join(words)}:\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def try_compose(self, *words: str) -> subprocess.CompletedProcess[str]:
        return docker("compose", "--project-name", PROJECT, *words)

    def broker(self, verb: str, number: int, *, words: Sequence[str] = ()) -> None:
        """`docker VERB` of one broker's container."""
        ran = docker(verb, *words, container("broker", number))
        assert ran.returncode == 0, ran.stderr

    def eventually(self, what: str, holds: Callable[[], bool], *, limit_s: float = 90) -> None:
        """Waits until it holds: the other side is a container, which tells us nothing."""
        limit = time.monotonic() + limit_s
        while not holds():
            assert time.monotonic() < limit, f"not within {limit_s:g} s: {what}\n{self.compose('ps', '--all')}"
            time.sleep(0.5)


def container(service: str, number: int = 1) -> str:
    """The name that compose gives a container."""
    return f"{PROJECT}-{service}-{number}"


NODES = {container(name) for name in SERVICES} | {container("broker", n) for n in (2, 3)}


def docker(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", *words], cwd=ROOT, capture_output=True, text=True, timeout=CALL_LIMIT_S, check=False
    )


def why_not() -> str | None:
    """Why these tests cannot run here, or None."""
    if shutil.which("docker") is None:
        return "there is no docker command"
    if docker("info").returncode != 0:
        return "no Docker engine answers"
    if docker("compose", "version").returncode != 0:
        return "docker has no compose plugin (version 2)"
    for image in BASE_IMAGES:
        if docker("image", "inspect", image).returncode != 0 and docker("pull", image).returncode != 0:
            return f"the image {image} is not here and cannot be pulled"
    return None


@pytest.fixture(scope="session")
def image() -> str:
    """The image, built from this tree; once, because engines that build for compose and for `docker build` share no
    layers."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    built = docker("compose", "--project-name", PROJECT, "build", "--quiet")
    assert built.returncode == 0, built.stderr[-4000:]
    return "kwob"


@pytest.fixture(scope="session")
def cluster(image: str) -> Iterator[Cluster]:
    """Healthy at the start, gone with its volumes at the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "COMPOSE_PROJECT_NAME", PROJECT)
        compose = DockerCompose(ROOT, wait=True)
        try:
            try:
                compose.start()
            except subprocess.CalledProcessError as error:
                said = (error.stderr or b"").decode(errors="replace")[-4000:]
                pytest.fail(f"docker compose up --wait:\n{said}", pytrace=False)
            yield Cluster()
        finally:
            docker("compose", "--project-name", PROJECT, "--profile", "*", "down", "--volumes", "--timeout", "20")
    label = f"label=com.docker.compose.project={PROJECT}"
    left = [docker(kind, "ls", "--quiet", "--filter", label).stdout for kind in ("container", "volume", "network")]
    assert left == ["", "", ""], "down left containers, volumes or networks"
