"""The HTTPS server for admission requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from webhooks import answering
from webhooks.answering import BODY_LIMIT, Answer, Asked
from webhooks.connections import Bodies, Body, BrokenOff, Connections, Crowded, Slow
from webhooks.review import Context, Found, Lookup, Review, Wanted, Webhook
from windowbox.errors import Malformed, TransientError
from windowbox.models.webhooks import Target
from windowbox.telemetry import metrics

logger = logging.getLogger(__name__)

T = TypeVar("T")

_PATIENCE = 10.0
"""Seconds for an answer to requests without `timeout`: the default of API servers."""
_MARGIN = 0.2
"""Seconds between our answer and the caller's timeout."""
_AT_ONCE = 64
"""Big requests of one target in its thread; others wait, within their patience."""
_MOST_LOOKUPS = 8
"""Objects that one review may ask for, one after the other."""
_KEPT = 150.0
"""Seconds for which idle connections are kept: longer than API servers keep theirs, which is 90 s.

An API server does not retry a review whose connection is closed just as it is sent.
"""
_GRACE = 1.0
"""Seconds at the end in which callers are asked to reconnect; and as many for the last answers."""

Look = Callable[[Lookup, float], Awaitable[Found]]
"""Look an object up within so many seconds."""


@dataclass(frozen=True)
class Decision:
    """An answer, and everything that led to it."""

    webhook: Webhook
    review: Review
    context: Context
    answer: Answer
    seconds: float
    weight: int
    """Bytes that the request takes in memory."""


class Journal(Protocol):
    """Records decisions."""

    def note(self, decision: Decision) -> None:
        """Record a decision. Neither waits nor fails."""


class Certificates:
    """The server's certificate, which may be replaced while connections are open."""

    def __init__(self) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        # API servers prefer HTTP/2, which aiohttp does not serve.
        self.context.set_alpn_protocols(["http/1.1"])

    def use(self, certificate: bytes, key: bytes) -> None:
        """Show this certificate in new handshakes. Malformed if it does not match the key."""
        try:
            # OpenSSL reads files only; the directory is readable by our user alone.
            with tempfile.TemporaryDirectory(prefix="windowbox-") as folder:
                path = Path(folder) / "tls.pem"
                path.write_bytes(key + b"\n" + certificate)
                # Try it first: a failure would leave half of the pair in our context.
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)
                self.context.load_cert_chain(path)
        except (ssl.SSLError, ValueError) as error:
            raise Malformed("the webhooks' certificate and key cannot be used") from error
        except OSError as error:
            raise TransientError(f"no temporary file for the webhooks' certificate: {error}") from error


class _Bulkhead:
    """A thread for some requests, which do not delay others: the big ones of one target, for example."""

    def __init__(self, name: str) -> None:
        self.room = asyncio.Semaphore(_AT_ONCE)
        self.thread = ThreadPoolExecutor(1, name)


