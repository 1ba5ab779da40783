"""What the tools say and do, where versions differ: one row per version, of 3.9 here. Pure. Source: spec admin.md.

A field's name says the place, its comment the section. Where the section gives no difference there is no field: an
older version then speaks as today's does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from controller.admin.cluster.failures import ToolFailure


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
    #: §2.8: brokers are asked for them by DescribeTopicPartitions, where they answer it.
    asks_for_eligible_leaders: bool
    #: §2.2, last lines: what the cluster refuses is said with its class, but for --create.
    prefixes_refusals: bool
    #: §3.2: what is wrong with a reassignment file that is no JSON is said in the parser's words.
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
    #: §2.2: `--delete-config` does nothing and is answered with this; None where it is refused.
    delete_config_ignored: str | None = None
    #: §3.1, §4.3: no server is named.
    no_server: str = "Please specify --bootstrap-server"
    configs_no_server: str | None = None
    #: §4.3: `--alter` without a name; the types that brokers take; what ends the complaint about `--add-config`.
    configs_missing_name: str = "an entity name must be specified with --alter of {kind}"
    configs_missing_entity: str = (
        "an entity-name or default entity must be specified with --alter of users, clients, brokers or ips"
    )
    configs_types: tuple[str, ...] = (
        "topics", "clients", "users", "brokers", "ips", "broker-loggers", "client-metrics",
    )  # fmt: skip
    configs_format: str = "."
    #: §4.3: what `--help` begins with; whether `--alter` of a broker wants its sensitive configs again; whether what is
    #: wrong with a topic's name is said alone.
    configs_help: str = (
        "This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip or "
        "client-metrics"
    )
    wants_sensitive: bool = True
    names_failures_alone: bool = False
    #: §4.3: `--describe` of what there is not; None where the cluster's refusal is said.
    no_such_entity: str | None = None
    #: §4.5: `--delete-offsets`: done, done in part, a missing group; a row of its table, what stands there for no
    #: partition and for a refusal.
    offsets_deleted: str = "Request succeed for deleting offsets with topic {topics} group {group}"
    offsets_deleted_in_part: str = "Encounter some partition level error, see the follow-up details:"
    no_group: str = "'{group}' does not exist."
    offset_row: str = "{:<30} {:<15} {:<15}"
    no_partition: str = "Not Provided"
    offset_error: str = "Error: :{error}"
    #: §4.5: `--describe` of a missing group is a failure; refusals of `--delete` and `--reset-offsets`
    #: came out of a future; its last line.
    no_group_fails: bool = False
    wraps_group_refusals: bool = True
    #: §4.5: the tables of `--describe` are those of 4.x, and there is `--validate-regex`; options that others need.
    groups_of_4x: bool = False
    describe_needs: str = "[reset-offsets], [describe], [delete], [list]"
    delete_offsets_needs: str = "[all-groups], [group]"
    no_action_gap: str = ""
    #: §4.5: a row of `--reset-offsets`, heading included; what ends each row (3.9 prints all on one line).
    reset_row: str = "{0:<30} {1:<30} {2:<10} {3:<15}"
    reset_row_end: str = ""
    deleted_groups_end: str = ", '"
    #: §4.4: no server is named (None: as other tools say it), and the old name of the option.
    offsets_missing_server: str | None = "Missing required option(s) [bootstrap-server]"
    offsets_broker_list: bool = True
    #: §2.2: the log line of a failure of kafka-topics ends with this logger.
    topic_logger: str = "org.apache.kafka.tools.TopicCommand"
    #: §0.8: what stands before the second option in a complaint about two.
    conflict_gap: str = " "
    #: §0.9: `--help` is an option.
    has_help: bool = True
    #: kafka-topics, -reassign-partitions and the elections have --bootstrap-server, with all that came with it.
    asks_brokers: bool = True
    #: §4.2: the keys of kafka-log-dirs' JSON, in order.
    log_dir_keys: tuple[str, ...] = ("partitions", "error", "logDir")
    broker_dirs_keys: tuple[str, ...] = ("brokers", "version")
    #: §3.3: `--generate` places as the controller of KRaft does.
    places_in_stripes: bool = False
    #: §3.2: the parser is that of 4.1. What should be an array of numbers or texts, and is not.
    newer_parser: bool = False
    no_array: str = "Expected `JSON array` value, received {value}"
    #: §3.5: an empty file, what is printed as the assignment so far, what warns of throttles, the start.
    empty_plan: str = "Partition reassignment list cannot be empty"
    shows_whole_topics: bool = False
    throttle_warning: str = (
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is "
        "removed."
    )
    started: str = "Successfully started partition reassignment{s} for {partitions}"
    #: §3.5: `--execute` beside a running reassignment changes its rates, and says this first; None where it is refused.
    changes_rates: str | None = None
    #: §3.7: the line above the states, and the other states. `mismatch` is said above that line, if at all.
    status_header: str = "Status of partition reassignment:"
    in_motion: str = "Reassignment of partition {partition} is still in progress."
    different: str = (
        "There is no active reassignment of partition {partition}, but replica set is {now} rather than {target}."
    )
    mismatch: str | None = None
    #: §3.6: `--verify` waits for its own partitions only; and says what it clears, or (None) that it did.
    waits_for_own: bool = False
    says_what_it_clears: bool = True
    #: §3: what a failure begins with, and what it exits with.
    reassign_failed: str = "Error:"
    reassign_failed_exit: int = 1
    #: What it says where it asks ZooKeeper.
    zookeeper: ZookeeperTexts | None = None

    def renamed(self, failure: ToolFailure) -> ToolFailure:
        """The same failure with the exception class that this version had for it."""
        today = failure.java_class
        return failure if today not in self.classes else ToolFailure(str(failure), java_class=self.classes[today])


@dataclass(frozen=True, slots=True, kw_only=True)
class ZookeeperTexts:
    """What a version of 2.x says and does where it asks ZooKeeper. Braces as in `Texts`."""

    #: What kafka-reassign-partitions, the elections and kafka-configs print first.
    reassign_first: tuple[str, ...]
    election_first: tuple[str, ...]
    configs_first: tuple[str, ...]
    #: §2.5: the version of the topic znodes that it writes.
    topic_znode_version: int
    #: §2.5: `--replica-assignment` is read after the warning about names.
    reads_assignment_late: bool
    topic_created: str
    #: §2.9: topics whose partitions stay as many as they are, with their names there.
    fixed_topics: Mapping[str, str]
    #: §2.9: `--replica-assignment` that lists no more than the partitions that exist is no number.
    needs_new_partitions: bool
    topic_config_updated: str
    #: §2.9, §2.10: `--topic` means no topic.
    missing_topic: str
    #: §2.8: `--describe` of a missing topic fails; a leader that is gone; what follows names; each line is marked.
    describe_fails: bool
    no_leader: str
    colon: str
    marks_partitions: bool
    #: §3.2: log directories in a file, without and with --bootstrap-server.
    log_dirs_refused: str
    log_dirs_unserved: str
    #: §3.7: said before the states.
    verify_first: tuple[str, ...]
    #: §4.1: what elections' failures begin with, and where they are printed.
    election_failed: str
    election_fails_on_stdout: bool
    #: §4.3.
    config_updated: str


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
    asks_for_eligible_leaders=False,
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
