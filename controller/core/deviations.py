"""Where this controller and Kafka 3.9 differ on purpose, and which of Kafka's oddities are kept. Keys are those of the
project's list of known failures where it has one; else a short name.

Nothing in `CLOSED` changes znodes, requests or what clients see in the normal case.
"""

from __future__ import annotations

from typing import Final

#: Holes of Kafka 3.9 that are closed here: key -> (what Kafka does, what is done here and where).
CLOSED: Final[dict[str, tuple[str, str]]] = {
    "X1": (
        "an election stops at its own id in /controller, even when the process does not serve",
        "office.elect: deletes the znode of its own session and elects again; waits for one of a foreign session",
    ),
    "X2": (
        "a deletion that waits for a dead broker is silent",
        "deletion.mark_ineligible logs the brokers it waits for",
    ),
    "X3": (
        "the znodes of a deleted topic go one blocking request at a time",
        "deletion._delete_znodes: all levels of all topics behind each other, without a wait",
    ),
    "X4": (
        "a broker that meets its own registration under a session that it never learnt of stays out until restarted",
        "broker_sim.registration: a foreign owner is final only if it outlives a session timeout (at the first start "
        "at once, as in Kafka)",
    ),
    "X5": (
        "a registration that vanishes between the refused create and the look at its owner fails the broker",
        "broker_sim.registration: it is created again",
    ),
    "X6": (
        "a controlled shutdown is answered when requests are queued; the broker may end before its successors lead",
        "requests.leadership holds the answer, for a while, until the new leaders have answered theirs",
    ),
    "vacant office": (
        "a deletion of /controller while a failover runs is seen by nobody: its one-shot watch is armed later",
        "office.elect arms the watch right after the election; a vacancy found later leads to an election",
    ),
    "repeated failover": (
        "a failover that fails at once leads to the next, without a pause",
        "office.elect_again waits RETRY_MS after a failed failover; one attempt waits, however many events ask for it",
    ),
    "no next attempt": (
        "a controller that cannot even be elected, because /controller_epoch does not parse, does not try again",
        "office.run_for_office tries again after RETRY_MS",
    ),
    "lost answers": (
        "AlterPartitionReassignments and ElectLeaders are never answered when the office is lost while they run",
        "step.handle answers them as if they had been dropped from the queue: NOT_CONTROLLER",
    ),
    "unreadable registration": (
        "one registration that does not parse fails every broker change and every failover",
        "brokers.read_brokers logs it and goes on without that broker until its znode can be read",
    ),
    "failed resumption": (
        "one reassignment that cannot be resumed aborts the failover, or the start of a broker",
        "reassignment.resume_all logs it and goes on with the others",
    ),
    "election without leadership": (
        "an election that names a partition which never had a leader dies unanswered; at failover it aborts that",
        "elections.by_request answers UNKNOWN_SERVER_ERROR for it alone; elections.pending leaves it out",
    ),
    "refused write": (
        "one write that is refused for a reason of its own stops the batch, and requests of writes that were done are "
        "never sent",
        "fenced_writes: the refusal is the result of that write alone; its partition fails, the others go on",
    ),
    "unreadable list": (
        "an event that cannot read a list is lost, and the watch that would call for the next one is not armed",
        "effects.read concludes nothing from it; step.handle takes the event again after RETRY_MS",
    ),
    "unreadable znode": (
        "one broker or topic whose znode must not be read (NO_AUTH) fails every broker change and every failover",
        "brokers.read_brokers, topics.read_assignments log it and go on with the others",
    ),
    "lost answer to a creation": (
        "a state znode whose creation is answered NodeExists, sent again after a lost connection, stays without leader",
        "partitions._created_before believes a state that is just as it was to be made",
    ),
    "half a deletion": (
        "a topic whose znodes cannot all be deleted fails the deletion of all others, until the next event of theirs",
        "deletion._complete keeps its marker and tries again after RETRY_MS; the others go",
    ),
    "admin znode that stays": (
        "the preferred election's znode, where it cannot be deleted, is acted upon again and again without a pause",
        "elections.elect, moves_znode.remove_from_znode: looked at again after RETRY_MS",
    ),
    "replicas on the controller": (
        "does not arise: its controller is a broker, this one is shown as a broker to be found, and has no logs",
        "topics.off_the_controller moves such replicas before they exist, of new topics and at failover; also those on "
        "a former controller that this one saw in office (one that it never saw cannot be told from a dead broker)",
    ),
}

#: Oddities of Kafka 3.9 that are kept, because tools and tests may rely on them: key -> what they are, where.
KEPT: Final[dict[str, str]] = {
    "states of a vanished topic": "a topic whose znode is removed by hand leaves the states of its replicas behind; "
    "made anew under its name it gets no leader before the next failover (state.remove_topic)",
    "deletion does not wait": "a topic is deleted although a partition of it is moving, except after a failover "
    "(D1; deletion.markers_changed)",
    "unparseable reassignment": "the next maintenance of /admin/reassign_partitions deletes a document that does not "
    "parse (reassignment._remove_from_znode)",
    "unvalidated reassignment": "a reassignment by znode may name dead, doubled or negative ids "
    "(reassignment.by_znode)",
    "existing state": "a new partition whose state znode exists stays NEW until the next failover "
    "(partitions._initialize)",
    "stranded deletion": "a refused StopReplica request leaves its replicas in deletion until the broker bounces "
    "(deletion.answered gets no partitions for it)",
    "two raises at failover": "a leader that died with the old controller costs two leader epochs (failover)",
}
