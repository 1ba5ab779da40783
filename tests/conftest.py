"""Fixtures that several folders share: one real ZooKeeper for the whole run, a chroot of its own for each test."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from controller.world.real.embedded_zookeeper import EmbeddedZooKeeper, EmbeddedZooKeeperError
from controller.world.real.java import JavaNotFound

_chroots = itertools.count()
#: What starts first when workers share the tests: else one of these, begun last, is what the others wait for.
LONGEST_FIRST = (
    "tests/spark/",
    "tests/local/test_recipes.py",
    "tests/typed/",
    "tests/unit/replay/generator/",
    "tests/broker/",
    "tests/sim/",
    "tests/local/",
    "tests/admin/",
)
#: A busy machine is no reason to fail: no limits of time for drawn examples.
settings.register_profile("kwob", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kwob")


@pytest.fixture(autouse=True, scope="module")
def _what_is_there_already_is_no_garbage() -> None:
    """Each simulated world ends with a collection, which should look at that world and not at all that was imported."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _log_settings_end_with_the_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A program that a test runs in this process sets the logs up, towards a stream that ends with the test."""
    configure = structlog.configure
    monkeypatch.setattr(structlog, "configure", lambda **how: configure(**{**how, "cache_logger_on_first_use": False}))
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """A real ZooKeeper, started once. Tests that use it carry the marker `zk`."""
    server = EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    try:
        asyncio.run(server.start())
    except (EmbeddedZooKeeperError, JavaNotFound) as error:
        pytest.fail(f"the embedded ZooKeeper does not start: {error}", pytrace=False)
    yield server
    asyncio.run(server.stop())


@pytest.fixture
def zk_connect(zookeeper: EmbeddedZooKeeper) -> str:
    """A `zookeeper.connect` with a chroot that no other test uses."""
    return f"{zookeeper.address}/test-{next(_chroots)}"


def _share(nodeid: str) -> str:
    """What stays together on one worker: a file, for its fixtures; all files of Spark, for their session."""
    return "tests/spark/" if nodeid.startswith("tests/spark/") else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hands out the tests by `_share`, in the order of their collection (`-n`, as in `make test`)."""
    from xdist.scheduler import LoadScopeScheduling  # only where xdist is in use

    class Shares(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            return _share(nodeid)

    config.option.loadscopereorder = False
    return Shares(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker, the longest come first."""
    if hasattr(config, "workerinput"):
        long = {path: place for place, path in enumerate(LONGEST_FIRST)}
        items.sort(key=lambda item: min((n for p, n in long.items() if item.nodeid.startswith(p)), default=len(long)))


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--seed N`, repeatable: the simulated worlds to run instead of the usual ones."""
    parser.addoption("--feature-outcomes", help="write how tests ended as JSON, for docs/admin-features.md")
    parser.addoption("--seed", action="append", type=int, default=[], help="run simulations on this seed (repeatable)")


def pytest_configure(config: pytest.Config) -> None:
    """The marker from which docs/known-failures.md is drawn; Ctrl-C works in programs that tests start, also where it
    does not in who started the tests, as in the background of a script."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "known_failure(key, ...): covers these rows of the known failures")
    config.addinivalue_line("markers", "feature(row, ...): covers these rows of docs/admin-features.md")


@pytest.fixture
def feature_rows(request: pytest.FixtureRequest) -> str:
    """The rows of docs/admin-features.md that a test covers; it is there to stand in the test's id."""
    rows: str = getattr(request, "param", "")
    return rows


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Puts the rows that the marker `feature` names into the id of a test."""
    rows = [str(row) for mark in metafunc.definition.iter_markers("feature") for row in mark.args]
    if rows:
        metafunc.fixturenames.append("feature_rows")
        ids = ["+".join(sorted(set(rows)))]
        metafunc.parametrize("feature_rows", ids, ids=ids, indirect=True)


_ended: dict[str, list[str]] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remembers how each case ended, by test function below tests/."""
    if report.when == "call" or report.outcome != "passed":
        test = report.nodeid.partition("[")[0].removeprefix("tests/")
        _ended.setdefault(test, []).append(report.outcome)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes what was remembered, if that was asked for."""
    path = session.config.getoption("--feature-outcomes")
    if path:
        Path(path).write_text(json.dumps(_ended), encoding="utf-8")
