"""Processes of `multiprocessing` that end with the one that started them, whatever ends that: SIGKILL, too."""

from __future__ import annotations

import os
import threading
from multiprocessing import parent_process


def end_with_parent() -> None:
    """From now on this process is gone, with exit code 1, as soon as its parent is; one that has none stays."""
    threading.Thread(target=_wait, daemon=True).start()


def _wait() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)
