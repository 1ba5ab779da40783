"""What kwob's programs exit with, where a number means the same in all of them. Pure."""

from __future__ import annotations

from typing import Final

#: Ctrl-C ended it: 128 and SIGINT's number, as shells count.
INTERRUPTED: Final = 130
