"""What of a controller's requests travels to fluid brokers: less than it sends, and nothing that they would miss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from broker_sim.fluid.broker import FluidBroker
from broker_sim.metadata_decoding import MetadataDecoder
from controller.wire.control import ControlRequest, UpdateMetadataEntry, UpdateMetadataRequest
from controller.wire.types import BrokerId


class ControlToBrokers:
    """`brokers` are those that run; they change under this."""

    def __init__(self, brokers: Mapping[BrokerId, FluidBroker], decoder: MetadataDecoder) -> None:
        self._brokers, self._decoder = brokers, decoder
        self._states: Sequence[UpdateMetadataEntry] = ()
        self._deleted: tuple[UpdateMetadataEntry, ...] = ()

    def takes_at_once(self, request: ControlRequest) -> bool:
        """The controller tells each broker of each change: what changes nothing at a fluid broker does not travel."""
        if not isinstance(request, UpdateMetadataRequest) or request.partition_states:
            return False
        broker = self._brokers.get(request.to)
        live_brokers = self._decoder.shared_brokers(request.live_brokers)
        return broker is not None and broker.learns_nothing(request, live_brokers)

    def shortened(self, request: ControlRequest) -> ControlRequest:
        """Of a whole cluster's UpdateMetadata a fluid broker looks at who is alive, and at what is being deleted."""
        if not isinstance(request, UpdateMetadataRequest) or not request.partition_states:
            return request
        if self._states is not request.partition_states:  # the same for all brokers
            self._states = request.partition_states
            self._deleted = tuple(entry for entry in request.partition_states if entry.being_deleted)
        return replace(request, partition_states=self._deleted)
