"""Read this first: one `match` says what happens at each event.

handle(state, event, now_ms) -> Recipe    a generator of effects: see `effects` for what each is answered with
preempted(event)             -> the answers for an event that is dropped unprocessed (session expired, shutting down)
is_active(state)             -> whether this process is the active controller, as it believes
"""

from __future__ import annotations

from controller.core.effects import Effect, Recipe
from controller.core.events import ControllerState, Event
from controller.core.state import ClusterState


def is_active(state: ClusterState) -> bool:
    """Whether this process believes to be the active controller."""
    return state.active_controller_id == state.controller_id


def handle(state: ClusterState, event: Event, now_ms: int) -> Recipe:
    """The recipe for one event. The shell drives it to its end before it takes the next event.

    The shell throws `ControllerMoved` into it at a Write whose fence broke, and `ZkSessionExpired` when the session is
    gone. Both end the recipe (the first after a resignation, the second at once: `Expire` follows). Any other exception
    is a fault: log it, go on with the next event.
    """
    raise NotImplementedError
    yield


def state_during(event: Event) -> ControllerState:
    """What the `ControllerState` gauge shows while the event is processed."""
    raise NotImplementedError


def preempted(event: Event) -> tuple[Effect, ...]:
    """The answers owed when an event is dropped unprocessed. At most one Reply each."""
    raise NotImplementedError
