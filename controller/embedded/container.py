"""`KwobContainer` for testcontainers: a test cluster in a container of its own, with the handles of the pytest plugin.

    with KwobContainer(brokers=3, racks=["a", "b"]) as cluster:
        cluster.create_topic("orders")
        ...  # connect to cluster.bootstrap_servers
        cluster.kill_broker(cluster.leader("orders"))

Needs the extra `kwob[testcontainers]` and a Docker engine, and nothing of what a broker needs in the test's process.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Self

from testcontainers.core.container import DockerContainer

from controller.embedded.alike import make_alike, planned
from controller.embedded.backends import LoopThread
from controller.embedded.calls import Handles
from controller.embedded.cluster import program_names
from controller.embedded.remote import Elsewhere, Place
from controller.embedded.server import HANDLES_PORT, TOKEN

IMAGE: Final = "kwob"
#: Ports in the container: of the first broker for clients of the engine's host and for those in its network, and of the
#: first page of metrics. The others follow.
_HOST_PORT: Final = 10_000
_NETWORK_PORT: Final = 20_000
_PAGE_PORT: Final = 30_000
_FOLDER: Final = Path("/data/test-cluster")


class KwobContainer(Handles, DockerContainer):  # type: ignore[misc]  # testcontainers has no types
    """A cluster in a container: `start` and `stop`, or `with KwobContainer(...) as cluster`.

    The names are those of `KafkaCluster`; what else is given (`network=`, `env=`, ...) is for testcontainers.
    Brokers are published on free ports of the engine's host, where clients there find them. With a `network`, clients
    in other containers of it have `network_bootstrap_servers`, and are told the container's first alias there.
    """

    def __init__(
        self,
        image: str = IMAGE,
        *,
        brokers: int | None = None,
        controllers: int = 1,
        racks: Sequence[str] | None = None,
        settings: Mapping[str, str] | None = None,
        log_dirs: int | None = None,
        seed: int | None = None,
        metrics: bool = False,
        like: Path | str | None = None,
        scale: Fraction | float | str = 0,
        **container: Any,
    ) -> None:
        """Raises: ValueError for what cannot be, or what a cluster file and the call both say; ClusterError for a file
        that cannot be used."""
        plan, self._like = planned(
            _FOLDER, brokers=brokers, controllers=controllers, racks=racks, settings=settings, log_dirs=log_dirs,
            seed=seed, metrics=metrics, like=like, scale=scale,
        )  # fmt: skip
        self._has_shape(replace(plan, page_ports=_numbered(program_names(plan), _PAGE_PORT) if metrics else {}))
        super().__init__(image, command=f"test-cluster --port {HANDLES_PORT}", **container)
        self._token = secrets.token_urlsafe(18)
        self.with_env(TOKEN, self._token)
        self._host_ports = _numbered(self.broker_ids, _HOST_PORT)
        self.with_exposed_ports(HANDLES_PORT, *self._host_ports.values(), *self._plan.page_ports.values())

    @property
    def network_bootstrap_servers(self) -> str:
        """`host:port,host:port,...` for clients in other containers of its network. Raises: ValueError without one."""
        alias = self._network_alias
        return ",".join(f"{alias}:{port}" for port in _numbered(self.broker_ids, _NETWORK_PORT).values())

    @property
    def _network_alias(self) -> str:
        if self._network is None:
            raise ValueError("the container is in no network of its own; say which: KwobContainer(network=...)")
        if not self._network_aliases:
            self.with_network_aliases(f"kwob-{secrets.token_hex(4)}")
        alias: str = self._network_aliases[0]
        return alias

    def start(self) -> Self:
        """Returns once every broker serves and knows every other, and what `like` has is there.

        Raises: RuntimeError, where it runs already; RemoteError, TimeoutError, ClusterError, and Docker's.
        """
        self._require_stopped()
        within = self._listeners_in_network()
        super().start()
        try:
            self._serve(within)
            if self._like is not None:
                self._run(make_alike(self.bootstrap_servers, self._like))
        except BaseException:
            self.stop()
            raise
        return self

    def _serve(self, within: Mapping[int, Mapping[str, tuple[str, int, int]]]) -> None:
        host = self.get_container_host_ip()
        found = {port: int(self.get_exposed_port(port)) for port in map(int, self.ports)}
        here = {i: {"EXTERNAL": (host, found[port], port)} for i, port in self._host_ports.items()}
        names = program_names(self._plan)
        place = Place(
            host=host,
            port=found[HANDLES_PORT],
            token=self._token,
            bootstrap=",".join(f"{host}:{found[port]}" for port in self._host_ports.values()),
            pages={names[i]: f"{host}:{found[port]}" for i, port in self._plan.page_ports.items()},
        )
        plan = replace(self._plan, published={i: {**here[i], **within.get(i, {})} for i in here})
        self._loop = LoopThread("kwob-container")
        backend = Elsewhere(place, plan)
        self._run(backend.start())
        self._backend = backend

    def _listeners_in_network(self) -> Mapping[int, Mapping[str, tuple[str, int, int]]]:
        if self._network is None:
            return {}
        alias = self._network_alias
        return {i: {"NETWORK": (alias, port, port)} for i, port in _numbered(self.broker_ids, _NETWORK_PORT).items()}

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Ends the cluster with its container. Idempotent."""
        loop = self._loop
        self._loop = self._backend = None
        if loop is not None:
            loop.close()
        super().stop(force, delete_volume)

    def get_bootstrap_server(self) -> str:
        """The name that the Kafka containers of testcontainers have for `bootstrap_servers`."""
        return self.bootstrap_servers


def _numbered(ids: Iterable[int], first: int) -> dict[int, int]:
    """A port for each, from the first one on."""
    return {number: first + place for place, number in enumerate(ids)}
