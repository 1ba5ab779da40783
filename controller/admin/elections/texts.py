"""What the tools of elections say, each in its own words: tables, pure. Source: spec admin.md §4.1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionTexts:
    """What a tool says of elections (§4.1)."""

    elected: str
    already: str
    failed: str
    could_not: str


#: kafka-leader-election.
ELECTION: Final = ElectionTexts(
    elected="Successfully completed leader election ({kind}) for partitions {partitions}",
    already="Valid replica already elected for partitions {partitions}",
    failed="Error completing leader election ({kind}) for partition: {partition}: {error}",
    could_not="{count} replica(s) could not be elected",
)
#: kafka-preferred-replica-election 2.6 by brokers.
PREFERRED: Final = ElectionTexts(
    elected="Successfully completed preferred leader election for partitions {partitions}",
    already="Preferred replica already elected for partitions {partitions}",
    failed="Error completing preferred leader election for partition: {partition}: {error}",
    could_not="{count} preferred replica(s) could not be elected",
)
