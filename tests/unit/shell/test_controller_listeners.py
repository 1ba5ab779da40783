"""The listeners of a controller: which names it has, and which address is whose."""

from __future__ import annotations

import pytest

from controller import config
from controller.run import identity_of, parser
from controller.wire.configs.settings import SettingError
from controller.wire.types import BrokerId

TWO = {
    "inter.broker.listener.name": "INTERNAL",
    "listener.security.protocol.map": "internal:PLAINTEXT, EXTERNAL:PLAINTEXT,SECRET:SASL_SSL",
}


def test_names() -> None:
    assert config.parse({}).listeners == ("PLAINTEXT",)
    assert config.parse(TWO).listeners == ("INTERNAL", "EXTERNAL")
    assert config.parse(TWO | {"control.plane.listener.name": "control"}).listeners == (
        "INTERNAL",
        "CONTROL",
        "EXTERNAL",
    )


#: (--listener, settings, address of the first listener, addresses of the others)
ADDRESSES = [
    ("h:1", {}, ("h", 1), {}),
    ("PLAINTEXT://[::1]:1", {}, ("::1", 1), {}),
    ("h:1", TWO, ("h", 1), {}),
    ("external://e:2,INTERNAL://h:1", TWO, ("h", 1), {"EXTERNAL": ("e", 2)}),
    ("h:1,EXTERNAL://e:2", TWO, ("h", 1), {"EXTERNAL": ("e", 2)}),
]


@pytest.mark.parametrize(("text", "settings", "first", "others"), ADDRESSES)
def test_addresses(
    text: str, settings: dict[str, str], first: tuple[str, int], others: dict[str, tuple[str, int]]
) -> None:
    listeners = parser().parse_args(["run", "--zookeeper", "z", "--controller-id", "5", "--listener", text]).listener
    identity = identity_of(BrokerId(5), listeners, config.parse(settings))
    assert ((identity.host, identity.port), identity.others) == (first, others)


@pytest.mark.parametrize("text", ["SECRET://h:1", "EXTERNAL://h:1", "INTERNAL://h:1,OTHER://h:2"])
def test_a_name_that_the_settings_do_not_have_is_refused(text: str) -> None:
    listeners = parser().parse_args(["run", "--zookeeper", "z", "--controller-id", "5", "--listener", text]).listener
    with pytest.raises(SettingError, match=r"--listener names .*; allowed: INTERNAL, EXTERNAL"):
        identity_of(BrokerId(5), listeners, config.parse(TWO))
