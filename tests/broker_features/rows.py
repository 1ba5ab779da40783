"""What a simulated broker must do, as rows to be tested: the checklist of the specification, rule by rule (section
C1 to C10), and what a broker has to offer besides (D1 to D10).

A row has what must hold, which is what Kafka 3.9 does at inter.broker.protocol.version 2.6, and the tests that show it,
as `path::name` below tests/. The lowest layer that can show a rule stands first.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Row(NamedTuple):
    """One rule."""

    rule: str
    must_hold: str
    tests: tuple[str, ...]


SECTIONS: Final[dict[str, str]] = {
    "C1": "Registration",
    "C2": "ApiVersions, Metadata and the controller's requests",
    "C3": "From the first socket to the registration",
    "C4": "What is kept of a partition",
    "C5": "Followers",
    "C6": "The ISR",
    "C7": "On disk",
    "C8": "Throttles and dynamic configs",
    "C9": "DescribeLogDirs",
    "C10": "The way out",
    "D1": "Control plane besides",
    "D2": "Logs",
    "D3": "Replication, acknowledgements, waiting",
    "D4": "Data plane and groups",
    "D5": "Admin requests",
    "D6": "Faults at run time",
    "D7": "Many brokers in a process",
    "D8": "The trace",
    "D9": "Beside a real Kafka",
    "D10": "Real clients and bad input",
}

_CONTROL = "unit/broker/test_control_requests.py"
_RULES = "unit/replicas/test_control_rules.py"
_START = "unit/broker/test_start_and_metadata.py"
_APIS = "unit/broker/test_broker_apis.py"
_REPLICATION = "unit/replicas/test_replication.py"
_WAITS = "unit/replicas/test_purgatory_and_throttles.py"
_WRITES = "unit/replicas/test_isr_writes.py"
_ISR = "unit/isr/test_isr_rule.py"
_DISK = "unit/broker/test_what_is_on_disk.py"
_HOUSE = "unit/replicas/test_housekeeping.py"
_LOG = "unit/log/test_log.py"
_DIRS = "unit/log/test_dirs.py"
_RECOVERY = "unit/log/test_recovery.py"
_PRODUCED = "unit/log/test_produced.py"
_RECORDS = "unit/wire/test_records.py"
_COMPACTION = "unit/log/test_compaction.py"
_MOVES = "unit/replicas/test_log_dir_moves.py"
_QUOTA = "unit/replicas/test_quota.py"
_SESSION = "unit/replicas/test_fetch_session.py"
_TRACE = "unit/replicas/test_trace_rows.py"
_REPLAY = "unit/replicas/test_trace_replay.py"
_GROUPS = "unit/groups/test_group_states.py"
_CONFIGS = "unit/broker/test_dynamic_configs.py"
_LIMITS = "unit/broker/test_server_limits.py"
_LISTENERS = "unit/broker/test_listeners.py"
_PLANS = "unit/rules/test_listeners.py"
_BAD = "unit/broker/test_broker_bad_input.py"
_SEQUENCES = "unit/broker/test_bad_sequences.py"
_IDEMPOTENCE = "unit/broker/test_idempotence.py"
_RULES_OF_CLIENTS = "unit/broker/test_client_rules.py"
_COORDINATOR = "unit/broker/test_coordinator.py"
_FAULTS = "unit/faults/test_in_force.py"
_ROWS = "unit/faults/test_rows_and_scenarios.py"
_REGISTRATION = "known_failures/test_registration.py"
_CLIENTS = "broker/test_clients.py"
_HIDDEN = "unit/broker/test_clients_never_see_the_controller.py"
_UNREADABLE = "unit/broker/test_unreadable_configs.py"
_STRAYS = "unit/broker/test_stray_replicas.py"
_REAL = "kafka/test_simulated_brokers_under_kafkas_controller.py"
_FILES = "kafka/test_files_are_kafkas.py"


def _row(rule: str, must_hold: str, *tests: str) -> Row:
    return Row(rule, must_hold, tests)


ROWS: Final[dict[str, Row]] = {
    # -- C: the checklist --------------------------------------------------------------------------------------------
    "C1a": _row(
        "one multi: create, then set",
        "the broker epoch is the czxid of the znode that the multi made",
        "zk/test_zk_contract.py::test_the_stat_in_a_registration_multi_tells_the_brokers_epoch",
        f"{_REGISTRATION}::test_the_registration_can_be_read",
        f"{_CONTROL}::test_a_broker_whose_session_expired_registers_again_with_a_new_epoch",
    ),
    "C1b": _row(
        "a new session registers again",
        "the own old znode is replaced, the epoch is a new one; the broker serves on",
        f"{_CONTROL}::test_a_broker_whose_session_expired_registers_again_with_a_new_epoch",
        f"{_REGISTRATION}::test_the_own_old_registration_is_replaced_and_never_vanishes",
        f"{_REGISTRATION}::test_a_registration_that_vanishes_between_two_looks_is_made_again",
    ),
    "C1c": _row(
        "an id or an address that is taken",
        "another owner's znode is left alone and the start refused",
        f"{_CONTROL}::test_a_second_broker_with_the_same_id_is_refused",
        f"{_REGISTRATION}::test_a_refused_twin_leaves_the_registration_alone",
        f"{_REGISTRATION}::test_a_foreign_registration_is_refused_after_a_lost_session",
        "broker/test_broker_process.py::test_it_says_why_it_cannot_start",
    ),
    "C1d": _row(
        "what is registered",
        "the advertised address of every listener, in order",
        f"{_LISTENERS}::test_all_advertised_listeners_are_registered",
        f"{_PLANS}::test_what_is_bound_and_told",
        f"{_PLANS}::test_brokers_and_controllers_refuse_the_same_with_the_same_words",
    ),
    "C2a": _row(
        "ApiVersions",
        "tells the table of what is served; an unknown version gets the range in the shape of version 0; names of "
        "clients are checked",
        f"{_APIS}::test_api_versions_tells_the_table",
        f"{_APIS}::test_every_version_offered_has_a_schema",
        f"{_BAD}::test_an_unsupported_version_of_api_versions_gets_the_range_in_version_0",
    ),
    "C2b": _row(
        "broker epoch, then controller epoch",
        "an older broker epoch is 77 before an older controller epoch is 11; -1 and newer ones pass; one highest "
        "controller epoch for the three requests",
        f"{_CONTROL}::test_epochs",
        "known_failures/test_broker_side.py::test_an_epoch_is_adopted_only_with_its_transition",
    ),
    "C2c": _row(
        "LeaderAndIsr, partition by partition",
        "offline (56), then the leader epoch (11 if not newer), then the replicas (3), then the state's version",
        f"{_RULES}::test_leader_and_isr",
        f"{_REPLICATION}::test_leader_and_isr_is_classified_by_its_leader_epoch",
    ),
    "C2d": _row(
        "StopReplica, partition by partition",
        "offline (56), then the leader epoch (74 if older; -1 and -2 pass); deleted or kept as asked; a log without a "
        "partition is deleted, too",
        f"{_RULES}::test_stop_replica",
        f"{_REPLICATION}::test_stop_replica",
        "known_failures/test_broker_side.py::test_a_late_stop_and_a_late_appointment_change_nothing",
    ),
    "C2e": _row(
        "UpdateMetadata",
        "live brokers are replaced, partitions merged, those in deletion removed with their committed offsets",
        f"{_CONTROL}::test_update_metadata_merges_topics_and_replaces_brokers",
        f"{_START}::test_offsets_of_a_deleted_topic_go",
        "unit/broker/test_metadata_decoding.py::test_a_request_is_what_was_sent_whoever_got_the_same_before",
    ),
    "C2f": _row(
        "Metadata",
        "leaders that are dead or none (5), listeners that a leader lacks (72, before version 6 5), offline replicas, "
        "the addresses of the asker's listener",
        f"{_CONTROL}::test_a_partition_whose_leader_is_dead_is_said_to_have_none",
        f"{_START}::test_a_partition_without_a_leader_stays_in_the_metadata",
        f"{_RULES_OF_CLIENTS}::test_the_oldest_metadata_leaves_dead_brokers_out_and_says_so",
        f"{_RULES_OF_CLIENTS}::test_what_update_metadata_names_counts_and_not_who_answers",
        f"{_LISTENERS}::test_each_listener_tells_its_own_addresses",
    ),
    "C3a": _row(
        "a socket before the registration",
        "requests wait in order until the broker serves, and are answered then",
        f"{_START}::test_a_socket_is_open_before_the_registration_and_what_comes_in_waits",
        f"{_CONTROL}::test_a_request_before_the_broker_serves_waits_in_order",
    ),
    "C3b": _row(
        "before the first UpdateMetadata",
        "no brokers, no controller; who is to follow gets a log and waits",
        f"{_CONTROL}::test_before_the_first_update_metadata_there_is_no_broker_and_no_controller",
        f"{_START}::test_a_follower_waits_for_update_metadata",
    ),
    "C3c": _row(
        "logs that are there already",
        "are loaded and not served (3, or 6 once the metadata knows them) before a LeaderAndIsr names them",
        f"{_DISK}::test_a_log_that_is_there_is_not_served_until_the_controller_says_so",
    ),
    "C4a": _row(
        "leader, epochs, versions",
        "a newer leader epoch takes effect, an older or equal one does not; ISR writes carry the remembered ones",
        f"{_RULES}::test_leader_and_isr",
        f"{_WRITES}::test_a_state_is_written_under_its_version",
    ),
    "C4b": _row(
        "epoch cache",
        "epochs and their start offsets, cut at either end; a file of Kafka's format",
        "unit/log/test_leader_epochs.py::test_end_offset_for",
        "unit/log/test_leader_epochs.py::test_assign",
        "unit/log/test_leader_epochs.py::test_entries_rise_and_lookups_agree_with_the_definition",
        "unit/log/test_leader_epochs.py::test_the_file_in_kafkas_format",
    ),
    "C4c": _row(
        "start, end and high watermark",
        "0 <= start <= high watermark <= end over restarts, cuts and moves",
        f"{_LOG}::test_the_log_start_bounds_reads_and_survives_as_a_checkpoint",
        f"{_ISR}::test_whatever_happens_the_leader_stays_in_and_the_high_watermark_never_falls",
        f"{_MOVES}::test_a_replica_moves_with_all_it_has_while_it_is_written_to",
    ),
    "C5a": _row(
        "real Fetch requests between brokers",
        "records travel; what replicates uses the listener between brokers",
        f"{_REPLICATION}::test_acks_all_is_answered_when_every_member_has_the_records",
        f"{_LISTENERS}::test_a_broker_follows_on_the_listener_between_brokers",
        f"{_REAL}::test_a_real_leader_and_simulated_followers",
    ),
    "C5b": _row(
        "truncation by leader epoch before fetching",
        "what was never committed is cut at the point that the epochs tell",
        f"{_QUOTA}::test_truncation_point",
        f"{_REPLICATION}::test_a_new_leader_makes_followers_cut_what_was_never_committed",
    ),
    "C5c": _row(
        "fetch sessions",
        "full, incremental, forgotten partitions, errors 70 and 71, eviction",
        f"{_SESSION}::test_a_full_fetch_opens_a_session_and_gets_everything",
        f"{_SESSION}::test_an_incremental_answer_has_what_changed",
        f"{_SESSION}::test_forgotten_partitions_go_and_named_ones_are_added",
        f"{_SESSION}::test_a_request_of_no_such_session_is_refused",
        f"{_SESSION}::test_a_full_cache_gives_no_session_but_an_answer",
        f"{_SESSION}::test_a_follower_takes_the_place_of_a_client",
    ),
    "C5d": _row(
        "a leader that goes",
        "its followers go on with the next one",
        f"{_REPLICATION}::test_a_fetcher_whose_leader_dies_goes_on_with_the_next_one",
        f"{_CONFIGS}::test_followers_go_on_after_the_number_of_fetchers_changed",
    ),
    "C6a": _row(
        "who is in sync",
        "removed after replica.lag.time.max.ms behind, never at the leader's end; back at the high watermark and the "
        "start of the epoch",
        f"{_ISR}::test_the_worked_example_of_the_specification_step_by_step",
        f"{_ISR}::test_a_silent_follower_at_the_end_stays_until_an_append",
        f"{_ISR}::test_after_an_epoch_bump_an_outsider_must_reach_the_start_of_the_epoch",
        f"{_REPLICATION}::test_a_silent_follower_leaves_the_isr_and_returns",
    ),
    "C6b": _row(
        "writes under the version",
        "another hand's state is not overwritten; an own write whose answer was lost counts; a missing node fails",
        f"{_WRITES}::test_a_state_is_written_under_its_version",
    ),
    "C6c": _row(
        "a refused write",
        "stays pending until the next LeaderAndIsr, and the high watermark with it",
        f"{_REPLICATION}::test_a_refused_isr_write_stays_pending_until_the_next_leader_and_isr",
    ),
    "C6d": _row(
        "notices to the controller, batched",
        "looked at every 2.5 s; sent after 5 quiet seconds, or a minute after the last one",
        f"{_WRITES}::test_notices_are_batched",
        f"{_WRITES}::test_a_notice_lists_the_partitions",
    ),
    "C7a": _row(
        "checkpoints",
        "high watermarks every 5 s from the first LeaderAndIsr on; all of them and the marker at a clean stop",
        f"{_DISK}::test_the_high_watermark_is_written_every_five_seconds_from_the_first_leader_on",
        f"{_DISK}::test_a_clean_stop_leaves_the_marker_and_every_checkpoint",
        f"{_HOUSE}::test_closed_segments_are_flushed_before_the_recovery_point_says_so",
    ),
    "C7b": _row(
        "Kafka's own files",
        "Kafka's tools read what is written, and both kinds of brokers take turns on one dir",
        f"{_DIRS}::test_kafkas_own_meta_properties_are_read",
        f"{_FILES}::test_dump_log_reads_every_file_of_a_simulated_broker",
        f"{_FILES}::test_real_and_simulated_brokers_take_turns_on_one_log_dir",
    ),
    "C8a": _row(
        "Kafka's rate",
        "bytes of the retained samples over the time since the oldest; exceeded means above",
        f"{_QUOTA}::test_rate_is_kafkas",
        f"{_QUOTA}::test_rate_is_what_went_lately_over_the_time_it_took",
        f"{_QUOTA}::test_exceeded_means_above_the_bound",
    ),
    "C8b": _row(
        "dynamic configs by change notices",
        "of topics and of brokers, own before default, until taken back; a new session reads what it missed",
        f"{_CONFIGS}::test_it_counts_for_one_broker_or_for_all_until_it_is_taken_back",
        f"{_APIS}::test_an_altered_topic_config_counts_once_the_notice_is_processed_and_is_described",
        f"{_APIS}::test_a_new_session_reads_the_notices_that_came_meanwhile",
    ),
    "C8c": _row(
        "configs that cannot be read",
        "are never taken for empty: what is in force stays, a partition of such a topic is hosted once they can be "
        "read",
        f"{_UNREADABLE}::test_a_partition_is_hosted_once_its_topics_configs_can_be_read",
        f"{_UNREADABLE}::test_a_change_that_cannot_be_read_leaves_what_is_in_force_and_is_asked_again",
        f"{_UNREADABLE}::test_an_alteration_does_not_write_over_what_it_could_not_read",
    ),
    "C9a": _row(
        "sizes and lags are those on disk",
        "each dir once, also without what is asked for; sizes of the segments; future logs with what they lack",
        f"{_DISK}::test_describe_log_dirs_says_what_lies_there",
        f"{_DISK}::test_describe_log_dirs_shows_a_future_replica_and_a_dir_that_failed",
        f"{_MOVES}::test_a_replica_moves_with_all_it_has_while_it_is_written_to",
    ),
    "C10a": _row(
        "ControlledShutdown, again and again",
        "asked at most three times with a pause between; done when no error and no partition is left",
        "unit/broker/test_controlled_shutdown.py::test_attempts",
    ),
    "C10b": _row(
        "clean and unclean ends",
        "after either the records are there; ZooKeeper loses the registration last, or when the session ends",
        f"{_APIS}::test_a_broker_stops_cleanly_and_starts_again_with_its_records",
        f"{_FAULTS}::test_a_killed_broker_dies_for_zookeeper_later_and_comes_back_when_the_row_ends",
        f"{_REPLICATION}::test_a_restarted_broker_has_its_log_and_catches_up",
    ),
    # -- D: what else a broker offers --------------------------------------------------------------------------------
    "D1a": _row(
        "logs for new partitions",
        "created when new or when every dir is online, else 56: it may be on the failed disk",
        f"{_RULES}::test_a_log_is_created_unless_it_may_be_on_a_failed_disk",
        f"{_DIRS}::test_a_new_log_goes_where_the_fewest_are",
    ),
    "D1b": _row(
        "leaders that are not alive",
        "the log is made, the epoch stays, the answer is no error",
        f"{_RULES}::test_leader_and_isr",
        f"{_REPLICATION}::test_a_follower_of_an_unknown_leader_keeps_its_epoch_but_gets_its_log",
    ),
    "D1c": _row(
        "a log dir that fails",
        "its partitions are offline, others are served; the controller is told; the last one halts the broker",
        f"{_REPLICATION}::test_a_failed_log_dir_takes_its_partitions_offline_and_no_other",
        f"{_REPLICATION}::test_an_io_error_at_an_append_fails_the_dir",
        f"{_APIS}::test_a_failed_log_dir_is_told_to_the_controller_and_the_last_one_halts_the_broker",
        f"{_APIS}::test_old_fetchers_are_sent_away_from_a_failed_log_dir_and_new_ones_are_told",
        f"{_FAULTS}::test_a_failed_disk_is_still_failed_at_the_next_start",
    ),
    "D1d": _row(
        "restart from files",
        "clean: as it was; unclean: what is above the recovery point is checked and cut at the first damage",
        f"{_DIRS}::test_logs_and_checkpoints_come_back",
        f"{_RECOVERY}::test_only_what_is_above_the_recovery_point_is_checked",
        f"{_RECOVERY}::test_a_disk_that_fails_at_any_step_loses_nothing_that_was_written",
        "broker/test_kills_lose_nothing.py::test_records_acknowledged_by_all_survive_a_kill_or_two",
    ),
    "D2a": _row(
        "segments and indexes",
        "reads and lookups by offset and time agree with a linear scan, over any start",
        f"{_LOG}::test_reads_agree_with_a_linear_scan",
        f"{_LOG}::test_lookups_by_time_agree_with_a_linear_scan",
        f"{_LOG}::test_indexes_point_at_the_batches_and_survive_a_clean_and_an_unclean_start",
    ),
    "D2b": _row(
        "rolling",
        "by size, by age with jitter, by a full index, by the range of relative offsets",
        "unit/log/test_rolling.py::test_a_batch_goes_to_a_new_segment",
        f"{_LOG}::test_a_log_rolls_by_size_age_and_full_index",
    ),
    "D2c": _row(
        "retention",
        "whole segments from the start, by time and size, renamed and removed after the delay",
        f"{_LOG}::test_retention_deletes_whole_segments_from_the_start",
        f"{_HOUSE}::test_old_segments_are_renamed_and_removed_after_the_delay",
    ),
    "D2d": _row(
        "truncation",
        "agrees with a list; checkpoints on disk never claim what was cut",
        f"{_LOG}::test_truncation_agrees_with_a_list",
        f"{_RECOVERY}::test_a_flush_raises_the_recovery_point_and_a_cut_lowers_it_on_disk_too",
    ),
    "D2e": _row(
        "several dirs",
        "placed by count; locked; of one broker and one cluster; one that cannot be read is offline",
        f"{_DIRS}::test_a_new_log_goes_where_the_fewest_are",
        f"{_DIRS}::test_a_dir_in_use_is_refused",
        f"{_DIRS}::test_a_dir_of_another_broker_or_cluster_is_refused",
        f"{_DIRS}::test_a_dir_that_cannot_be_read_is_offline_and_the_others_serve",
    ),
    "D2f": _row(
        "moves between dirs",
        "copied under a throttle while written to, swapped, resumed, cancelled, refused in Kafka's order",
        f"{_MOVES}::test_a_replica_moves_with_all_it_has_while_it_is_written_to",
        f"{_MOVES}::test_the_rate_is_kept",
        f"{_MOVES}::test_a_move_goes_on_after_a_restart_from_where_it_was",
        f"{_MOVES}::test_a_move_is_given_up_when_another_dir_is_asked_for",
        f"{_MOVES}::test_what_cannot_be_moved_is_refused_in_kafkas_order",
        "broker/test_log_dir_moves.py::test_the_reassignment_tool_moves_a_replica_to_another_dir",
    ),
    "D2g": _row(
        "a torn tail, a flipped byte",
        "cut to the last whole batch before it, at every byte; later segments go",
        f"{_LOG}::test_a_torn_tail_at_every_byte_is_cut_to_the_last_whole_batch",
        f"{_LOG}::test_a_flipped_byte_anywhere_ends_an_unclean_log_before_its_batch",
        f"{_LOG}::test_segments_after_a_corrupt_one_are_removed",
    ),
    "D2h": _row(
        "damaged indexes, checkpoints, snapshots",
        "rebuilt or taken for missing, and told",
        f"{_LOG}::test_a_damaged_index_is_rebuilt_even_after_a_clean_stop",
        f"{_RECOVERY}::test_a_damaged_checkpoint_counts_as_none_and_is_told",
        f"{_RECOVERY}::test_a_damaged_epoch_file_is_rebuilt_and_told",
        f"{_RECOVERY}::test_a_damaged_snapshot_is_removed_and_an_earlier_one_used",
        f"{_RECOVERY}::test_a_swap_that_was_cut_off_anywhere_is_undone_or_completed",
    ),
    "D2i": _row(
        "a full disk",
        "the record is refused and the dir goes offline; the trace ends and not the broker",
        f"{_HOUSE}::test_a_full_disk_refuses_the_record_and_takes_the_dir_offline",
        f"{_HOUSE}::test_a_disk_that_fails_in_a_flush_is_taken_offline",
        f"{_REPLAY}::test_a_full_disk_ends_the_trace_and_not_the_broker",
    ),
    "D2j": _row(
        "compaction",
        "the newest record of each key stays; tombstones for their time; nothing is lost at any step",
        f"{_COMPACTION}::test_the_newest_record_of_each_key_stays_at_its_offset_and_no_key_is_twice_below_the_end",
        f"{_COMPACTION}::test_tombstones_stay_until_their_time_is_over",
        f"{_COMPACTION}::test_a_disk_that_fails_at_any_step_of_a_compaction_loses_nothing",
        f"{_HOUSE}::test_a_compacted_topic_is_compacted_by_and_by",
    ),
    "D2k": _row(
        "replicas that nobody assigned to it",
        "are renamed to `-stray` with all they hold, if ZooKeeper has this broker neither in the assignment nor in the "
        "ISR",
        f"{_STRAYS}::test_a_replica_that_was_moved_away_without_a_word_is_put_aside",
        f"{_STRAYS}::test_a_replica_of_a_topic_that_was_deleted_while_its_broker_was_away_is_put_aside",
        f"{_STRAYS}::test_a_replica_stays_while",
        f"{_STRAYS}::test_what_cannot_be_read_condemns_nothing",
    ),
    "D3a": _row(
        "acks 0, 1 and all",
        "answered by none, by the leader's append, by all of the ISR",
        f"{_REPLICATION}::test_acks_all_is_answered_when_every_member_has_the_records",
        f"{_SEQUENCES}::test_damaged_batches_get_an_error_or_are_stored_whole",
        f"{_CLIENTS}::test_what_all_produce_each_reads",
    ),
    "D3b": _row(
        "min.insync.replicas",
        "refuses acks=all before the append; below it the high watermark stands still",
        f"{_REPLICATION}::test_min_insync_replicas_refuses_acks_all_only",
        f"{_ISR}::test_below_min_insync_replicas_the_high_watermark_stands_still_since_37",
        f"{_REPLICATION}::test_a_changed_min_isr_counts_at_once_and_stands_in_the_trace",
    ),
    "D3c": _row(
        "waits that end by time",
        "producers (7, the records stay), consumers (empty), deletions (7)",
        f"{_REPLICATION}::test_acks_all_times_out_while_a_member_is_silent",
        f"{_WAITS}::test_below_min_insync_replicas_a_producer_waits_for_its_time_out_and_its_records_stay",
        f"{_REPLICATION}::test_a_consumer_waits_for_committed_records_only",
        f"{_WAITS}::test_records_that_one_replica_keeps_let_their_deletion_time_out",
    ),
    "D3d": _row(
        "waits that end at once",
        "when leadership moves, a replica is deleted or a disk fails",
        f"{_REPLICATION}::test_a_waiting_producer_learns_that_leadership_moved",
        f"{_WAITS}::test_who_waits_learns_at_once_what_became_of_the_partition",
        f"{_WAITS}::test_a_deletion_that_waits_learns_that_leadership_moved",
        f"{_APIS}::test_requests_that_wait_in_a_group_are_answered_when_the_coordinator_moves",
    ),
    "D3e": _row(
        "throttled leaders",
        "answer without records above the rate, never members of the ISR, whose bytes count; consumers never",
        f"{_REPLICATION}::test_a_throttled_new_replica_copies_at_about_the_rate",
        f"{_WAITS}::test_a_leader_never_holds_up_members_of_the_isr_but_counts_their_bytes",
        f"{_WAITS}::test_a_throttled_fetch_of_a_replica_outside_the_isr_is_recorded_and_waits",
    ),
    "D3f": _row(
        "throttled followers",
        "leave out what is behind above the rate, never what is in sync",
        f"{_REPLICATION}::test_a_throttled_follower_leaves_out_what_is_not_in_sync",
        f"{_WAITS}::test_a_follower_goes_on_with_what_is_in_sync_though_its_rate_is_exceeded",
        f"{_QUOTA}::test_throttled_replicas",
    ),
    "D3g": _row(
        "refused fetches",
        "beyond the end (1), older (74) and newer (75) epochs, no replica (75 or 6)",
        f"{_REPLICATION}::test_a_fetch_is_refused",
    ),
    "D4a": _row(
        "Metadata makes missing topics",
        "where asked and allowed, with Kafka's errors",
        f"{_APIS}::test_metadata_creates_a_missing_topic_where_that_is_allowed",
    ),
    "D4b": _row(
        "Produce",
        "what may not be sent is refused as in Kafka; sizes before checksums; four codecs pass through",
        f"{_PRODUCED}::test_a_client_may_not_send",
        f"{_RULES_OF_CLIENTS}::test_produce",
        f"{_PRODUCED}::test_sizes_are_checked_before_the_checksum_and_the_segment_last",
        f"{_PRODUCED}::test_a_batch_passes_through_unless_the_topic_wants_another_codec",
        f"{_CLIENTS}::test_a_record_that_is_too_large_is_refused_and_the_next_one_is_not",
    ),
    "D4c": _row(
        "ListOffsets, OffsetForLeaderEpoch",
        "by time and for the times that are none; none while the high watermark is not known (78); ends of epochs",
        f"{_RULES_OF_CLIENTS}::test_the_newest_offset_of_a_leader_that_does_not_know_it_yet",
        f"{_RULES_OF_CLIENTS}::test_a_partition_named_twice_has_no_offset",
        f"{_APIS}::test_times_that_are_none_are_known_since_their_version",
        f"{_CLIENTS}::test_offsets_by_time",
        "unit/log/test_leader_epochs.py::test_end_offset_for_at_the_edges",
    ),
    "D4d": _row(
        "idempotent producers",
        "ids from blocks; five batches remembered; over new leaders and restarts",
        f"{_IDEMPOTENCE}::test_five_in_flight_are_stored_once_however_often_they_are_sent",
        f"{_IDEMPOTENCE}::test_a_new_leader_knows_what_the_old_one_stored",
        f"{_IDEMPOTENCE}::test_a_restarted_broker_knows_what_it_stored",
        f"{_LOG}::test_an_idempotent_batch_sent_twice_is_stored_once",
        f"{_APIS}::test_describe_log_dirs_shows_each_dir_and_producer_ids_differ",
    ),
    "D4e": _row(
        "DeleteRecords",
        "answered once all replicas have; beyond the end refused; times out",
        f"{_REPLICATION}::test_records_are_deleted_on_all_replicas_before_the_answer",
        f"{_WAITS}::test_records_that_one_replica_keeps_let_their_deletion_time_out",
    ),
    "D4f": _row(
        "finding a coordinator",
        "Java's partition of the group; the topic is made compacted when brokers suffice",
        f"{_GROUPS}::test_a_group_lives_where_java_puts_it",
        f"{_COORDINATOR}::test_the_topic_of_offsets_is_made_compacted_once_there_are_brokers_enough",
    ),
    "D4g": _row(
        "joining, syncing, beating, leaving",
        "what is checked before all, in order; the specification's timeline; refusals; every request is answered once",
        f"{_GROUPS}::test_the_timeline_of_the_specification",
        f"{_RULES_OF_CLIENTS}::test_groups_are_checked_in_order",
        f"{_RULES_OF_CLIENTS}::test_session_timeouts_have_bounds",
        f"{_GROUPS}::test_while_the_assignment_is_awaited_members_beat_and_may_not_commit",
        f"{_GROUPS}::test_joins_that_are_refused",
        f"{_GROUPS}::test_a_member_that_never_syncs_is_removed",
        f"{_GROUPS}::test_whatever_happens_every_request_is_answered_once_in_the_end",
    ),
    "D4h": _row(
        "static members",
        "return without a rebalance, fence their old selves, stay until their session ends, leave by instance",
        f"{_GROUPS}::test_a_static_member_that_returns_without_its_id_does_not_rebalance",
        f"{_GROUPS}::test_a_static_member_that_returns_before_the_assignment_fences_its_old_self",
        f"{_GROUPS}::test_a_static_member_that_does_not_rejoin_stays_until_its_session_ends",
        f"{_GROUPS}::test_a_static_member_leaves",
        f"{_GROUPS}::test_a_returning_static_member_is_told_of_its_new_id_once_that_is_stored",
        "broker/test_client_groups.py::test_a_static_member_comes_back_to_its_partitions_without_a_rebalance",
    ),
    "D4i": _row(
        "offsets",
        "who may commit; they survive a move of the coordinator and go after their retention",
        f"{_GROUPS}::test_who_may_commit",
        f"{_RULES_OF_CLIENTS}::test_what_cannot_be_committed_does_not_keep_the_rest",
        f"{_APIS}::test_groups_and_offsets_move_with_their_partition",
        f"{_APIS}::test_offsets_and_empty_groups_go_after_their_retention",
    ),
    "D4j": _row(
        "OffsetDelete",
        "subscribed topics (86), unknown partitions (3), other groups with members (68), none (69); the last one ends "
        "an empty group",
        f"{_START}::test_offsets_of_topics_that_members_subscribe_to_are_not_deleted",
        f"{_START}::test_offsets_of_a_group_that_is_no_consumers_stay_while_it_has_members",
        f"{_APIS}::test_an_empty_group_dies_with_its_last_offset",
    ),
    "D4k": _row(
        "describing, listing and deleting groups",
        "states and types; a group with members is not deleted",
        f"{_APIS}::test_groups_and_offsets_move_with_their_partition",
    ),
    "D4l": _row(
        "assignors of clients",
        "range, round-robin, sticky and cooperative-sticky of real clients",
        "broker/test_client_groups.py::test_members_share_crash_and_leave",
    ),
    "D4m": _row(
        "transactions",
        "refused at once, by name, wherever a client may ask",
        f"{_COORDINATOR}::test_transactions_and_unknown_keys_have_no_coordinator",
        f"{_COORDINATOR}::test_a_transactional_id_gets_no_producer_id",
        f"{_CLIENTS}::test_transactions_are_refused_at_once_by_name",
    ),
    "D4n": _row(
        "how much a fetch returns",
        "whole batches within the limits of a partition and of all; one at least, since version 3",
        f"{_WAITS}::test_a_fetch_keeps_to_its_limits",
    ),
    "D5a": _row(
        "only the controller",
        "topics, partitions, elections and reassignments are forwarded to a controller that is no broker, found again "
        "when it moves; NOT_CONTROLLER where the time is over or a broker of Kafka is the controller",
        f"{_HIDDEN}::test_a_request_is_forwarded_and_answered_as_the_controller_did",
        f"{_HIDDEN}::test_a_controller_that_moves_is_found_again_within_the_time",
        f"{_HIDDEN}::test_a_broker_of_kafka_that_is_the_controller_is_seen_and_nothing_is_forwarded",
        f"{_APIS}::test_only_the_controller_creates_topics",
    ),
    "D5b": _row(
        "configs",
        "of topics anywhere, of brokers at themselves; refused in Kafka's words, written with a notice",
        f"{_APIS}::test_altering_configs",
        f"{_CONFIGS}::test_what_cannot_change_is_refused_in_kafkas_words",
        f"{_CONFIGS}::test_a_topics_own_setting_counts_more_than_its_brokers",
    ),
    "D5c": _row(
        "DescribeCluster",
        "brokers by the asker's listener; a controller that is no broker is neither listed nor named",
        f"{_HIDDEN}::test_brokers_are_listed_without_it_and_name_themselves",
        f"{_HIDDEN}::test_controllers_are_not_described_by_a_broker",
        f"{_LISTENERS}::test_each_listener_tells_its_own_addresses",
        f"{_CLIENTS}::test_what_an_admin_client_asks_for",
    ),
    "D5d": _row(
        "AlterReplicaLogDirs",
        "unknown dirs (57), absent replicas (9, and the wish is remembered)",
        f"{_MOVES}::test_what_cannot_be_moved_is_refused_in_kafkas_order",
        f"{_REPLICATION}::test_a_replica_that_does_not_exist_yet_goes_to_the_dir_asked_for",
    ),
    "D6a": _row(
        "each kind, from start to end",
        "logged when it starts, acts and ends",
        "unit/broker/test_faults_are_logged.py::test_a_fault_is_logged_when_it_starts_acts_and_ends",
        f"{_FAULTS}::test_what_happens_to_a_whole_broker_is_logged_when_it_starts_acts_and_ends",
        "unit/broker/test_faults_are_logged.py::test_every_kind_has_its_row",
        f"{_FAULTS}::test_what_acts_all_the_time_is_told_now_and_then_with_how_often",
    ),
    "D6b": _row(
        "paused followers, requests dropped, delayed or answered wrongly",
        "while the row is in force, and not after",
        f"{_APIS}::test_faults_drop_delay_and_pause",
        f"{_FAULTS}::test_which_requests_are_struck",
    ),
    "D6c": _row(
        "slow and cut",
        "disks queue their turns, links delay each direction and share their rate; cut ones refuse",
        f"{_FAULTS}::test_turns_of_a_slow_disk_wait_for_each_other_and_dirs_do_not",
        f"{_FAULTS}::test_a_slow_link_delays_both_directions_and_shares_its_rate",
        f"{_FAULTS}::test_a_cut_link_breaks_what_is_open_and_refuses_what_is_new",
    ),
    "D6d": _row(
        "kills, stops, sessions, disks, racks",
        "each in its window, undone when the row ends",
        f"{_FAULTS}::test_a_killed_broker_dies_for_zookeeper_later_and_comes_back_when_the_row_ends",
        f"{_FAULTS}::test_a_whole_rack_stops_in_order_and_returns",
        f"{_FAULTS}::test_an_expired_session_is_followed_by_a_new_registration_once",
        f"{_FAULTS}::test_a_failed_disk_is_still_failed_at_the_next_start",
    ),
    "D6e": _row(
        "scenario files and the command",
        "checked whole before anything is in force; a file's rows follow it",
        f"{_ROWS}::test_a_scenario_is_steps_in_the_order_of_their_begin",
        f"{_ROWS}::test_a_wrong_scenario_is_refused_with_file_line_and_fault",
        "unit/faults/test_documented.py::test_a_command_parses",
        "broker/test_broker_process.py::test_faults_follow_their_file_and_sigterm_stops_it_without_a_controller",
    ),
    "D7a": _row(
        "several ids in a process",
        "each with its folder, rack and ports; one may go and come back without the others",
        "unit/broker/test_broker_command_line.py::test_each_of_several_brokers_gets_a_folder_in_each_log_dir",
        f"{_PLANS}::test_several_listeners_of_several_brokers_count_up_each",
        f"{_FAULTS}::test_when_one_cannot_start_none_is_left",
        "zk/test_shared_processes.py::test_brokers_of_one_process_go_down_and_come_up_one_by_one",
    ),
    "D8a": _row(
        "the rows of the trace",
        "every kind with its columns, numbered, in order of time; a kill loses the last line at most",
        f"{_TRACE}::test_each_kind_comes_with_its_columns",
        f"{_TRACE}::test_rows_are_numbered_and_in_order_of_time",
        f"{_REPLAY}::test_every_change_and_high_watermark_follows_from_the_trace",
        f"{_REPLAY}::test_sigkill_loses_at_most_the_last_line",
    ),
    "D9a": _row(
        "Kafka's own controller",
        "kills, moves, shutdowns, deletions and mixed clusters under it, without a complaint",
        f"{_REAL}::test_a_topic_survives_a_killed_broker",
        f"{_REAL}::test_a_reassignment",
        f"{_REAL}::test_controlled_shutdown",
        f"{_REAL}::test_partitions_are_added_and_the_topic_is_deleted",
        f"{_REAL}::test_kafkas_controller_has_no_complaint",
    ),
    "D9b": _row(
        "answers beside a real broker's",
        "field by field",
        "kafka/test_answers_are_kafkas.py::test_the_answers_are_kafkas",
    ),
    "D10a": _row(
        "clients as they come",
        "confluent-kafka, kafka-python, aiokafka and Java's produce, consume and rebalance, through kills",
        "broker/test_real_clients.py::test_confluent_kafka_creates_produces_and_consumes_by_group_with_a_rebalance",
        "broker/test_real_clients.py::test_kafka_python_creates_produces_and_consumes_by_group",
        "broker/test_clients_through_kills.py::test_what_was_acknowledged_is_read_once_and_in_order",
        f"{_REAL}::test_javas_clients",
    ),
    "D10b": _row(
        "bytes that are no requests",
        "truncated, oversize, negative, unknown: their connection is closed with a reason, no other notices",
        f"{_BAD}::test_it_closes_the_connection_and_says_why",
        f"{_BAD}::test_garbage_of_any_kind_never_stops_the_broker",
        f"{_SEQUENCES}::test_what_one_connection_sends_does_not_reach_another",
        f"{_SEQUENCES}::test_a_connection_is_refused_a_version_and_no_other_notices",
    ),
    "D10c": _row(
        "batches that are none",
        "wrong checksums, arbitrary bytes, bombs: refused, never stored in part",
        f"{_PRODUCED}::test_arbitrary_bytes_are_refused",
        f"{_RECORDS}::test_any_flipped_bit_after_the_magic_is_noticed",
        f"{_RECORDS}::test_few_bytes_do_not_become_very_many",
        f"{_SEQUENCES}::test_damaged_batches_get_an_error_or_are_stored_whole",
    ),
    "D10d": _row(
        "group requests in any order",
        "are answered, and the next group works",
        f"{_SEQUENCES}::test_group_requests_in_any_order_are_answered_and_the_next_group_works",
    ),
    "D10e": _row(
        "limits of connections",
        "max.connections, per address, per listener, per second: who finds no slot waits, beyond a backlog it is "
        "closed; brokers get in",
        f"{_LIMITS}::test_who_gets_a_slot",
        f"{_LIMITS}::test_connections_above_the_limit_wait_and_more_than_a_backlog_are_closed",
        f"{_LIMITS}::test_a_lowered_limit_closes_those_that_were_silent_longest",
        f"{_LIMITS}::test_one_address_cannot_take_the_places_of_the_others",
        f"{_LIMITS}::test_the_rate_of_new_connections",
        f"{_LISTENERS}::test_a_listener_may_have_limits_of_its_own_at_the_start_and_later",
        f"{_LISTENERS}::test_a_limit_of_a_listener_that_cannot_be_is_refused",
        f"{_LISTENERS}::test_a_limit_of_a_listener_is_described_with_what_it_stands_above",
        f"{_LISTENERS}::test_brokers_get_in_although_clients_have_taken_all_connections",
    ),
    "D10f": _row(
        "slow peers and floods",
        "who says nothing or reads nothing is cut off; requests wait for memory",
        f"{_LIMITS}::test_a_peer_that_says_nothing_is_cut_off_and_one_that_trickles_is_not",
        f"{_BAD}::test_a_client_that_takes_no_answers_is_cut_off",
        f"{_LIMITS}::test_requests_wait_for_memory_and_then_are_served",
        f"{_LIMITS}::test_memory_is_never_above_its_limit_but_for_one_request_and_all_is_given_back",
    ),
}
