"""The tools of 2.0, 2.6 and 4.1, where they speak otherwise than those of 3.9, and what `--compat` takes. Pure.

Source: spec admin.md; of 4.1 recordings of its tools (tests/admin/recordings/kraft).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from controller.admin.toolkit.texts import V39, Texts, ZookeeperTexts

#: What kafka-preferred-replica-election 2.6 says first.
DEPRECATED_ELECTION: Final = (
    "This tool is deprecated. Please use kafka-leader-election tool. Tracking issue: KAFKA-8405"
)
_DEPRECATED: Final = (
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.",
    "Use --bootstrap-server instead to specify a broker to connect to.",
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
    reset_row_end="\n",
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
    reset_row="{1:<30} {2:<10} {3:<15}",
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
    places_in_stripes=True,
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
    groups_of_4x=True,
    describe_needs="[all-groups], [group]",
    delete_offsets_needs="[topic], [group]",
    no_action_gap=" ",
    reset_row_end="\n",
    deleted_groups_end="",
    offset_row="{:<{width}} {:<10} {:<15}\n",
    no_partition="-",
    offset_error="Error: {error}",
    configs_types=("topics", "clients", "users", "brokers", "ips", "client-metrics", "groups", "broker-loggers"),
    configs_help=(
        "This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip, "
        "client-metrics or group"
    ),
    wants_sensitive=False,
    names_failures_alone=True,
    configs_format=' or  "key=[val1,val2]" to group values which contain commas.',
    offsets_missing_server=None,
    offsets_broker_list=False,
    classes={f"org.apache.kafka.server.common.{name}": f"org.apache.kafka.tools.{name}" for name in _MOVED_CLASSES},
)

#: By what `--compat` takes.
VERSIONS: Final[Mapping[str, Texts]] = {
    "2.0": V20, "2.6": V26, "3.9": V39, "3.9.1": V39, "4.1": V41, "4.1.0": V41,
}  # fmt: skip
