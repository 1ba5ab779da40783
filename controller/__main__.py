"""`python -m controller run`."""

from __future__ import annotations

import sys

from controller.node.run import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
