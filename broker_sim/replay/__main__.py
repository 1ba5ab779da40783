"""`python -m broker_sim.replay`."""

from __future__ import annotations

import sys

from broker_sim.replay.cli import main

if __name__ == "__main__":
    sys.exit(main())
