"""Every log event name: `noun.past_verb`, constant, the rest is keys.

Keys carry Kafka's names (`topic`, `partition`, `leader`, `leader_epoch`, `controller_epoch`, ...); a line about
something that was not done has `reason`. Tests assert these names, so a log line leads to its test.
"""

from __future__ import annotations

from typing import Final

# Processes
CONTROLLER_STARTED: Final = "controller.started"
CLUSTER_ID_REMOVED: Final = "controller.cluster_id_removed"
CONTROLLER_STOPPED: Final = "controller.stopped"
BROKER_STARTED: Final = "broker.started"
BROKER_STOPPED: Final = "broker.stopped"
SETTING_IGNORED: Final = "setting.ignored"
SEED_CHOSEN: Final = "seed.chosen"
LIBRARY_WARNED: Final = "library.warned"
#: A task that nobody awaits failed; `consequence` says what follows.
TASK_FAILED: Final = "task.failed"

# Office
CONTROLLER_ELECTED: Final = "controller.elected"
CONTROLLER_NOT_ELECTED: Final = "controller.not_elected"
CONTROLLER_READY: Final = "controller.ready"
CONTROLLER_RESIGNED: Final = "controller.resigned"
CONTROLLER_MOVED: Final = "controller.moved"
CONTROLLER_FAULTED: Final = "controller.faulted"
CONTROLLER_EVENT_PROCESSED: Final = "controller.event_processed"
CONTROLLER_EVENTS_PREEMPTED: Final = "controller.events_preempted"

# State machines
PARTITIONS_TRANSITIONED: Final = "partitions.transitioned"
PARTITION_TRANSITIONED: Final = "partition.transitioned"
REPLICAS_TRANSITIONED: Final = "replicas.transitioned"
REPLICA_TRANSITIONED: Final = "replica.transitioned"
#: At failover: the states that partitions and replicas begin with.
STATES_INITIALIZED: Final = "states.initialized"
PARTITION_ISR_KEPT: Final = "partition.isr_kept"
TRANSITION_REFUSED: Final = "transition.refused"
PARTITION_LEADER_ELECTED: Final = "partition.leader_elected"
#: In the place of one line per partition when many were elected, or left, in one go.
PARTITION_LEADERS_ELECTED: Final = "partition.leaders_elected"
PARTITION_ISRS_REDUCED: Final = "partition.isrs_reduced"
PARTITION_ELECTION_FAILED: Final = "partition.election_failed"
PARTITION_ELECTION_REFUSED: Final = "partition.election_refused"
PARTITION_ISR_REDUCED: Final = "partition.isr_reduced"

# Cluster changes
BROKERS_CHANGED: Final = "brokers.changed"
TOPICS_CHANGED: Final = "topics.changed"
TOPIC_PLACED_ON_CONTROLLER: Final = "topic.placed_on_controller"
REASSIGNMENT_STARTED: Final = "reassignment.started"
REASSIGNMENT_COMPLETED: Final = "reassignment.completed"
REASSIGNMENT_REFUSED: Final = "reassignment.refused"
TOPIC_DELETION_STARTED: Final = "topic.deletion_started"
TOPIC_DELETION_WAITED: Final = "topic.deletion_waited"
TOPIC_DELETED: Final = "topic.deleted"
SHUTDOWN_GRANTED: Final = "shutdown.granted"
LEADERS_BALANCED: Final = "leaders.balanced"

# ZooKeeper
ZOOKEEPER_STARTED: Final = "zookeeper.started"
ZOOKEEPER_STOPPED: Final = "zookeeper.stopped"
ZK_CONNECTED: Final = "zk.connected"
ZK_CONNECTION_LOST: Final = "zk.connection_lost"
ZK_CLIENT_WARNED: Final = "zk.client_warned"
ZK_SESSION_EXPIRED: Final = "zk.session_expired"
ZK_RECONNECT_FAILED: Final = "zk.reconnect_failed"
ZK_WRITE_CONFLICTED: Final = "zk.write_conflicted"
ZK_DATA_REFUSED: Final = "zk.data_refused"
ZK_READ_REFUSED: Final = "zk.read_refused"
ZK_WRITES_REFUSED: Final = "zk.writes_refused"

# Requests
REQUEST_SENT: Final = "request.sent"
REQUEST_FAILED: Final = "request.failed"
REQUEST_REFUSED: Final = "request.refused"
REQUEST_QUEUE_MERGED: Final = "request.queue_merged"
CONNECTION_CLOSED: Final = "connection.closed"
CONNECTION_REFUSED: Final = "connection.refused"

# Brokers
BROKER_KILLED: Final = "broker.killed"
BROKER_START_REFUSED: Final = "broker.start_refused"
BROKER_HALTED: Final = "broker.halted"
BROKER_REGISTERED: Final = "broker.registered"
BROKER_REGISTRATION_FAILED: Final = "broker.registration_failed"
BROKER_REGISTRATION_WAITED: Final = "broker.registration_waited"
BROKER_SHUTDOWN_CONTROLLED: Final = "broker.shutdown_controlled"
BROKER_SHUTDOWN_REFUSED: Final = "broker.shutdown_refused"
LEADER_STARTED: Final = "leader.started"
FOLLOWER_STARTED: Final = "follower.started"
FOLLOWER_NOT_STARTED: Final = "follower.not_started"
REPLICA_STOPPED: Final = "replica.stopped"
ISR_SHRINK_DECIDED: Final = "isr.shrink_decided"
ISR_EXPAND_DECIDED: Final = "isr.expand_decided"
ISR_SHRUNK: Final = "isr.shrunk"
ISR_EXPANDED: Final = "isr.expanded"
ISR_WRITE_REFUSED: Final = "isr.write_refused"
FETCHER_ADDED: Final = "fetcher.added"
FETCHER_REMOVED: Final = "fetcher.removed"
FETCHER_FAILED: Final = "fetcher.failed"
LOG_CREATED: Final = "log.created"
LOG_RECOVERED: Final = "log.recovered"
LOG_TRUNCATED: Final = "log.truncated"
LOG_DELETED: Final = "log.deleted"
REPLICA_PUT_ASIDE: Final = "replica.put_aside"
LOG_CLEANED: Final = "log.cleaned"
LOG_CLEANING_ABORTED: Final = "log.cleaning_aborted"
LOG_MOVE_STARTED: Final = "log.move_started"
LOG_MOVED: Final = "log.moved"
LOG_MOVE_CANCELLED: Final = "log.move_cancelled"
LOG_DIR_FAILED: Final = "log_dir.failed"
CONFIG_CHANGED: Final = "config.changed"
CONFIG_REFUSED: Final = "config.refused"
TOPIC_AUTO_CREATED: Final = "topic.auto_created"
TOPIC_AUTO_CREATION_FAILED: Final = "topic.auto_creation_failed"
GROUP_REBALANCED: Final = "group.rebalanced"
GROUP_LOADED: Final = "group.loaded"
GROUP_UNLOADED: Final = "group.unloaded"
GROUP_WRITE_FAILED: Final = "group.write_failed"
GROUP_RECORD_REFUSED: Final = "group.record_refused"
DESCRIPTORS_EXHAUSTED: Final = "descriptors.exhausted"
FAULT_STARTED: Final = "fault.started"
FAULT_ACTED: Final = "fault.acted"
FAULT_ENDED: Final = "fault.ended"
FAULT_FILE_REFUSED: Final = "fault.file_refused"
