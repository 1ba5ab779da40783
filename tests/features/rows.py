"""What the source documents say about placement, topics, reassignment, brokers and clients, as rows to be tested.

A row has the document, the feature, and what must hold, which is what Kafka 3.9 does: where a document is wrong or
speaks of an older Kafka, the row says so. Tests name rows by their keys (marker `feature`).
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One feature."""

    feature: str
    must_hold: str


DOCUMENTS = {
    "000": "Creating topics: how Kafka assigns replicas",
    "001": "The assignment algorithm, step by step",
    "002": "Moving partitions: reassignment, throttles, log dirs",
    "003": "What happens when a topic is created",
    "004": "Partitions, groups and routing",
}

ROWS: dict[str, Row] = {
    "000-01": Row(
        "what automatic assignment needs",
        "--create with neither counts nor a plan uses the cluster's defaults; --alter without --partitions is a "
        "usage error (2.x asked for both counts at --create)",
    ),
    "000-02": Row(
        "broker.rack and --disable-rack-aware",
        "the rack comes from the broker's registration; by default mixed racks are refused, the flag leaves racks out",
    ),
    "000-03": Row("create = metadata, assignment, write", "a refusal in any of the three writes nothing"),
    "000-04": Row(
        "three checks of numbers",
        "partitions at least 1, replicas at least 1, replicas at most brokers; in this order",
    ),
    "000-05": Row("the rack-unaware algorithm", "KA-2, KA-4; numbered from 0 without a first partition"),
    "000-06": Row("broker ids need not be 0 to n-1", "KA-4: ids come from the list of brokers, not from arithmetic"),
    "000-07": Row(
        "the transcript of topic-test4",
        "create and describe of KA-2, byte for byte under --compat 2.0, and in the words of 3.9",
    ),
    "000-08": Row(
        "start and shift can be told from a layout",
        "the start is where the first leader stands; the shift is known modulo brokers - 1",
    ),
    "000-09": Row(
        "why the start is random",
        "many topics of one partition: leader skew near 1 with a random start, as many as there are brokers with "
        "a fixed one",
    ),
    "000-10": Row("racks at some brokers only", "refused with Kafka's text, accepted with --disable-rack-aware"),
    "000-11": Row(
        "the rack-aware algorithm",
        "KA-6 to KA-11: a candidate is passed over for its rack or because it is there already",
    ),
    "000-12": Row("the list that alternates racks", "three racks of three: 0,3,6,1,4,7,2,5,8"),
    "000-13": Row("the result is the content of /brokers/topics/T", "the znode holds exactly the computed lists"),
    "000-14": Row(
        "a plan only: the controller makes replicas of it",
        "without a controller a topic node gets no state nodes and no leader",
    ),
    "000-15": Row("a topic by writing its znode", "it is created and described like one from the tool"),
    "000-16": Row("describe two topics with a comma", "a comma means one or the other"),
    "000-17": Row(
        "a node written while no broker runs",
        "it is created at the next controller election (the document says never)",
    ),
    "000-18": Row("no checks on direct writes", "unequal lists work; with unknown brokers there is no leader"),
    "000-19": Row(
        "the command as a function",
        "create, describe, alter, list and delete run with the same argument vector",
    ),
    "000-20": Row(
        "auto.create.topics.enable and creation policies",
        "a broker creates a missing topic only when asked and allowed, and where all brokers have a rack or none;"
        " the policy class is named as a property that is not served",
    ),
    "001-01": Row(
        "the parameters",
        "a negative fixed start means two random draws, a fixed one is start and shift; the first partition is at"
        " least 0",
    ),
    "001-02": Row(
        "shift rule and offset formula",
        "followers are 1 to n-1 places behind the leader, never 0; the shift grows by one each n partitions",
    ),
    "001-03": Row("the worked result", "KA-3"),
    "001-04": Row("the first replica is the leader", "it leads when it is alive at creation"),
    "002-01": Row("what generate takes", "duplicate topics and duplicate brokers are refused"),
    "002-02": Row(
        "where generate looks",
        "the current lists of the topics; brokers that are listed and alive, others are left out silently",
    ),
    "002-03": Row("racks in generate", "mixed racks are refused unless --disable-rack-aware"),
    "002-04": Row("replication factor from one partition", "that of partition 0, for the whole topic"),
    "002-05": Row(
        "more replicas by the same arithmetic",
        "any factor can be placed, and execute takes a changed number of replicas",
    ),
    "002-06": Row(
        "what execute refuses",
        "empty plans, empty lists, repeated partitions, repeated brokers, unknown brokers, unknown partitions; in"
        " this order",
    ),
    "002-07": Row("a reassignment runs already", "refused without --additional (2.0 changed the rates only)"),
    "002-08": Row("the current lists are printed for a rollback", "executing them brings the lists back in order"),
    "002-09": Row(
        "throttles on all brokers concerned, at run time",
        "rates on sources and targets, each once, and they count without a restart",
    ),
    "002-10": Row("throttled replicas of topics", "T1 to T5: leaders' and followers' lists"),
    "002-11": Row("lists only at the start", "a run that is refused leaves topic nodes as they are"),
    "002-12": Row(
        "changing a throttle may miss brokers that are done",
        "a second run sets rates for what still moves; a source that is done keeps the old one until verify",
    ),
    "002-13": Row("the warning to run verify", "printed with a throttle, not without"),
    "002-14": Row(
        "rate keys and where they stand",
        "leader. and follower.replication.throttled.rate below /config/brokers/N",
    ),
    "002-15": Row(
        "partitions that do not exist",
        "asked for by znode they are taken out and the others proceed; the tool refuses (2.0 skipped them)",
    ),
    "002-16": Row("--bootstrap-server for log dirs", "always required"),
    "002-17": Row(
        "moves between log dirs: asked, retried, given up",
        "asked again each 100 ms until taken or until --timeout, 10 s by default",
    ),
    "002-18": Row("/admin/reassign_partitions", "holds the partitions and their targets; a second creation fails"),
    "002-19": Row("only the controller acts on it", "one controller of several starts the moves"),
    "002-20": Row(
        "deletion and moves",
        "a topic that moves is deleted at once (3.9), one that is being deleted is not moved",
    ),
    "002-21": Row("adding and removing replicas in the topic node", "they stand there until the move is done"),
    "002-22": Row("a new target for a running move", "replicas that it no longer needs are stopped and deleted"),
    "002-23": Row("when a move is done", "when the target is a subset of the ISR; other members do not matter"),
    "002-24": Row("phases and lists", "the znodes of [1,2,3] to [4,5,6], in order"),
    "002-25": Row("StopReplica twice", "first without, then with deletion"),
    "002-26": Row(
        "the topic watch during a move; a topic in deletion",
        "nothing is new, so nothing is done; partitions added to a topic in deletion are taken back",
    ),
    "002-27": Row("another controller goes on", "moves asked by znode and by request are resumed"),
    "002-28": Row("what cannot be moved leaves the znode", "unknown partitions are removed from it"),
    "002-29": Row("the right to move log dirs", "a refusal by the broker names the replica and changes nothing"),
    "002-30": Row("verify tells and clears", "throttles go once nothing is being moved"),
    "002-31": Row("several log dirs", "a new log goes where the fewest are, whatever their sizes"),
    "002-32": Row("never two replicas on one broker", "repeated brokers are refused"),
    "002-33": Row(
        "log_dirs in a plan",
        "any by default, as long as the replicas; a move between dirs of a broker ends and verify says so",
    ),
    "002-34": Row("eleven questions", "see the rows below"),
    "002-QA-01": Row("do leaders change when replicas are added?", "no, also when another one is put in front"),
    "002-QA-02": Row(
        "do they when replicas are removed?",
        "only when the leader goes or is dead: the first of the target in sync",
    ),
    "002-QA-03": Row(
        "deletion during a move, and the reverse",
        "deleted at once as in 3.9 (the document: it waits); the reverse is refused",
    ),
    "002-QA-04": Row(
        "when are replicas added?",
        "when they are in the ISR; without any leader never, until one is back",
    ),
    "002-QA-05": Row(
        "when are replicas removed?",
        "after the move, never before; those that a new target needs no more, at once",
    ),
    "002-QA-06": Row(
        "may the znode be written by hand?",
        "yes, without any check; what does not parse is ignored, what is unknown is taken out",
    ),
    "002-QA-07": Row(
        "what do throttles do in detail?",
        "rates and lists are set, limit the copies, and are removed by verify",
    ),
    "002-QA-08": Row("only the order changes", "no election; the next preferred one follows the new order"),
    "002-QA-09": Row("a throttle written by hand", "counts once a change notification comes with it"),
    "002-QA-10": Row("the controller changes meanwhile", "unfinished moves go on"),
    "002-QA-11": Row("when is the znode cleared?", "partition by partition; the node goes with the last"),
    "003-01": Row(
        "topic, partition, replica, leader",
        "offsets from 0 in order; served by the leader; replicas on different brokers",
    ),
    "003-02": Row("two internal topics", "left out by --exclude-internal"),
    "003-03": Row(
        "leader, followers and ISR",
        "followers hold the leader's records; nothing acknowledged is lost with the leader",
    ),
    "003-04": Row("first, second and third topic", "1 by 1, 3 by 1, 3 by 3: znodes and folders appear"),
    "003-05": Row("one action only", "none or two actions are a usage error"),
    "003-06": Row(
        "ranges of the counts",
        "partitions from 1, replicas 1 to 32767, both including 1 (the document says above 1)",
    ),
    "003-07": Row("a topic that exists", "the cluster refuses it, by name"),
    "003-08": Row(
        "CREATE_TOPICS goes to the controller",
        "another node says NOT_CONTROLLER, and the tool finds the controller",
    ),
    "003-09": Row("the way of a request", "requests of a connection are answered in order"),
    "003-10": Row("num.partitions and default.replication.factor", "used where --create says nothing: 1 and 1"),
    "003-11": Row("a plan by hand, else the formula", "a plan is stored as it is; KA-5"),
    "003-12": Row("persistent znodes", "they survive brokers; the config is written before the topic"),
    "003-13": Row("states at creation", "the first live replica leads, the ISR is all live ones"),
    "003-14": Row("who is told", "only brokers with replicas make logs; every broker knows the topic"),
    "003-15": Row("folders and files", "topic-partition; names of 20 digits (the document prints 16)"),
    "004-01": Row("partitions only become more", "a decrease is refused"),
    "004-02": Row("order within a partition", "records of one partition are read as they were written"),
    "004-03": Row("one consumer per partition in a group", "eleven members, ten partitions: one gets nothing"),
    "004-04": Row("folders and segments", "a segment is named by its first offset"),
    "004-05": Row(
        "one partition by default; a new broker",
        "one; a new broker gets no partition by itself (the document says it does)",
    ),
    "004-06": Row("no upper limit of partitions", "ten thousand are placed"),
    "004-07": Row("the naive scheme and its flaws", "uneven remainders, the same replicas every n partitions"),
    "004-08": Row("the real algorithm", "it has neither flaw"),
    "004-09": Row(
        "five sentences about placement",
        "counts are refused; the leaders of consecutive partitions are consecutive brokers from a random one",
    ),
    "004-10": Row(
        "election when a leader fails",
        "the first assigned replica that is alive and in sync (the document: the first in the ISR)",
    ),
    "004-11": Row(
        "unclean election",
        "off: no leader without a live ISR member; on: the first live replica, alone in the ISR",
    ),
    "004-12": Row("what causes a rebalance", "joining and leaving begin a new generation"),
    "004-13": Row(
        "a member that dies, and its return",
        "others take its partitions over, each has one owner; a returning member gets some back",
    ),
    "004-14": Row("consumption stops meanwhile", "with eager assignors members give up everything first"),
    "004-15": Row("the default strategy", "range; from 3.0 on range and cooperative-sticky, which chooses range"),
    "004-16": Row("range", "10 partitions, 3 members: 0-3, 4-6, 7-9"),
    "004-17": Row("round-robin", "0,3,6,9; 1,4,7; 2,5,8"),
    "004-18": Row("sticky", "even at first; after range and a death 0,1,2,3,7 and 4,5,6,8,9; survivors lose nothing"),
    "004-19": Row("a consumer makes the plan", "the first member leads and gets all metadata; the broker relays"),
    "004-20": Row("phase 1: the coordinator", "abs(hash) mod 50; test-group 12, group1 40"),
    "004-21": Row("phase 2: JoinGroup", "the leader gets all members, others none"),
    "004-22": Row("phase 3: SyncGroup", "each member gets its own part; heartbeats watch it"),
    "004-23": Row("routing: a given partition", "is used as it is"),
    "004-24": Row("routing: a key", "murmur2 over all partitions"),
    "004-25": Row("routing: neither", "round the available ones before 2.4, one per batch since"),
}
