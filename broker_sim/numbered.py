"""`--broker-id by-name`: one command for brokers that a container engine numbers, as `--scale` does. Pure.

The id is the number at the end of the container's name (`kwob-broker-2`: 2), so a container that is made again has the
same id, log directories and place among the racks.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Final

from broker_sim.command_line import CommandLineError

BY_NAME: Final = "by-name"
_PLACES: Final = re.compile(r"\{(name|id|(\d+)\+id)\}")


def by_name(arguments: argparse.Namespace, name_of: Callable[[], str | None]) -> argparse.Namespace:
    """The arguments for this one broker: `{id}`, `{name}` and `{19090+id}` filled in, its rack taken in turn.

    As they are where the id is given. Raises: CommandLineError, where the name has no number.
    """
    if arguments.broker_id != BY_NAME:
        return arguments
    name = name_of()
    number = re.search(r"(\d+)$", name or "")
    if name is None or number is None:
        raise CommandLineError(
            f"--broker-id {BY_NAME}: {'no name server knows this machine' if name is None else f'its name {name!r}'}"
            f"{'' if name is None else ' does not end in a number'}; give the id, as in --broker-id 1"
        )
    broker_id = int(number[1])
    filled = argparse.Namespace(**vars(arguments))
    filled.broker_id = str(broker_id)
    filled.override = [_filled(text, name, broker_id) for text in arguments.override]
    for each in ("listener", "log_dirs", "metrics_listener"):
        text = getattr(arguments, each)
        setattr(filled, each, None if text is None else _filled(text, name, broker_id))
    if arguments.rack is not None:
        racks = arguments.rack.split(",")
        filled.rack = racks[(broker_id - 1) % len(racks)]
    return filled


def _filled(text: str, name: str, broker_id: int) -> str:
    def value(place: re.Match[str]) -> str:
        if place[1] == "name":
            return name
        return str(broker_id if place[2] is None else int(place[2]) + broker_id)

    return _PLACES.sub(value, text)
