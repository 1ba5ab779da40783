"""A segment that was cut is the one that its remaining batches make."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from broker_sim.log.files import Files
from broker_sim.log.segment import Segment
from broker_sim.log.segment_shape import SegmentShape
from controller.wire.records import Record, build_batch, parse_header

BASE = 7


@pytest.mark.parametrize("seed", range(5))
def test_a_cut_leaves_a_segment_as_its_batches_make_it(tmp_path: Path, seed: int) -> None:
    """Where it ends, its times: whatever the indexes have of them, at each offset."""
    times = random.Random(seed).choices(range(-1, 9), k=8)
    batches = [build_batch([Record(BASE + n, time, None, b"v")]) for n, time in enumerate(times)]
    for cut in range(BASE, BASE + len(times) + 1):
        found = []
        for count, name in ((len(times), "cut"), (cut - BASE, "made")):
            folder = tmp_path / f"{name}-{cut}"
            folder.mkdir()
            shape = SegmentShape(index_interval_bytes=150, max_index_bytes=96)
            segment = Segment(folder, BASE, shape=shape, files=Files())
            segment.create()
            for batch in batches[:count]:
                segment.append(batch, parse_header(batch))
            segment.truncate(cut)
            found.append((segment.next_offset, segment.size, segment.max_timestamp, segment.first_timestamp))
        assert found[0] == found[1], (times, cut)