class Server:
    """Answers AdmissionReviews."""

    def __init__(self, webhooks: Iterable[Webhook], given: Context, look: Look, journal: Journal) -> None:
        self._given = given
        self._look = look
        self._journal = journal
        self._bulkheads = {target: _Bulkhead(f"big reviews of {target}") for target in Target}
        self._readers = _Bulkhead("reviews that read large objects")
        self._bodies = Bodies(BODY_LIMIT)
        self._connections: Connections
        self._closing = False
        self.application = web.Application()
        for webhook in webhooks:
            registration = webhook.registration
            self.application.router.add_post(registration.url_path, self._handler(webhook))
            if registration.called_twice:
                self.application.router.add_post(registration.second_path, self._handler(webhook, last=True))

    def _handler(
        self, webhook: Webhook, *, last: bool = False
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """With `last`, the connection is closed after the answer: a kept one may lead to a dead process."""

        def failed(status: int, why: str) -> web.Response:
            # Not a decision but a failed call, to which API servers apply the failure policy.
            metrics.reviews.labels(webhook.registration.name, "late").inc()
            return web.Response(status=status, text=why)

        async def handle(request: web.Request) -> web.Response:
            started = time.perf_counter()
            try:
                async with asyncio.timeout(_patience(request)), self._bodies.read(request) as body:
                    with self._connections.working(request):
                        answered = await self._answered(webhook, request, body, started)
                response = web.Response(body=answered, content_type="application/json")
            except TimeoutError:
                response = failed(504, "the webhook could not answer in time")
            except BrokenOff:
                response = failed(400, "the body of the request breaks off, or is malformed")
            except Slow:
                response = failed(408, "the body of the request comes too slowly")
            except Crowded:
                response = failed(429, "the webhook has too many large requests")
                response.headers["Retry-After"] = "1"  # API servers retry until their timeout
            if self._closing or last:
                response.force_close()
            return response

        return handle

    async def _answered(self, webhook: Webhook, request: web.Request, body: Body, started: float) -> bytes:
        """The encoded answer; `started` is when the request began, in seconds of `perf_counter`."""
        name = webhook.registration.name
        if request.content_type != "application/json":
            metrics.reviews.labels(name, "unreadable").inc()
            shown = request.content_type[:100]
            return answering.refused(400, f"contentType={shown}, expected application/json").encoded()
        if body.excess:
            metrics.reviews.labels(name, "unreadable").inc()
            return answering.refused(413, f"request entity is too large: limit is {body.excess}").encoded()
        size = len(body.content)
        context = self._given
        asked, answer = await self._apart(webhook, size, _begun, webhook, body.content, context)
        if not isinstance(asked, Asked):
            metrics.reviews.labels(name, "unreadable").inc()
            refused, uid, version = asked
            return refused.encoded(uid, version)
        review = asked.review
        while isinstance(answer, Lookup):
            left = _patience(request) - (time.perf_counter() - started)
            found = await self._look(answer, left)
            context = replace(context, objects={**context.objects, answer.key: found})
            answer = await self._apart(webhook, size, _decided, webhook, review, context)
        seconds = time.perf_counter() - started
        self._connections.answered(request)
        self._journal.note(Decision(webhook, review, context, answer, seconds, body.weight))
        metrics.reviews.labels(name, answer.outcome).inc()
        metrics.review_seconds.labels(name).observe(seconds)
        return answer.encoded(review.uid, asked.version)

    async def _apart(self, webhook: Webhook, size: int, act: Callable[..., T], *arguments: Any) -> T:
        """Call `act` here; if that could take long, in a thread."""
        if size >= webhook.big:
            bulkhead = self._bulkheads[webhook.registration.target]
        elif webhook.reads_large:
            bulkhead = self._readers
        else:
            return act(*arguments)
        async with bulkhead.room:
            return await asyncio.get_running_loop().run_in_executor(bulkhead.thread, act, *arguments)

    @contextlib.asynccontextmanager
    async def listening(self, certificates: Certificates) -> AsyncIterator[str]:
        """Listen at `webhooks.address`; yields the bound address.

        At the end, requests in flight are answered, and connections closed.
        """
        host, _, port = self._given.settings.address.rpartition(":")
        if not host or not port.isdecimal():
            raise Malformed(f"setting webhooks.address {self._given.settings.address!r} is not host:port")
        runner = web.AppRunner(
            self.application,
            access_log=None,
            auto_decompress=False,  # API servers do not compress; a small body could expand without bound
            keepalive_timeout=_KEPT,
            shutdown_timeout=_PATIENCE,
            handler_cancellation=True,  # otherwise, what callers have given up would be answered first
            logger=_http_logger(),
        )
        await runner.setup()
        assert runner.server
        self._connections = Connections(runner.server, certificates.context)
        async with contextlib.AsyncExitStack() as stack:
            for bulkhead in (*self._bulkheads.values(), self._readers):
                stack.callback(bulkhead.thread.shutdown, wait=False, cancel_futures=True)
            stack.push_async_callback(runner.cleanup)
            stack.callback(self._connections.end_handshakes)
            listening = contextlib.AsyncExitStack()
            try:
                bound = await listening.enter_async_context(
                    self._connections.listening(host.strip("[]"), int(port))
                )
            except OSError as error:
                raise Malformed(
                    f"setting webhooks.address: cannot listen on {self._given.settings.address}: {error}"
                ) from error
            try:
                yield f"{host}:{bound}"
            finally:
                self._closing = True
                async with listening:
                    await self._grace()
                await self._grace()

    async def _grace(self) -> None:
        """Leave callers the time to connect again, or to get their answers."""
        if len(self._connections):
            await asyncio.sleep(_GRACE)


def _http_logger() -> logging.Logger:
    """A logger for bugs. Any client could fill the log with requests that are no HTTP."""
    made = logging.getLogger(f"{__name__}.http")
    made.addFilter(_is_bug)
    return made


def _is_bug(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


def _begun(
    webhook: Webhook, body: bytes, given: Context
) -> tuple[Asked | tuple[Answer, str, str], Answer | Lookup]:
    """The decoded review and its decision, in one call: big requests enter the thread once."""
    asked = answering.read(webhook, body)
    return asked, _decided(webhook, asked.review, given) if isinstance(asked, Asked) else asked[0]


def _decided(webhook: Webhook, review: Review, context: Context) -> Answer | Lookup:
    """The decision, or what has to be looked up first: one object more each time, and no more than a few."""
    try:
        if len(context.objects) > _MOST_LOOKUPS:
            return answering.refused(500, f"more than {_MOST_LOOKUPS} objects were looked up")
        return answering.decide(webhook, review, context)
    except Wanted as wanted:
        return wanted.lookup


def _patience(request: web.Request) -> float:
    """The caller's timeout in seconds, less a margin: API servers pass it in the URL."""
    asked = request.query.get("timeout", "")
    seconds = int(asked[:-1]) if asked.endswith("s") and asked[:-1].isdecimal() and len(asked) < 4 else 0
    return (min(seconds, 30) or _PATIENCE) - _MARGIN
