"""Every difference from Kafka's tools and brokers that stays, with its reason. The one table of them.

A row names a scenario and a pattern of command lines in it. `by` is TOOLS for what these tools do otherwise, on any
cluster; BROKERS for what kwob's brokers and controller answer otherwise, to any tool; SEEN for what only Kafka's tools
let one see of them. `also_exit` says that the exit code differs, too; else it must be the same.
Not in here is what the normal form leaves out: the wording of the tables of options, the frames of stack traces, the
order of what Kafka prints in the order of a hash table (sorted here), and that Kafka's tools count kwob's controller,
a node of its own, among the brokers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

TOOLS: Final = "tools"
BROKERS: Final = "brokers"
SEEN: Final = "seen"
#: What a cluster of Kafka 4.1 answers otherwise than those of 3.9 that kwob's brokers and controller are.
OLDER: Final = "older"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One row."""

    scenario: str
    line: str
    by: str
    reason: str
    also_exit: bool = False
    #: What of the output may differ; without it, anything.
    part: str | None = None

    def covers(self, scenario: str, line: str) -> bool:
        return scenario == self.scenario and re.fullmatch(self.line, line) is not None

    def allows(self, one: dict[str, Any], other: dict[str, Any]) -> bool:
        """Whether two runs differ in nothing else."""
        if not self.also_exit and one.get("exit") != other.get("exit"):
            return False
        return self.part is None or self._rest(one) == self._rest(other)

    def _rest(self, run: dict[str, Any]) -> list[str]:
        assert self.part is not None
        return [re.sub(self.part, "", "\n".join(run.get(stream, ()))) for stream in ("out", "err")]


DIFFERENCES: Final[Sequence[Difference]] = (
    Difference(
        scenario="unreachable",
        line=r"(?!consumer-groups|topics \$B).*",
        by=TOOLS,
        reason="one line that names the address, what went wrong there and what to do, after seconds; Kafka's tools "
        "wait a minute and name a call of their own",
    ),
    Difference(
        scenario="unreachable",
        line="consumer-groups .*",
        by=TOOLS,
        also_exit=True,
        reason="as above; a cluster out of reach is a failure to scripts, where Kafka's tool exits with 0",
    ),
    Difference(
        scenario="odd_states",
        line=r"get-offsets \$B --topic (one|\"one\|two\") .*",
        by=TOOLS,
        reason="a partition without a leader is named at once; Kafka 3.9's client asks in a busy loop until its "
        "time is up",
    ),
    Difference(
        scenario="groups",
        line=r"consumer-groups \$B --reset-offsets --group g --topic foo:7 .*",
        by=TOOLS,
        reason="the same for a partition that does not exist",
    ),
    Difference(
        scenario="reassign",
        line=r"reassign-partitions .* --throttle 0",
        by=TOOLS,
        reason="a warning on standard error before a throttle that is too small to ever finish",
    ),
    Difference(
        scenario="configs",
        line=r"configs \$B --describe --entity-type users",
        by=TOOLS,
        also_exit=True,
        reason="entities other than topics and brokers are not served, and refused instead of described as empty",
    ),
    Difference(
        scenario="odd_states",
        line=r"leader-election .* --topic far --partition 0 .*",
        by=BROKERS,
        reason="Kafka's controller never answers for a partition that never had a leader; kwob's says so",
    ),
    Difference(
        scenario="configs",
        line=r"configs \$B --describe --entity-type users",
        by=SEEN,
        also_exit=True,
        reason="kwob's brokers do not serve DescribeClientQuotas",
    ),
    Difference(
        scenario="groups",
        line=r"consumer-groups \$B --(describe|delete) --group g",
        by=OLDER,
        reason="4.1 keeps a group whose offsets were deleted, all of them",
    ),
    Difference(
        scenario="reassign",
        line=r"topics \$B --alter --topic foo --partitions 5",
        by=OLDER,
        also_exit=True,
        reason="4.1 adds partitions to a topic that is being moved",
    ),
    Difference(
        scenario="reassign",
        line=r"topics \$B --describe --topic (foo|\"foo\|bar\")",
        by=OLDER,
        reason="and so there are three more",
        part=r"(?<=Topic: foo\tPartitionCount: )\d|\n\tTopic: foo\tPartition: [234]\t.*",
    ),
    Difference(
        scenario="racks",
        line=r"topics \$B --(create --topic foo|alter --topic bar) --partitions 2.*",
        by=OLDER,
        also_exit=True,
        reason="4.1 places replicas also where only some brokers have racks",
    ),
    Difference(
        scenario="configs",
        line=r"configs \$B --describe --topic foo",
        by=OLDER,
        reason="4.1 shows the default in hours behind a dynamic one in milliseconds",
        part=", DEFAULT_CONFIG:log.retention.hours=168",
    ),
    Difference(
        scenario="topics",
        line=r"topics \$B --describe --topic foo",
        by=OLDER,
        reason="where a new partition goes is drawn",
        part=r"(?<=\tPartition: 3\t).*",
    ),
)


def expected(scenario: str, one: dict[str, Any], other: dict[str, Any], by: Sequence[str]) -> Difference | None:
    """The row that allows two runs of a command line to differ as they do; None when there is none."""
    for row in DIFFERENCES:
        if row.by in by and row.covers(scenario, str(one["line"])):
            return row if row.allows(one, other) else None
    return None


def allowed(*, ours: bool, kafka: bool) -> list[str]:
    """Whose rows count: of these tools or Kafka's, on Kafka's brokers or kwob's."""
    return [*([TOOLS] if ours else []), *([] if kafka else [BROKERS]), *([] if kafka or ours else [SEEN])]
