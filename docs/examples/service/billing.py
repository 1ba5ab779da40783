"""A small service: reads orders, keeps what each customer owes, and commits what it has taken in."""

from __future__ import annotations

import json
from collections import Counter

from confluent_kafka import Consumer


class Billing:
    """Totals by customer. An order that is delivered twice counts once."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.totals: Counter[str] = Counter()
        self._seen: set[str] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe(["orders"])

    def take(self, count: int, *, looks: int = 150) -> int:
        """Takes orders until it has so many more, or has looked so often. Returns how many it has taken."""
        taken = 0
        for _ in range(looks):
            messages = [each for each in self._consumer.consume(100, timeout=0.2) if each.error() is None]
            taken += sum(self._take_in(json.loads(each.value())) for each in messages)
            if messages:
                self._consumer.commit(asynchronous=False)
            if taken >= count:
                break
        return taken

    def _take_in(self, order: dict[str, str | int]) -> bool:
        if order["id"] in self._seen:
            return False
        self._seen.add(str(order["id"]))
        self.totals[str(order["customer"])] += int(order["amount"])
        return True

    def close(self) -> None:
        """Leaves its group."""
        self._consumer.close()
