"""Ports that stay free until whoever asked listens on them."""

from __future__ import annotations

import socket

import pytest

from controller.world.real import ports


def test_no_two_are_given_the_same_and_none_that_the_kernel_gives_to_clients() -> None:
    given = [port for _ in range(300) for port in ports.free_ports(3)]
    assert len(set(given)) == 900
    assert max(given) < 32_768


def test_one_in_use_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((ports.HOST, 0)) as server:
        used = server.getsockname()[1]
        monkeypatch.setattr(ports, "PORTS", range(used, used + 2))
        with pytest.raises(OSError, match=f"found no 1 free ports in a row between {used} and {used + 2}"):
            ports.free_ports(1)
