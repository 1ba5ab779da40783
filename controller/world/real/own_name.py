"""This machine's name among others in a network of containers, as the network's DNS has it: `kwob-broker-2`.

A container's own host name is drawn; the name under which others reach it, with the number that compose gave it, stands
in the reverse record of its address alone. Python's resolver looks into /etc/hosts first, where the drawn one is, so
the C library's `getent` is asked, which can leave that file out.
"""

from __future__ import annotations

import socket
import subprocess
from typing import Final

_LIMIT_S: Final = 10.0


def own_name() -> str | None:
    """The first label of the name; None where no server knows one. Blocks up to 10 s."""
    try:
        address = socket.gethostbyname(socket.gethostname())
        words = ["getent", "-s", "dns", "hosts", address]
        asked = subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = asked.stdout.split()[1:]  # after the address; nothing where there is no such record
    return found[0].partition(".")[0] if found else None
