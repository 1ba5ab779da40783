"""`KwobContainer` for testcontainers: a test cluster in a container of its own, with the handles of the pytest plugin.

    with KwobContainer(brokers=3, racks=["a", "b"]) as cluster:
        cluster.create_topic("orders")
        ...  # connect to cluster.bootstrap_servers
        cluster.kill_broker(cluster.leader("orders"))

Needs the extra `kwob[testcontainers]` and a Docker engine, and nothing of what a broker needs in the test's process.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from testcontainers.core.container import DockerContainer

from controller.embedded.backends import LoopThread
from controller.embedded.calls import Handles
from controller.embedded.cluster import EmbeddedPlan
from controller.embedded.remote import Elsewhere, Place
from controller.embedded.server import FIRST_PORT, HANDLES_PORT, TOKEN

IMAGE: Final = "kwob"


class KwobContainer(Handles, DockerContainer):  # type: ignore[misc]  # testcontainers has no types
    """A cluster in a container: `start` and `stop`, or `with KwobContainer(...) as cluster`.

    The names are those of `KafkaCluster`; what else is given (`network=`, `env=`, ...) is for testcontainers.
    Brokers are published on free ports of the engine's host, where clients there find them.
    """

    def __init__(
        self,
        image: str = IMAGE,
        *,
        brokers: int = 3,
        controllers: int = 1,
        racks: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        log_dirs: int = 1,
        seed: int | None = None,
        **container: Any,
    ) -> None:
        """Raises: ValueError for a number of brokers or controllers that cannot be."""
        if brokers < 1 or controllers < 1 or log_dirs < 1:
            raise ValueError("a cluster has at least one broker, one controller and one log directory")
        super().__init__(image, command=f"test-cluster --port {HANDLES_PORT}", **container)
        self._has_shape(
            EmbeddedPlan(
                folder=Path("/data/test-cluster"), brokers=brokers, controllers=controllers, racks=tuple(racks),
                settings=dict(settings or {}), log_dirs=log_dirs, seed=seed,
            )
        )  # fmt: skip
        self._token = secrets.token_urlsafe(18)
        self.with_env(TOKEN, self._token)
        self.with_exposed_ports(HANDLES_PORT, *self._bound.values())

    @property
    def _bound(self) -> dict[int, int]:
        """The port in the container of each broker."""
        return {number: FIRST_PORT + place for place, number in enumerate(self.broker_ids)}

    def start(self) -> Self:
        """Returns once every broker serves and knows every other. Raises: RemoteError, TimeoutError, and Docker's."""
        super().start()
        try:
            host = self.get_container_host_ip()
            place = Place(
                host=host,
                port=int(self.get_exposed_port(HANDLES_PORT)),
                token=self._token,
                published={i: (host, int(self.get_exposed_port(port)), port) for i, port in self._bound.items()},
            )
            self._loop = LoopThread("kwob-container")
            backend = Elsewhere(place, self._plan)
            self._run(backend.start())
            self._backend = backend
        except BaseException:
            self.stop()
            raise
        return self

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
