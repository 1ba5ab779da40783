"""`kwob load`: what cannot be is refused before anything is sent."""

from __future__ import annotations

import pytest

from controller.local.load import client, command
from controller.local.load.run import Load, LoadPlan

CASES = [
    ("no time between two lines", ["--topic", "t", "--every", "0"], "--every: expected a time above 0"),
    ("no topic", ["--topic", ","], "--topic names no topic"),
    ("no size", ["--topic", "t", "--size", "9-1"], "--size '9-1': expected bytes"),
    (
        "no time at all",
        ["--topic", "t", "--duration", "9" * 400],
        "--duration: 99999999999999999999... is longer than any",
    ),
]


@pytest.mark.parametrize(("words", "said"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_wrong_words(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = command.main(["--bootstrap-server", "127.0.0.1:1", *words])
    except SystemExit as ended:  # by the parser
        code = int(ended.code or 0)
    assert code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("side", ["producer_settings", "consumer_settings"])
def test_settings_that_the_library_does_not_take(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that found out would end, and the load would go on without it."""
    started: list[str] = []
    monkeypatch.setattr(client, "start_group", lambda bootstrap, group, starts: started.append(group))
    plan = LoadPlan(bootstrap="127.0.0.1:1", topics=("t",), **{side: {"no.such": "1"}})
    load = Load(plan, {})
    with pytest.raises(client.LoadError, match=r"no\.such"):
        load.start()
    assert not started
