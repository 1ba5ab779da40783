"""`KwobContainer`: the image runs a test cluster, and each handle does to it what its name says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from testcontainers.core.config import testcontainers_config

from controller.embedded.container import KwobContainer
from controller.embedded.remote import RemoteError
from tests.docker.conftest import ROOT, docker, why_not
from tests.handles import CHECKS, SHAPE

pytestmark = [pytest.mark.docker, pytest.mark.timeout(540)]

IMAGE = "kwob"


@pytest.fixture(scope="module")
def image() -> str:
    """Built from this tree."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    built = docker("build", "--quiet", "--tag", IMAGE, str(ROOT))
    assert built.returncode == 0, built.stderr
    return IMAGE


@pytest.fixture(scope="module")
def cluster(image: str) -> Iterator[KwobContainer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(testcontainers_config, "ryuk_disabled", True)  # its image is one more that might not be here
        with KwobContainer(image, **SHAPE) as started:
            yield started
            container_id = started.get_wrapped_container().id
    assert docker("ps", "--all", "--quiet", "--no-trunc", "--filter", f"id={container_id}").stdout == ""


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_handle_does_what_its_name_says_in_a_container(cluster: KwobContainer, check: Callable[[Any], None]) -> None:
    check(cluster)
    cluster.heal()


def test_nobody_in_it_is_root_and_its_name_for_clients_is_theirs(cluster: KwobContainer) -> None:
    code, said = cluster.get_wrapped_container().exec_run("id -u")
    assert code == 0 and int(said) > 0
    assert cluster.get_bootstrap_server() == cluster.bootstrap_servers


def test_what_cannot_be_started_is_told_and_leaves_no_container(image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
    with pytest.raises(ValueError, match="at least one broker"):
        KwobContainer(image, brokers=0)
    before = docker("ps", "--all", "--quiet").stdout
    with pytest.raises(RemoteError, match=r"min\.insync\.replica"):
        KwobContainer(image, brokers=1, settings={"min.insync.replica": "2"}).start()
    assert docker("ps", "--all", "--quiet").stdout == before
