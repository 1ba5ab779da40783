"""All clients of a world, as its shape says."""

from __future__ import annotations

from controller.sim.cluster import Cluster
from controller.sim.load.consumer import Consumer
from controller.sim.load.crowd import Person
from controller.sim.load.hesitant import Hesitant
from controller.sim.load.keyed import KeyedProducer
from controller.sim.load.ledger import Ledger
from controller.sim.load.links import Links
from controller.sim.load.member import Member
from controller.sim.load.offset_prober import OffsetProber
from controller.sim.load.prober import Prober
from controller.sim.load.producer import Producer
from controller.sim.load.replica_prober import ReplicaProber
from controller.sim.load.side import SideProducer
from controller.sim.shape import Shape

Client = (
    Producer
    | Consumer
    | Member
    | Person
    | Prober
    | SideProducer
    | KeyedProducer
    | ReplicaProber
    | OffsetProber
    | Hesitant
)


def clients_of(cluster: Cluster, ledger: Ledger, shape: Shape, prefix: str) -> list[Client]:
    """New ones, none of which runs yet; their names begin with `prefix`."""

    def names(kind: str, count: int) -> list[str]:
        return [f"{prefix}{kind}-{n}" for n in range(count)]

    members = enumerate(names("member", shape.group_members + shape.static_members))
    return [
        *(Producer(cluster, ledger, name) for name in names("producer", shape.producers)),
        *(Producer(cluster, ledger, name, idempotent=True) for name in names("idempotent", shape.idempotent_producers)),
        *(Producer(cluster, ledger, name, acks=1) for name in names("one", shape.acks_one_producers)),
        *(Consumer(cluster, ledger, name) for name in names("consumer", shape.consumers)),
        *(Member(cluster, ledger, name, is_static=n < shape.static_members) for n, name in members),
        *(Prober(cluster, ledger, name) for name in names("prober", shape.probers)),
        *(SideProducer(cluster, name) for name in names("side", shape.side_producers)),
        *(Person(cluster, name) for name in names("person", shape.crowd)),
        *(KeyedProducer(cluster, name) for name in names("keyed", shape.keyed_producers)),
        *(ReplicaProber(cluster, ledger, Links(cluster, name)) for name in names("late", shape.replica_probers)),
        *(OffsetProber(cluster, Links(cluster, name)) for name in names("asker", shape.offset_probers)),
        *(Hesitant(cluster, name) for name in names("hesitant", shape.hesitant)),
    ]
