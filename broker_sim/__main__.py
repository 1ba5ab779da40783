"""`python -m broker_sim`: see `run`."""

import sys

from broker_sim.run import main

if __name__ == "__main__":
    sys.exit(main())
