"""Settings from environment variables: Kafka's names in capitals."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.rules.configs.environment import NOT_SETTINGS, of_environment
from controller.rules.configs.settings import SettingError, load

#: Those that are no settings stand before, between and after the others by their names.
GIVEN = {
    "HOME": "/",
    "KWOB_BACKGROUND_THREADS": "",
    "KWOB_ISR_PROFILE": "P26",
    "KWOB_LISTENERS": " ",
    "KWOB_MIN_INSYNC_REPLICAS": " 2 ",
    "KWOB_NUM_PARTITIONS": "",
    "PATH": "/bin",
}


def test_names_are_kafkas_and_ours_and_empty_ones_are_not_given() -> None:
    assert of_environment(GIVEN) == {"min.insync.replicas": "2", "kwob.isr.profile": "P26"}


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        (
            "KWOB_MIN_INSYC_REPLICAS",
            "2",
            "unknown setting min.insyc.replicas (value '2'): did you mean min.insync.replicas",
        ),
        ("KWOB_NUM_PARTITIONS", "many", "setting num.partitions: value 'many' is not allowed; allowed: a whole number"),
        ("KWOB_MIN_INSYNC_REPLICAS", "0", "from 1 to"),
    ],
)
def test_what_is_no_setting_is_refused_and_named(variable: str, value: str, says: str) -> None:
    with pytest.raises(SettingError) as caught:
        of_environment({variable: value})
    assert str(caught.value).startswith(f"environment variable {variable}: ") and says in str(caught.value)


def test_a_file_comes_before_and_overrides_after(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("num.partitions=1\nmin.insync.replicas=1\nnum.io.threads=3\n")
    between = of_environment({"KWOB_NUM_PARTITIONS": "2", "KWOB_MIN_INSYNC_REPLICAS": "2"})
    found = load(tmp_path / "f", ["num.partitions=9"], between)
    assert found == {"num.partitions": "9", "min.insync.replicas": "2", "num.io.threads": "3"}


def test_variables_of_commands_and_tests_are_no_settings() -> None:
    assert of_environment(dict.fromkeys(NOT_SETTINGS, "x")) == {}
