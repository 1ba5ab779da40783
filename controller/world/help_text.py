"""How the help of kwob's own commands ends: examples, then exit codes. Pure."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any


def help_end(examples: Sequence[str] = (), exit_codes: str = "") -> dict[str, Any]:
    """Arguments for an `ArgumentParser`; `exit_codes` as `0 done; 1 not done`."""
    lines = ["examples:", *(f"  {line}" for line in examples)] if examples else []
    lines += [*([""] if lines else []), f"exit codes: {exit_codes}"] if exit_codes else []
    return {"epilog": "\n".join(lines), "formatter_class": argparse.RawDescriptionHelpFormatter}
