"""Settings from environment variables, for containers: `KWOB_NUM_PARTITIONS=3` is `num.partitions=3`. Pure.

The name is Kafka's in capitals, a dot being an underscore. Those of a properties file come before, `--override` after.
A variable that begins with `KWOB_` and is no setting is refused, so that a misspelt one is not passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.rules.configs import setting_names, settings

PREFIX: Final = "KWOB_"
#: Variables of the commands and of this project's own tests.
NOT_SETTINGS: Final = frozenset(
    PREFIX + name
    for name in (
        "BENCH", "CHROMIUM", "CONFORMANCE", "DATA", "FUZZ_EXAMPLES", "JMX_RULES", "PY_SPY", "REAL_KAFKA", "REWRITE",
        "SHARED", "TOKEN",
    )
)  # fmt: skip


def of_environment(variables: Mapping[str, str]) -> settings.Settings:
    """The settings among the variables. Empty ones count as not given, as in a file of compose.

    Raises: SettingError, which names the variable.
    """
    found: settings.Settings = {}
    for variable, value in sorted(variables.items()):
        if not variable.startswith(PREFIX) or variable in NOT_SETTINGS or not value.strip():
            continue
        name = _name(variable)
        try:
            settings.check(name, value.strip())
        except settings.SettingError as error:
            raise settings.SettingError(f"environment variable {variable}: {error}") from error
        found[name] = value.strip()
    return found


def _name(variable: str) -> str:
    """Kafka's name, or `kwob.…` where that is one of ours."""
    name = variable.removeprefix(PREFIX).lower().replace("_", ".")
    own = f"kwob.{name}"
    return own if own in setting_names.OWN_NAMES else name
