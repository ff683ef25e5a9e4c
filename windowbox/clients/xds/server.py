"""A gRPC server for Envoy's aggregated discovery service (delta ADS), at a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from windowbox.clients.xds import messages
from windowbox.errors import Malformed, Refused, Unreachable, WindowboxError

logger = logging.getLogger(__name__)

_SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
_METHOD = "DeltaAggregatedResources"
_REQUEST = "envoy.service.discovery.v3.DeltaDiscoveryRequest"
_RESPONSE = "envoy.service.discovery.v3.DeltaDiscoveryResponse"

_LARGEST_REQUEST = 16 << 20
"""Bytes. An Envoy that connects again names all its resources, in some 60 bytes each."""
_MOST_STREAMS = 4096
"""Streams of all Envoys together; further ones are refused."""
_SEND = 30.0
"""Seconds for Envoy to take a response off its socket."""
_END = 0.5
"""Seconds for streams to end with the server."""
_OPTIONS = (
    ("grpc.max_receive_message_length", _LARGEST_REQUEST),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_concurrent_streams", 8),  # of one connection: Envoy has one
    # Envoy finds out by pings whether this process still runs; by default, more than two are a reproach.
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),
)


@dataclass(frozen=True)
class Request:
    """A request of an Envoy: a subscription, or what became of a response."""

    node: str
    """The id of the Envoy; only the first request of a stream has it."""
    kind: str
    """The full name of the message that resources of this kind are."""
    nonce: str = ""
    """Of the response that it has accepted or rejected."""
    error: str = ""
    """Why it has rejected the response."""
    versions: Mapping[str, str] | None = None
    """In the first request of a kind: the resources that it has already."""
    subscribe: Collection[str] = ()
    unsubscribe: Collection[str] = ()


class Resource(NamedTuple):
    """An encoded resource. Two with the same version have the same content."""

    version: str
    content: bytes


@dataclass(frozen=True)
class Response:
    """Resources that Envoy has to add, to change or to remove."""

    kind: str
    nonce: str
    resources: Mapping[str, Resource]
    removed: Collection[str] = ()


class Stream:
    """The stream of one Envoy."""

    def __init__(self, context: Any) -> None:
        self._context = context

    async def receive(self) -> Request | None:
        """The next request; None at the end of the stream. Malformed if it cannot be parsed."""
        from google.protobuf.message import DecodeError
        from grpc.aio import EOF

        data = await self._context.read()
        if data is EOF:
            return None
        try:
            found = messages.type_of(_REQUEST).FromString(data)
        except DecodeError as error:
            raise Malformed(f"request of an Envoy: {error}") from error
        return Request(
            node=found.node.id,
            kind=messages.name_of(found.type_url),
            nonce=found.response_nonce,
            error=(found.error_detail.message or "no reason given") if found.HasField("error_detail") else "",
            versions=dict(found.initial_resource_versions),
            subscribe=tuple(found.resource_names_subscribe),
            unsubscribe=tuple(found.resource_names_unsubscribe),
        )

    async def send(self, response: Response) -> None:
        """Unreachable if Envoy does not take it in time."""
        sent = messages.type_of(_RESPONSE)(
            type_url=(url := messages.type_url(response.kind)),
            nonce=response.nonce,
            removed_resources=response.removed,
        )
        for name, one in response.resources.items():
            added = sent.resources.add(name=name, version=one.version)
            added.resource.type_url, added.resource.value = url, one.content
        try:
            async with asyncio.timeout(_SEND):
                await self._context.write(messages.encoded(sent))
        except TimeoutError as error:
            raise Unreachable(f"Envoy takes no response for {_SEND:g} s") from error


@contextlib.asynccontextmanager
async def serving(socket: str, serve: Callable[[Stream], Awaitable[None]]) -> AsyncIterator[None]:
    """Call `serve` with each stream. Only the user of this process may connect to the socket."""
    # uvloop forks to start a program. No child uses gRPC, which would otherwise prepare each fork for that:
    # then children that are forked beside a stream crash, or wait for ever.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    # In a thread, because it takes a fifth of a second.
    grpc, aio = [await asyncio.to_thread(importlib.import_module, name) for name in ("grpc", "grpc.aio")]

    streams = set[asyncio.Task[None]]()

    async def answer(_: Any, context: Any) -> None:
        stream = asyncio.ensure_future(serve(Stream(context)))
        streams.add(stream)
        try:
            await asyncio.wait([stream])
        finally:
            stream.cancel()
            streams.discard(stream)
        if stream.cancelled():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this edge ends; the next one knows more")
        try:
            stream.result()
        except WindowboxError as error:
            # An Envoy that comes before its edge knows it tries again.
            level = logging.DEBUG if isinstance(error, Refused) else logging.INFO
            logger.log(level, "a stream of an Envoy ends: %s", error)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))

    server = aio.server(options=_OPTIONS, maximum_concurrent_rpcs=_MOST_STREAMS)
    method = grpc.stream_stream_rpc_method_handler(answer)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: method})])
    before = os.umask(0o177)
    try:
        server.add_insecure_port(f"unix:{socket}")
    except RuntimeError as error:
        raise Unreachable(f"listen on {socket}: {error}") from error
    finally:
        os.umask(before)
    await server.start()
    try:
        yield
    finally:
        # To the end, also if that is cancelled: an Envoy would stay with a server that sends nothing more.
        for stream in streams:
            stream.cancel()
        await asyncio.shield(asyncio.ensure_future(server.stop(_END)))
