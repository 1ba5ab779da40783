"""The buttons: what a page may have done to a cluster of `kwob up`. A table; nothing else can be asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from controller.local.cluster_file import ClusterError, read_cluster
from controller.local.control import ProcessCommand, ask
from controller.local.fault_file import check_against, edit_faults
from controller.wire.fault_rows import FAULT_FILE, FaultError, parse_row


class ActionRefused(Exception):
    """What was asked for is not done. One sentence for the page."""


class Asked(BaseModel):
    """What a page sends: the action, and the broker or controller."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    action: str
    id: int = 0


def _process(action: Literal["kill", "stop", "start"], role: Literal["broker", "controller"]) -> _Perform:
    return lambda data, number: ask(data, ProcessCommand(action=action, role=role, id=number))


def _fault(**columns: Any) -> _Perform:
    def put(data: Path, number: int) -> str:
        row = parse_row({"broker": number, **columns})
        check_against(row, read_cluster(data).brokers)
        edit_faults(data / FAULT_FILE, lambda present: (*present, row))
        return f"broker {number}: {row.fault} is in force"

    return put


def _heal(data: Path, _number: int) -> str:
    edit_faults(data / FAULT_FILE, lambda present: [])
    return "no fault is in force"


_Perform = Callable[[Path, int], str]
#: name -> how it is done, and what its button says.
ACTIONS: Final[Mapping[str, tuple[_Perform, str]]] = {
    "broker.kill": (_process("kill", "broker"), "kill"),
    "broker.stop": (_process("stop", "broker"), "stop"),
    "broker.start": (_process("start", "broker"), "start"),
    "broker.pause_replication": (_fault(fault="pause_replication"), "pause replication"),
    "broker.slow_link": (_fault(fault="slow_link", delay_ms=200), "slow its links by 200 ms"),
    "broker.cut_link": (_fault(fault="cut_link"), "cut its links"),
    "broker.expire_session": (_fault(fault="expire_session"), "expire its session"),
    "controller.kill": (_process("kill", "controller"), "kill"),
    "controller.start": (_process("start", "controller"), "start"),
    "faults.heal": (_heal, "end all faults"),
}


def perform(data: Path, body: bytes) -> str:
    """Does what a page asks for, and says so. Blocks. Raises: ActionRefused, with nothing done."""
    try:
        asked = Asked.model_validate_json(body)
    except ValidationError:
        raise ActionRefused('not an action: {"action": NAME, "id": NUMBER} is expected') from None
    if asked.action not in ACTIONS:
        raise ActionRefused(f"there is no action {asked.action[:40]!r}; there are {', '.join(ACTIONS)}")
    try:
        return ACTIONS[asked.action][0](data, asked.id)
    except (ClusterError, FaultError, OSError) as error:
        raise ActionRefused(str(error)) from error
