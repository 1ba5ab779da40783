"""UpdateMetadata from its bytes, decoded once for all brokers of a process.

The controller sends the same topics and brokers to each; only the head, with the broker epoch, differs. Brokers that
share a process get the same bytes one after another, so what they say is kept a while: the values are immutable, and
the metadata caches then hold one object per partition and not one per broker. Source: spec broker.md §1.3, §8.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from dataclasses import replace
from typing import Any, Final

from controller.wire.control import UPDATE_METADATA_VERSION, UpdateMetadataRequest, decode_update_metadata
from controller.wire.protocol import ApiKey, ProtocolError, decode_request_body
from controller.wire.types import NO_BROKER_EPOCH, Broker, BrokerId

#: controller_id, controller_epoch, broker_epoch: what comes before what is the same for all brokers.
_HEAD: Final = struct.Struct(">iiq")
#: Requests that are kept, and the bytes of them: brokers get the same at nearly the same time, so a few suffice.
KEPT_REQUESTS: Final = 64
KEPT_BYTES: Final = 8 << 20


class MetadataDecoder:
    """Decodes; remembers the last request, and those before, up to so many of together so many bytes. For one loop."""

    def __init__(self, *, kept_requests: int = KEPT_REQUESTS, kept_bytes: int = KEPT_BYTES) -> None:
        """`kept_requests` 0: for a broker that is alone."""
        self._kept_requests, self._kept_bytes_max = kept_requests, kept_bytes
        self._kept: OrderedDict[bytes, UpdateMetadataRequest] = OrderedDict()
        self._kept_bytes = 0
        self._brokers: tuple[Broker, ...] = ()
        #: the same before they were put into bytes, which have no broker epochs
        self._sent: tuple[Broker, ...] = ()

    def decode(self, data: bytes, to: BrokerId) -> UpdateMetadataRequest:
        """The values of the body of an UpdateMetadata request, version 6. Raises ProtocolError."""
        if len(data) < _HEAD.size:
            raise ProtocolError(f"UPDATE_METADATA body of {len(data)} bytes has no head; it needs {_HEAD.size}")
        controller_id, controller_epoch, broker_epoch = _HEAD.unpack_from(data)
        content = self._content(data[_HEAD.size :])
        return UpdateMetadataRequest(
            to=to,
            controller_id=BrokerId(controller_id),
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            partition_states=content.partition_states,
            live_brokers=content.live_brokers,
        )

    def _content(self, tail: bytes) -> UpdateMetadataRequest:
        """A request with this tail, whatever its head."""
        found = self._kept.get(tail)
        if found is not None:
            self._kept.move_to_end(tail)
            return found
        body: Any = decode_request_body(ApiKey.UPDATE_METADATA, UPDATE_METADATA_VERSION, bytes(_HEAD.size) + tail)
        request = self._with_shared_brokers(decode_update_metadata(body, BrokerId(-1)))
        self._kept[tail] = request
        self._kept_bytes += len(tail)
        while len(self._kept) > self._kept_requests or (
            len(self._kept) > 1 and self._kept_bytes > self._kept_bytes_max
        ):
            gone, _ = self._kept.popitem(last=False)
            self._kept_bytes -= len(gone)
        return request

    def _with_shared_brokers(self, request: UpdateMetadataRequest) -> UpdateMetadataRequest:
        """The brokers seldom change: as one value, so that who looks whether they did compares nothing."""
        if request.live_brokers != self._brokers:
            self._brokers, self._sent = request.live_brokers, ()
        return replace(request, live_brokers=self._brokers)

    def shared_brokers(self, live_brokers: tuple[Broker, ...]) -> tuple[Broker, ...]:
        """The very value that decoded requests have for these brokers that are sent; empty where there is none yet."""
        if live_brokers != self._sent:
            decoded = tuple(replace(broker, broker_epoch=NO_BROKER_EPOCH) for broker in live_brokers)
            if decoded != self._brokers:
                return ()
            self._sent = live_brokers
        return self._brokers
