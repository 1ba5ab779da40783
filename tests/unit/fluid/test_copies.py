"""Where a copy is at any time, in closed form, beside walking there in small steps."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from broker_sim.fluid.copies import ARRIVED_BYTES, Copy, Stream
from controller.wire.types import BrokerId, TopicPartition

TP = TopicPartition("t", 0)


def pair(*, end: float, position: float, ingress: float, rate: float) -> tuple[Stream, Copy]:
    stream = Stream(TP, BrokerId(1), end_bytes=end, at_s=0.0, ingress=ingress)
    return stream, Copy(TP, BrokerId(1), BrokerId(2), position=position, at_s=0.0, stream=stream, own_rate=rate)


def test_a_copy_is_never_beyond_its_leaders_end() -> None:
    """Its rate would have it there after 2 s; somebody looks at 5 s."""
    stream, copy = pair(end=1000.0, position=0.0, ingress=100.0, rate=600.0)
    assert copy.where(1.0) == 600.0 and copy.backlog(1.0) == 500.0
    assert copy.catches_up_in(1.0) == 1.0
    assert copy.where(5.0) == stream.end(5.0) == 1500.0 and copy.backlog(5.0) == 0.0
    copy.stay(5.0)
    assert copy.position == 1500.0 and copy.where(9.0) == 1500.0 and stream.end(9.0) == 1900.0


@given(st.floats(0, 1e9), st.floats(0, 1e9), st.floats(0, 1e7), st.floats(0, 1e7), st.floats(0, 1000))
@example(0.0, ARRIVED_BYTES, 0.0, 0.0, 0.0)
def test_where_it_is_and_what_it_lacks_make_the_end(
    size: float, lacking: float, ingress: float, rate: float, at_s: float
) -> None:
    stream, copy = pair(end=size + lacking, position=size, ingress=ingress, rate=rate)
    end = stream.end(at_s)
    assert copy.where(at_s) <= end
    assert abs(copy.where(at_s) + copy.backlog(at_s) - end) <= 1e-6 * max(1.0, end)
    left = copy.catches_up_in(at_s)
    if copy.backlog(at_s) <= ARRIVED_BYTES:
        assert left == (0.0 if rate >= ingress else float("inf")), "what it lacks is nothing"
    elif left != float("inf"):
        assert copy.backlog(at_s + left + 1e-3) <= 1e-3 * max(1.0, rate)
