"""All clients of a world, as its shape has them."""

from __future__ import annotations

from controller.sim.cluster import Cluster
from controller.sim.load.consumer import Consumer
from controller.sim.load.crowd import Person
from controller.sim.load.ledger import Ledger
from controller.sim.load.member import Member
from controller.sim.load.prober import Prober
from controller.sim.load.producer import Producer
from controller.sim.load.side import SideProducer
from controller.sim.shape import Shape

Client = Producer | Consumer | Member | Person | Prober | SideProducer


def clients_of(shape: Shape, cluster: Cluster, ledger: Ledger, load: str) -> list[Client]:
    """`load` is what their names begin with."""

    def names(kind: str, count: int) -> list[str]:
        return [f"{load}{kind}-{n}" for n in range(count)]

    return [
        *(Producer(cluster, ledger, name) for name in names("producer", shape.producers)),
        *(Producer(cluster, ledger, name, idempotent=True) for name in names("idempotent", shape.idempotent_producers)),
        *(Producer(cluster, ledger, name, acks=1) for name in names("one", shape.acks_one_producers)),
        *(Consumer(cluster, ledger, name) for name in names("consumer", shape.consumers)),
        *(
            Member(cluster, ledger, name, is_static=n < shape.static_members)
            for n, name in enumerate(names("member", shape.group_members + shape.static_members))
        ),
        *(Prober(cluster, ledger, name) for name in names("prober", shape.probers)),
        *(SideProducer(cluster, name) for name in names("side", shape.side_producers)),
        *(Person(cluster, name) for name in names("person", shape.crowd)),
    ]
