"""Loads kio, and what came since (`later_schemas`). For `protocol` only.

kio imports hypothesis where that is installed, for strategies that only its own tests need. It takes a second, which
every process of a development set-up would wait for at its start; so kio is told that there is none.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, Final

_NAME = "hypothesis"
_hidden = _NAME not in sys.modules
if _hidden:
    sys.modules[_NAME] = None  # type: ignore[assignment]  # makes `import hypothesis` raise ImportError
try:
    from kio import index
    from kio.schema.index import api_key_map
finally:
    if _hidden:
        del sys.modules[_NAME]

#: API keys of which there are versions that kio does not have.
_LATER: Final = frozenset({69})


# kio looks a class up by its dotted name each time; messages are many.
@cache
def load_request_schema(api_key: int, version: int) -> Any:
    """The class of a request. Raises RuntimeError for a key or version that is not known."""
    return _later("REQUESTS", api_key, version) or index.load_request_schema(api_key, version)


@cache
def load_response_schema(api_key: int, version: int) -> Any:
    """The class of a response. Raises RuntimeError for a key or version that is not known."""
    return _later("RESPONSES", api_key, version) or index.load_response_schema(api_key, version)


def _later(table: str, api_key: int, version: int) -> Any:
    """The class that kio does not have; None for all others. What is seldom needed is loaded when it is."""
    if api_key not in _LATER:
        return None
    from controller.wire.codec import later_schemas

    return getattr(later_schemas, table).get((api_key, version))


__all__ = ["api_key_map", "load_request_schema", "load_response_schema"]
