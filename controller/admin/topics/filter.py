"""Which topics a `--topic` means: Kafka's include list as a regular expression. Pure. Source: `TopicFilter`; §0.13."""

from __future__ import annotations

import re
from collections.abc import Mapping

from controller.admin.cluster.failures import ToolFailure


def topic_pattern(text: str) -> re.Pattern[str]:
    """The pattern that a name must match in full. Raises ToolFailure for one that is no regular expression."""
    joined = text.strip().replace(",", "|").replace(" ", "")
    joined = re.sub(r"^[\"']+|[\"']+$", "", joined)
    try:
        return re.compile(joined)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise ToolFailure(f"{joined} is an invalid regex.", java_class="java.lang.RuntimeException") from error


def matching(names: Mapping[str, bool], text: str | None, *, exclude_internal: bool) -> list[str]:
    """The names that `text` means (None: all), sorted. `names` tells of each whether it is internal."""
    pattern = topic_pattern(text) if text is not None else None
    return [
        name
        for name, internal in sorted(names.items())
        if (pattern is None or pattern.fullmatch(name)) and not (exclude_internal and internal)
    ]
