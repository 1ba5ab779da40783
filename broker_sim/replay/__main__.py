"""`python -m broker_sim.replay`: as `kwob replay`, whatever becomes of the output."""

from __future__ import annotations

import sys

from controller.cli import main

if __name__ == "__main__":
    sys.exit(main(["replay", *sys.argv[1:]]))
