"""Where Spark's driver listens: workers elsewhere must reach it."""

from __future__ import annotations

import pytest

from broker_sim.replay.session import driver_address


@pytest.mark.parametrize(
    ("master", "address"),
    [
        ("local[*]", "127.0.0.1"),
        ("local", "127.0.0.1"),
        ("spark://127.0.0.1:7077", "127.0.0.1"),
        ("spark://localhost:7077", "127.0.0.1"),
        ("spark://spark-master:7077", None),
        ("spark://localhost.example.org:7077", None),
        ("yarn", None),
        ("k8s://https://127.0.0.1:6443", None),
    ],
)
def test_the_driver_is_only_hidden_from_others_where_there_are_none(master: str, address: str | None) -> None:
    assert driver_address(master) == address
