"""Python's garbage collector among millions of objects without cycles: it looks seldom, or takes half the time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: As a controller's process has them for the same reason, and the oldest ones tenfold more seldom.
_THRESHOLDS: Final = (100_000, 50, 1_000)


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Within the block; may be nested."""
    before = gc.get_threshold()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
