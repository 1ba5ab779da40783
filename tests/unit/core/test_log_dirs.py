"""What brokers say of their log directories: of each replica the last word counts, and of each by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.core.effects import Send, Steps
from controller.core.request_batch import send_all_metadata, send_metadata_to_all
from controller.core.settings import ControllerSettings
from controller.core.state import ClusterState
from controller.wire.control import UpdateMetadataRequest
from controller.wire.types import Broker, BrokerId, LeaderAndIsr, PartitionReplica, ReplicaAssignment, TopicPartition

BROKERS = tuple(map(BrokerId, (1, 2, 3)))
#: Two that are replicated alike, and one that is not.
REPLICAS = {TopicPartition("t", 0): BROKERS, TopicPartition("t", 1): BROKERS, TopicPartition("t", 2): BROKERS[1:]}
HOSTED = [PartitionReplica(tp, broker) for tp, replicas in REPLICAS.items() for broker in replicas]
#: A broker that begins another life, or leaves, or what it answers: the replicas that are in a good dir, and in none.
WORDS = st.tuples(
    st.sampled_from(BROKERS),
    st.one_of(
        st.sampled_from(("starts", "goes", "leaves")),
        st.dictionaries(st.sampled_from(list(REPLICAS)), st.booleans(), min_size=1),
    ),
)


def cluster() -> ClusterState:
    state = ClusterState(BrokerId(100), ControllerSettings())
    state.office_won(4, 1)
    for broker in BROKERS:
        state.broker_registered(Broker(broker_id=broker, endpoints=()))
    for tp, replicas in REPLICAS.items():
        state.assign(tp, ReplicaAssignment(replicas=replicas))
        state.lead(tp, LeaderAndIsr(leader=replicas[0], isr=replicas))
    state.topic_learnt("t", state.topic_content("t"))
    return state


def told(steps: Steps[object]) -> list[dict[TopicPartition, tuple[BrokerId, ...]]]:
    """Who is offline, as each broker is told in its metadata."""
    sent = [request for effect in steps if isinstance(effect, Send) for request in effect.requests]
    metadata = [request for request in sent if isinstance(request, UpdateMetadataRequest)]
    return [{e.topic_partition: e.offline_replicas for e in request.partition_states} for request in metadata]


@given(st.lists(WORDS, max_size=8))
def test_the_last_word_of_a_life_counts_and_all_brokers_hear_it(words: list[tuple[BrokerId, object]]) -> None:
    state, registered, leaving, failed = cluster(), set(BROKERS), set[BrokerId](), set[PartitionReplica]()
    for broker, word in words:
        of_broker = {replica for replica in failed if replica.replica == broker}
        if isinstance(word, dict):
            answers = [(PartitionReplica(tp, broker), good) for tp, good in word.items()]
            bad = {replica for replica, good in answers if not good}
            newly = state.log_dirs_answered(
                broker,
                online=[tp for tp, good in word.items() if good],
                offline=[tp for tp, good in word.items() if not good],
            )
            assert {PartitionReplica(tp, broker) for tp in newly} == bad - failed
            failed = failed - {replica for replica, _ in answers} | bad
        elif word == "starts":
            state.broker_registered(Broker(broker_id=broker, endpoints=()))
            registered, failed = registered | {broker}, failed - of_broker
        elif word == "goes":
            state.broker_gone(broker)
            registered, leaving, failed = registered - {broker}, leaving - {broker}, failed - of_broker
        elif broker in registered:
            state.broker_shuts_down(broker)
            leaving |= {broker}
    offline = {r for r in HOSTED if r.replica not in registered or r.replica in leaving or r in failed}
    assert {r for r in HOSTED if not state.is_online(r.replica, r.topic_partition)} == offline
    expected = {
        tp: tuple(broker for broker in replicas if PartitionReplica(tp, broker) in offline)
        for tp, replicas in REPLICAS.items()
    }
    everybody = sorted(registered)
    assert told(send_metadata_to_all(state, REPLICAS)) == [expected] * len(everybody)
    assert told(send_all_metadata(state, everybody)) == [expected] * len(everybody)
