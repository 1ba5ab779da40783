"""What the tools say and do, by version, where versions differ: one row per version, pure. Source: spec admin.md.

A field's name says the place, its comment the section. Where the section gives no difference there is no field: an
older version then speaks as today's does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
    #: §4.5: `--describe` of a missing group is a failure; refusals of `--delete` came out of a future; its last line.
    no_group_fails: bool = False
    wraps_group_refusals: bool = True
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


#: What kafka-preferred-replica-election 2.6 says first.
DEPRECATED_ELECTION: Final = (
    "This tool is deprecated. Please use kafka-leader-election tool. Tracking issue: KAFKA-8405"
)
_DEPRECATED: Final = (
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.",
    "Use --bootstrap-server instead to specify a broker to connect to.",
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

V26: Final = Texts(
    version="2.6",
    missing_topic="Topic '{topic}' does not exist as expected",
    config_with_alter='Option combination "[bootstrap-server],[config]" can\'t be used with option "[alter]"',
    format_version_end=".",
    describes_ids=False,
    asks_for_eligible_leaders=False,
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
    topic_logger="kafka.admin.TopicCommand$",
    no_array="Expected JSON array, received {value}",
    log_dir_keys=("logDir", "error", "partitions"),
    broker_dirs_keys=("version", "brokers"),
    zookeeper=ZookeeperTexts(
        reassign_first=("Warning: --zookeeper is deprecated, and will be removed in a future version of Kafka.",),
        election_first=(DEPRECATED_ELECTION, *_DEPRECATED),
        configs_first=_DEPRECATED,
        topic_znode_version=2,
        reads_assignment_late=False,
        topic_created="Created topic {topic}.",
        fixed_topics={name: f"the internal topic {name}" for name in ("__consumer_offsets", "__transaction_state")},
        needs_new_partitions=False,
        topic_config_updated="Updated config for topic {topic}.",
        missing_topic="Topic '{topic}' does not exist as expected",
        describe_fails=True,
        no_leader="none",
        colon=": ",
        marks_partitions=True,
        log_dirs_refused="bootstrap-server needs to be provided when replica reassignments are present.",
        log_dirs_unserved="bootstrap-server needs to be provided when replica reassignments are present.",
        verify_first=(
            "Warning: because you are using the deprecated --zookeeper option, the results may be incomplete.  Use "
            "--bootstrap-server instead for more accurate results.",
        ),
        election_failed='Exception in thread "main" ',
        election_fails_on_stdout=False,
        config_updated="Completed updating config for entity: {entity}.",
    ),
)

assert V26.zookeeper is not None
#: 2.0 asked brokers for the configs of brokers, for groups, log dirs and offsets only.
V20: Final = replace(
    V26,
    version="2.0",
    config_altered="Completed updating config for {kind}: {name}.",
    default_altered="Completed updating default config for {kind}s in the cluster,",
    config_described="Configs for {kind} {name} are:",
    default_described="Default config for {kind}s in the cluster are:",
    conflict_gap="",
    has_help=False,
    asks_brokers=False,
    empty_plan="Partition reassignment data file is empty",
    shows_whole_topics=True,
    throttle_warning=(
        "Warning: You must run Verify periodically, until the reassignment completes, to ensure the throttle is "
        "removed. You can also alter the throttle by rerunning the Execute command passing a new value."
    ),
    started="Successfully started reassignment of partitions.",
    changes_rates="There is an existing assignment running.",
    status_header="Status of partition reassignment: ",
    in_motion="Reassignment of partition {partition} is still in progress",
    completed="Reassignment of partition {partition} completed successfully",
    different="Reassignment of partition {partition} failed",
    mismatch=(
        "ERROR: Assigned replicas ({now}) don't match the list of replicas for reassignment ({target}) for partition "
        "{partition}"
    ),
    waits_for_own=True,
    says_what_it_clears=False,
    reassign_failed="Partitions reassignment failed due to",
    reassign_failed_exit=0,
    zookeeper=replace(
        V26.zookeeper,
        reassign_first=(),
        election_first=(),
        configs_first=(),
        topic_znode_version=1,
        reads_assignment_late=True,
        topic_created='Created topic "{topic}".',
        fixed_topics={"__consumer_offsets": "the offsets topic"},
        needs_new_partitions=True,
        topic_config_updated='Updated config for topic "{topic}".',
        missing_topic="Topic {topic} does not exist on ZK path {zookeeper}",
        describe_fails=False,
        no_leader="-1",
        colon=":",
        marks_partitions=False,
        log_dirs_refused=(
            "bootstrap-server needs to be provided in order to reassign replica to the specified log directory"
        ),
        log_dirs_unserved=(
            "Moves between log directories are not served as 2.0 had them; use --compat 2.6 with --bootstrap-server "
            "alone"
        ),
        verify_first=(),
        election_failed="Failed to start preferred replica election\n",
        election_fails_on_stdout=True,
        config_updated="Completed Updating config for entity: {entity}.",
    ),
)

_MOVED_CLASSES: Final = ("AdminCommandFailedException", "AdminOperationException")
#: The tools of KRaft's time. The cluster's own refusals are in the words of whatever cluster it is.
V41: Final = replace(
    V39,
    version="4.1",
    asks_for_eligible_leaders=True,
    missing_topic="Topic '{topic}' does not exist as expected",
    config_with_alter=(
        'Option combination "[[bootstrap-server], [config]]" can\'t be used with option "[alter]" (To alter topic '
        "configurations, the kafka-configs tool can be used.)"
    ),
    delete_config_ignored=(
        "delete-config option is no longer supported and deprecated since version 4.0. The config will be fully "
        "removed in future releases."
    ),
    version_line="4.1.0",
    newer_parser=True,
    no_server="Please specify either --bootstrap-server or --bootstrap-controller",
    configs_no_server="Either --bootstrap-server or --bootstrap-controller must be specified.",
    configs_missing_name="An entity name must be specified with --alter of {kind}",
    configs_missing_entity=(
        "An entity-name or default entity must be specified with --alter of users, clients, brokers or ips"
    ),
    no_such_entity="The {kind} '{name}' doesn't exist and doesn't have dynamic config.",
    offsets_deleted="Request succeeded for deleting offsets from group {group}.",
    offsets_deleted_in_part="Encountered some partition-level error, see the follow-up details.",
    no_group="The group id does not exist.",
    no_group_fails=True,
    wraps_group_refusals=False,
    deleted_groups_end="",
    offset_row="\n{:<15} {:<10} {:<15}",
    no_partition="-",
    offset_error="Error: {error}",
    configs_types=("topics", "clients", "users", "brokers", "ips", "client-metrics", "groups", "broker-loggers"),
    configs_format=' or  "key=[val1,val2]" to group values which contain commas.',
    offsets_missing_server=None,
    offsets_broker_list=False,
    classes={f"org.apache.kafka.server.common.{name}": f"org.apache.kafka.tools.{name}" for name in _MOVED_CLASSES},
)

#: By what `--compat` takes.
VERSIONS: Final[Mapping[str, Texts]] = {
    "2.0": V20, "2.6": V26, "3.9": V39, "3.9.1": V39, "4.1": V41, "4.1.0": V41,
}  # fmt: skip
