"""Every command that README or a page of docs shows is typed by some test, or stands here with the reason why not."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Mapping
from typing import Final

import pytest

from broker_sim.replay.cli import main as replay_main
from broker_sim.run import main as broker_main
from controller import cli
from tests.docker.test_readme_commands import typed as typed_in_the_image
from tests.features.transcripts import FILE as TRANSCRIPTS
from tests.test_site import workflow
from tests.typed.commands import Typed, commands, of_all_pages, of_page
from tests.typed.test_pages import typed_here

#: (page, command) -> why no test types it, or which one does what it does.
EXCEPTIONS: Final[Mapping[tuple[str, str], str]] = {
    ("README.md", "make demo"): "calls `kwob demo`, which tests/spark/test_sums.py plays; make adds its set-up",
    ("README.md", "make test"): "that is who runs this test",
    ("README.md", "make lint"): "the gate (.ci/run) runs it after the tests",
    ("install.md", "pip install kwob"): "tests/wheel/test_light_core.py, with the wheel of this tree",
    ("install.md", "kwob up"): "tests/wheel/test_light_core.py: the extra that it lacks is in its answer",
    ("test-your-service.md", "pip install kwob pytest"): "tests/wheel/test_light_core.py, with the wheel of this tree",
    ("monitoring.md", "prometheus --config.file docs/monitoring/prometheus.yml"):
        "its ports are fixed; tests/broker_metrics/test_prometheus.py runs one with these rules, where it is installed",
    ("monitoring.md", "docker compose --profile monitoring up --build --wait"):
        "tests/docker/test_profiles.py, where the images can be had",
    ("replay.md", "python -m venv --copies env && env/bin/pip install venv-pack . && "
     "env/bin/venv-pack -p env -o kwob-env.tar.gz"): "an archive of 640 MB from a package index",
    ("scale.md", "kwob up --brokers 100"): "a measurement; tests/local starts clusters of some brokers",
    ("scale.md", ".venv/bin/python tests/bench_broker/scale.py --brokers 100 --topics 200 --partitions 50"):
        "a measurement of minutes",
    ("scale.md", "make bench-broker"): "a measurement of an hour beside a real Kafka",
    ("scale.md", 'make bench-broker ARGS="--only kwob --compression lz4"'): "the same",
}  # fmt: skip


def test_every_command_is_typed_by_a_test_or_says_why_not() -> None:
    typed = typed_here()
    typed |= {Typed("README.md", line) for line in typed_in_the_image()}
    typed |= {Typed(TRANSCRIPTS.name, line) for line in commands(TRANSCRIPTS.read_text(encoding="utf-8"))}
    typed |= {
        Typed("examples.md", step["run"])
        for job in workflow()["jobs"].values()
        for step in job["steps"]
        if "run" in step
    }
    typed |= {Typed(*each) for each in EXCEPTIONS}
    shown = {each for each in of_all_pages() if not each.is_synopsis}
    assert {(each.page, each.line) for each in shown - typed} == set(), "no test types them"
    assert {(each.page, each.line) for each in typed - shown} == set(), "no page shows them"


SYNOPSES: Final = sorted({each.line for each in of_all_pages() if each.is_synopsis and "spark-submit" not in each.line})


@pytest.mark.parametrize("line", SYNOPSES)
def test_a_synopsis_has_the_flags_that_there_are(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = re.sub(r"[\[\]|]|\.\.\.", " ", line).split()
    programs = {"broker_sim": broker_main, "broker_sim.replay": replay_main}
    main, rest = (cli.main, words[1:]) if words[0] == "kwob" else (programs[words[2]], words[3:])
    command = [word for word in rest[:2] if re.fullmatch("[a-z]+", word)]
    with contextlib.suppress(SystemExit):
        main([*command, "--help"])
    printed = capsys.readouterr().out
    flags = {word.partition("=")[0] for word in rest if word.startswith("--")}
    assert flags and {flag for flag in flags if flag not in printed} == set(), printed


def test_commands_are_found_in_each_kind_of_block() -> None:
    text = """
Text with `kwob in-line`.

    kwob first --flag   # a remark
    python -m module \\
        --folded
    other words

```
KEY=1 make second
```

```yaml
kwob: no
```

```console
$ kwob third 'x y'
kwob is what it prints
$ pip install kwob
```
"""
    expected = [
        "kwob first --flag",
        "python -m module --folded",
        "KEY=1 make second",
        "kwob third 'x y'",
        "pip install kwob",
    ]
    assert commands(text) == expected
    assert [Typed("p", line).is_synopsis for line in ("kwob x --out DIR", "kwob x --out dir")] == [True, False]
    assert all(shlex.split(each.line) for each in of_page("README.md"))
