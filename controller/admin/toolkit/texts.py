"""What the tools say and do by brokers, by version, where versions differ: tables, pure. Source: spec admin.md.

A field's name says the place, its comment the section. Where the section gives no difference there is no field: an
older version then speaks as today's does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from controller.admin.toolkit.failures import ToolFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """One version. Braces are filled in by `str.format`."""

    version: str
    #: §2.8, §2.9: `--topic` means no topic.
    missing_topic: str
    #: §0.8: `--alter --config` by brokers.
    config_with_alter: str
    #: §2.5: what the warning about message.format.version ends with.
    format_version_end: str
    #: §2.8: the summary line has TopicId; the partition lines have Elr and LastKnownElr.
    describes_ids: bool
    #: §2.2, last lines: what the cluster refuses is said with its class, but for --create.
    prefixes_refusals: bool
    #: §3.2: a reassignment file that is no JSON is told in the parser's words.
    shows_parser: bool
    #: §0.9: `--version`.
    version_line: str
    #: §3.4, §4.1: duplicates.
    duplicates: str
    #: §3.5: others are running.
    in_progress: str
    #: §3.6: the topics' lists are written for a log-dir throttle, too.
    lists_for_log_dirs: bool
    #: §3.6: a proposal keeps the sources of the move that it replaces, and only adding replicas are destinations.
    keeps_sources: bool
    #: §3.7: a partition that is where it should be.
    completed: str
    #: §3.8: the line about no active moves ends.
    ends_no_moves: bool
    #: §3.10: a move between log dirs began; None where all of a round share a line.
    log_dir_move: str | None
    #: §4.1: the order in which missing options are named.
    election_options: tuple[str, ...]
    #: §4.1: "already elected" names the partitions that were elected just now.
    mistakes_elected: bool
    #: §4.1: nobody catches what says that leaders could not be elected.
    throws_elections: bool
    #: §4.3: kafka-configs has altered one entity, or a default; headings of one, of one with --all, of a default.
    config_altered: str
    default_altered: str
    config_described: str
    all_described: str
    default_described: str
    #: Packages of the exceptions that trace lines name, by those of today.
    classes: Mapping[str, str]

    def renamed(self, failure: ToolFailure) -> ToolFailure:
        """The same failure with the exception class that this version had for it."""
        today = failure.java_class
        return failure if today not in self.classes else ToolFailure(str(failure), java_class=self.classes[today])


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


V39: Final = Texts(
    version="3.9",
    missing_topic="Topic 'Optional[{topic}]' does not exist as expected",
    config_with_alter=(
        'Option combination "[[bootstrap-server], [config]]" can\'t be used with option "[alter]" (the kafka-configs '
        "CLI supports altering topic configs with a --bootstrap-server option)"
    ),
    format_version_end=(
        " or if the inter.broker.protocol.version is 3.0 or newer. This configuration is deprecated and it will be "
        "removed in Apache Kafka 4.0."
    ),
    describes_ids=True,
    prefixes_refusals=False,
    shows_parser=True,
    version_line="3.9.1",
    duplicates="[{listed}]",
    in_progress=(
        "Cannot execute because there is an existing partition assignment.  Use --additional to override this and "
        "create a new partition assignment in addition to the existing one. The --additional flag can also be used to "
        "change the throttle by resubmitting the current reassignment."
    ),
    lists_for_log_dirs=False,
    keeps_sources=True,
    completed="Reassignment of partition {partition} is completed.",
    ends_no_moves=False,
    log_dir_move="Successfully started moving log directory to {path} for replica {partition} with broker {broker} ",
    election_options=("bootstrap-server", "election-type"),
    mistakes_elected=False,
    throws_elections=False,
    config_altered="Completed updating config for {kind} {name}.",
    default_altered="Completed updating default config for {kind}s in the cluster.",
    config_described="Dynamic configs for {kind} {name} are:",
    all_described="All configs for {kind} {name} are:",
    default_described="Default configs for {kind}s in the cluster are:",
    classes={},
)

V26: Final = Texts(
    version="2.6",
    missing_topic="Topic '{topic}' does not exist as expected",
    config_with_alter='Option combination "[bootstrap-server],[config]" can\'t be used with option "[alter]"',
    format_version_end=".",
    describes_ids=False,
    prefixes_refusals=True,
    shows_parser=False,
    version_line="2.6.0 (Commit:62abe01bee039651)",
    duplicates="{listed}",
    in_progress=(
        "Cannot execute because there is an existing partition assignment.  Use --additional to override this and "
        "create a new partition assignment in addition to the existing one."
    ),
    lists_for_log_dirs=True,
    keeps_sources=False,
    completed="Reassignment of partition {partition} is complete.",
    ends_no_moves=True,
    log_dir_move=None,
    election_options=("election-type", "bootstrap-server"),
    mistakes_elected=True,
    throws_elections=True,
    config_altered=V39.config_altered,
    default_altered=V39.default_altered,
    config_described=V39.config_described,
    all_described=V39.all_described,
    default_described=V39.default_described,
    classes={
        "org.apache.kafka.server.common.AdminCommandFailedException": "kafka.common.AdminCommandFailedException",
        "org.apache.kafka.server.common.AdminOperationException": "kafka.admin.AdminOperationException",
    },
)

#: 2.0 asked brokers for the configs of brokers, for groups, log dirs and offsets only.
V20: Final = replace(
    V26,
    version="2.0",
    config_altered="Completed updating config for {kind}: {name}.",
    default_altered="Completed updating default config for {kind}s in the cluster,",
    config_described="Configs for {kind} {name} are:",
    default_described="Default config for {kind}s in the cluster are:",
)
