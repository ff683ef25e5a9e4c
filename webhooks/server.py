"""The HTTPS server that API servers ask."""

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

from webhooks import answering
from webhooks.answering import BODY_LIMIT, Answer
from webhooks.review import Context, Found, Lookup, Review
from webhooks.webhook import Webhook
from windowbox.errors import Malformed
from windowbox.telemetry import metrics

logger = logging.getLogger(__name__)

T = TypeVar("T")

_BIG = 128 << 10
"""Bytes of a body that is worked on in a thread, so that others are answered meanwhile."""
_PATIENCE = 10.0
"""Seconds for an answer where the caller does not say: what API servers wait at most by default."""
_MARGIN = 0.2
"""Seconds before the caller gives up that it is answered at the latest."""
_AT_ONCE = 256
"""Requests that are worked on at once; others wait, within their patience."""
_HANDSHAKE = 5.0
_GRACE = 1.0
"""Seconds in which callers are asked to connect elsewhere; and as many for the last answers."""

Look = Callable[[Lookup, float], Awaitable[Found]]
"""Look an object up within these seconds."""


@dataclass(frozen=True)
class Decision:
    """What was answered to a review, and why."""

    webhook: Webhook
    review: Review
    context: Context
    answer: Answer
    seconds: float
    size: int
    """Bytes of the request."""


class Journal(Protocol):
    """Where decisions are noted."""

    def note(self, decision: Decision) -> None:
        """Note a decision. Neither waits nor fails."""


class Certificates:
    """The server's certificate, which may be replaced while connections are open."""

    def __init__(self) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])

    def use(self, certificate: bytes, key: bytes) -> None:
        """Show this certificate in handshakes from now on. Malformed if the two do not fit together."""
        with tempfile.TemporaryDirectory(prefix="windowbox-") as folder:  # for our user alone
            path = Path(folder) / "tls.pem"
            path.write_bytes(key + b"\n" + certificate)
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)
                self.context.load_cert_chain(path)
            except (ssl.SSLError, ValueError) as error:
                raise Malformed("the webhooks' certificate and key cannot be used") from error


class Server:
    """Answers AdmissionReviews."""

    def __init__(self, webhooks: Iterable[Webhook], given: Context, look: Look, journal: Journal) -> None:
        self._given = given
        self._look = look
        self._journal = journal
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._big = ThreadPoolExecutor(1, "big reviews")
        self._closing = False
        self.application = web.Application(client_max_size=BODY_LIMIT)
        self.application.add_routes(
            [web.post(webhook.registration.url_path, self._handler(webhook)) for webhook in webhooks]
        )

    def _handler(self, webhook: Webhook) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            started = time.perf_counter()
            try:
                async with asyncio.timeout(_patience(request)), self._room:
                    body = await self._answered(webhook, request, started)
            except TimeoutError:
                body = answering.refused(500, "the webhook could not answer in time").encoded()
                metrics.reviews.labels(webhook.registration.name, "late").inc()
            response = web.Response(body=body, content_type="application/json")
            if self._closing:
                response.force_close()
            return response

        return handle

    async def _answered(self, webhook: Webhook, request: web.Request, started: float) -> bytes:
        body = await _body(request)
        if isinstance(body, Answer):
            metrics.reviews.labels(webhook.registration.name, "unreadable").inc()
            return body.encoded()
        asked = await self._apart(len(body), answering.read, webhook, body)
        if not isinstance(asked, answering.Asked):
            metrics.reviews.labels(webhook.registration.name, "unreadable").inc()
            answer, uid, version = asked
            return answer.encoded(uid, version)
        review, context = asked.review, self._given
        if not (review.deleting and webhook.skip_deleting) and (wanted := webhook.lookup(review)):
            found, failure = await self._look(wanted, _patience(request) - (time.perf_counter() - started))
            context = replace(context, found=found, failure=failure)
        answer = await self._apart(len(body), answering.decide, webhook, review, context)
        seconds = time.perf_counter() - started
        self._journal.note(Decision(webhook, review, context, answer, seconds, len(body)))
        metrics.reviews.labels(webhook.registration.name, outcome(answer)).inc()
        metrics.review_seconds.labels(webhook.registration.name).observe(seconds)
        return answer.encoded(review.uid, asked.version)

    async def _apart(self, size: int, act: Callable[..., T], *arguments: Any) -> T:
        """Do it here, or in the thread for big reviews."""
        if size < _BIG:
            return act(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._big, act, *arguments)

    @contextlib.asynccontextmanager
    async def listening(self, certificates: Certificates) -> AsyncIterator[str]:
        """Listen where the settings say; yields the bound address.

        At the end, requests under way are answered, and callers asked to connect elsewhere.
        """
        host, _, port = self._given.settings.address.rpartition(":")
        if not host or not port.isdecimal():
            raise Malformed(f"setting webhooks.address {self._given.settings.address!r} is not host:port")
        runner = web.AppRunner(
            self.application, access_log=None, keepalive_timeout=75, shutdown_timeout=_GRACE
        )
        await runner.setup()
        assert runner.server
        try:
            server = await asyncio.get_running_loop().create_server(
                runner.server,
                host.strip("[]"),
                int(port),
                ssl=certificates.context,
                ssl_handshake_timeout=_HANDSHAKE,
                backlog=1024,
                reuse_port=True,  # a second process on this host takes over when the first one ends
            )
        except OSError as error:
            await runner.cleanup()
            raise Malformed(
                f"setting webhooks.address: cannot listen on {self._given.settings.address}: {error}"
            ) from error
        try:
            yield f"{host}:{server.sockets[0].getsockname()[1]}"
        finally:
            self._closing = True
            if runner.server.connections:  # somebody asks, and may be about to connect again
                await asyncio.sleep(_GRACE)
                server.close()
                await asyncio.sleep(_GRACE)
            server.close()
            await runner.cleanup()
            self._big.shutdown(wait=False, cancel_futures=True)


async def _body(request: web.Request) -> bytes | Answer:
    """The body of a request; an answer if it cannot be taken."""
    if request.content_type != "application/json":
        shown = request.content_type[:100]
        return answering.refused(400, f"contentType={shown}, expected application/json")
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        return answering.refused(413, f"request entity is too large: limit is {BODY_LIMIT} bytes")


def _patience(request: web.Request) -> float:
    """Within how many seconds the caller wants an answer: API servers say it in the URL."""
    asked = request.query.get("timeout", "")
    seconds = int(asked[:-1]) if asked.endswith("s") and asked[:-1].isdecimal() and len(asked) < 4 else 0
    return (min(seconds, 30) or _PATIENCE) - _MARGIN


def outcome(answer: Answer) -> str:
    """In one word: allowed, patched, denied or failed."""
    if answer.allowed:
        return "patched" if answer.patch else "allowed"
    return "denied" if answer.code == 403 else "failed"
