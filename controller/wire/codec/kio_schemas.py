"""Loads kio. For `protocol` only.

kio imports hypothesis where that is installed, for strategies that only its own tests need. It takes a second, which
every process of a development set-up would wait for at its start; so kio is told that there is none.
"""

from __future__ import annotations

import sys
from functools import cache

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

# kio looks a class up by its dotted name each time; messages are many.
load_request_schema = cache(index.load_request_schema)
load_response_schema = cache(index.load_response_schema)

__all__ = ["api_key_map", "load_request_schema", "load_response_schema"]
