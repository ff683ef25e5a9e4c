"""The adapter for Kubernetes: credentials and transport from kubernetes_asyncio, raw JSON above them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import urlencode

import aiohttp
import orjson
import yarl

from windowbox.clients.kubernetes import apiresponses, credentials, kubeconfigs
from windowbox.clients.kubernetes.credentials import Session
from windowbox.clients.kubernetes.egress import Egress
from windowbox.clients.kubernetes.kubelibrary import Configuration, kube_config
from windowbox.clients.kubernetes.plainrequests import Overlong
from windowbox.clients.kubernetes.rotation import Rotation
from windowbox.clients.kubernetes.serverclock import ServerClock
from windowbox.errors import (
    Conflict,
    Malformed,
    Missing,
    PermanentError,
    TooLarge,
    Unreachable,
    WindowboxError,
)
from windowbox.models.objects import Object
from windowbox.models.refs import PODS, Resource

logger = logging.getLogger(__name__)

TIMEOUT = 15.0
"""Seconds for one request."""

_WATCH_SECONDS = (240, 360)
"""Randomized between these, so that a thousand watches that began together do not end together."""
_SILENCE = 90.0
"""Seconds of silence after which a watch ends. API servers send a bookmark about once a minute, so that the
connection may be lost where none comes."""
_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
_BATCH = 256
"""Events, or objects of a page, that are parsed before the event loop gets its turn."""
_BIG = 1 << 18
"""Bytes of an answer that is read in a thread."""
_LIMIT = aiohttp.ClientTimeout(total=TIMEOUT)
PASSING = 2.0
"""Seconds within which a version is replaced that we have written for a moment only."""
_MOST_PASSING = 1024
_PLAIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]+)?(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
"""An address in which there is nothing to be encoded or normalized."""
_PLAIN_PATH = re.compile(r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+")


T = TypeVar("T")


class Page(NamedTuple):
    """A page of a list, and its resource version."""

    items: list[dict[str, Any]]
    resource_version: str
    more: str


class Event(NamedTuple):
    """A watch event: ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: dict[str, Any]


class Kube:
    """A client of one cluster's API, with keep-alive."""

    def __init__(
        self,
        configuration: Configuration,
        session: Session,
        trust: str | None = None,
        *,
        tenant: bool = False,
    ) -> None:
        self._tenant = tenant
        self.limits = TENANT if tenant else OWN
        self._session = session
        self._greeting = asyncio.Lock()
        self._greeted = not tenant
        """Whether a page has been asked for."""
        self._clock = ServerClock()
        self._passing = dict[str, float]()
        self.use(configuration, trust)

    def use(self, configuration: Configuration, trust: str | None, session: Session | None = None) -> None:
        """Use these credentials from now on, with a new session if connections have to be opened again."""
        self._configuration = configuration
        self._session = session or self._session
        self._host = str(self._configuration.host).rstrip("/")
        self._distrusted = False
        self.trust = trust
        """The certificate authority of the server; None if it is not verified."""

    @property
    def host(self) -> str:
        return self._host

    @property
    def stale(self) -> bool:
        """Whether it is closed, or authentication failed: a client with fresh credentials may succeed."""
        return self._distrusted or self._session.closed

    def begin_passing(self, uid: str) -> None:
        """Note that we write a version of this object, and replace it soon: no event of it is needed."""
        if len(self._passing) >= _MOST_PASSING:  # of kinds that this process does not watch
            del self._passing[next(iter(self._passing))]
        self._passing[uid] = time.monotonic()

    def end_passing(self, uid: str) -> bool:
        """Forget that; whether it was noted a moment ago."""
        return time.monotonic() - self._passing.pop(uid, 0.0) < PASSING

    async def page(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        limit: int = 500,
        metadata_only: bool = False,
    ) -> Page:
        """The first page of the objects."""
        return (await self._page(resource, namespace, "", metadata_only, limit=limit, more=""))[0]

    async def objects(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        metadata_only: bool = False,
        fields: str = "",
    ) -> AsyncIterator[Object]:
        """All objects, one after another; `fields` is a field selector. TooLarge beyond the cluster's limits.

        Keep only what is needed of each: a tenant's server may list many, and large ones.
        """
        pages = self.pages(resource, namespace=namespace, metadata_only=metadata_only, fields=fields)
        async for page in pages:
            for number, raw in enumerate(page.items, 1):
                yield Object(raw)
                if number % _BATCH == 0:
                    await asyncio.sleep(0)  # other tasks run: a page may hold thousands of objects

    async def pages(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        limit: int = 500,
        metadata_only: bool = False,
        fields: str = "",
    ) -> AsyncIterator[Page]:
        """All pages of the objects; TooLarge beyond the cluster's limits. A page that is too large is asked
        for again in smaller ones.

        A server can send pages without end, empty or full, so number, bytes and time are bounded. The time is
        what the requests take, however long the caller keeps a page.
        """
        where = resource, namespace, fields, metadata_only
        most, what, more = self.limits.listing, f"list {resource.id}", ""
        objects, size, seconds = 0, 0, 0.0
        while True:
            begun = time.monotonic()
            try:
                page, length = await self._page(*where, limit=limit, more=more)
            except TooLarge:
                if limit == 1:
                    raise
                limit = max(1, limit // 4)
                continue
            finally:
                seconds += time.monotonic() - begun
            # An empty page counts as well.
            objects, size = objects + max(1, len(page.items)), size + length
            if objects > most.objects:
                raise TooLarge(f"{what}: more than {most.objects:,} objects: delete unneeded ones")
            if size > most.size:
                raise TooLarge(f"{what}: more than {most.size:,} bytes: delete unneeded objects")
            yield page
            more = page.more
            if not more:
                return
            if seconds > most.seconds:
                raise Unreachable(f"{what}: not listed within {most.seconds:.0f} s")

    async def _page(
        self,
        resource: Resource,
        namespace: str,
        fields: str,
        metadata_only: bool,
        *,
        limit: int,
        more: str,
    ) -> tuple[Page, int]:
        """A page, and how many bytes it has."""
        query = {"limit": str(limit)} | ({"continue": more} if more else {}) | _selection(resource)
        if fields:
            query["fieldSelector"] = fields
        size = 0

        def decode(what: str, answer: bytes) -> dict[str, Any]:
            nonlocal size
            size = len(answer)
            return apiresponses.shallowly_decoded(what, answer)

        async with self._first_alone():
            listing = await self._request(
                "GET",
                resource.path(namespace),
                query=query,
                accept=_accept(metadata_only, listing=True),
                decode=decode,
                limit=self.limits.page if limit > 1 else self.limits.object,
            )
        return Page(*apiresponses.listed(f"list {resource.id}", listing, resource)), size

    @contextlib.asynccontextmanager
    async def _first_alone(self) -> AsyncIterator[None]:
        """Let the first page come before all others: their connections resume its TLS session.

        All kinds of a cluster are listed at once, and certificates take more CPU than all else of a listing.
        """
        if not self._greeted:
            async with self._greeting:
                if not self._greeted:
                    try:
                        yield
                    finally:
                        self._greeted = True
                    return
        yield

    async def watch(
        self, resource: Resource, resource_version: str, *, metadata_only: bool = False, only: str = ""
    ) -> AsyncIterator[list[Event]]:
        """Watch events after `resource_version`, in batches as they arrive.

        Ends when the server ends it, or after a long silence.
        """
        query = (
            {
                "watch": "1",
                "allowWatchBookmarks": "true",
                "resourceVersion": resource_version,
                "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),
            }
            | ({"fieldSelector": f"metadata.name={only}"} if only else {})
            | _selection(resource)
        )
        what = f"watch {resource.id}"
        headers = await self._headers(_accept(metadata_only, listing=False))
        with self._noticing(what):
            async with self._session.http.get(
                self._host + resource.path(),
                params=query,
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, connect=TIMEOUT, sock_read=_SILENCE),
            ) as response:
                if response.status >= 300:
                    refusal = await read_body(what, response, self.limits.object)
                    raise apiresponses.refusal(what, response.status, refusal)
                # Silence is no error: an API server sends no bookmarks of kinds that have never changed.
                with contextlib.suppress(aiohttp.SocketTimeoutError):
                    async for lines in read_lines(what, response, self.limits.object):
                        for first in range(0, len(lines), _BATCH):
                            batch = lines[first : first + _BATCH]
                            yield [
                                Event(*await _apart(apiresponses.event, what, line, resource, size=len(line)))
                                for line in batch
                            ]

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        return await self._object(
            "GET", resource.path(namespace, name), decode=apiresponses.shallowly_decoded
        )

    async def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """The object, or None if there is none."""
        try:
            return await self.get(resource, namespace, name)
        except Missing:
            return None

    async def create(
        self, resource: Resource, namespace: str, body: Mapping[str, Any], *, owner: str = ""
    ) -> Object:
        query = {"fieldManager": owner} if owner else None
        return await self._object("POST", resource.path(namespace), query=query, body=body)

    async def merge(
        self, resource: Resource, namespace: str, name: str, patch: Mapping[str, Any], *, part: str = ""
    ) -> Object:
        """A JSON merge patch of the object, or of its subresource `part`."""
        path = resource.path(namespace, name) + (f"/{part}" if part else "")
        return await self._object("PATCH", path, body=patch, content="merge-patch+json")

    async def strategic_merge(
        self, resource: Resource, namespace: str, name: str, patch: Mapping[str, Any], *, part: str = ""
    ) -> Object:
        """A strategic merge patch, in which lists such as finalizers are sets. For built-in kinds only."""
        path = resource.path(namespace, name) + (f"/{part}" if part else "")
        return await self._object("PATCH", path, body=patch, content="strategic-merge-patch+json")

    async def apply(
        self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any], *, owner: str
    ) -> Object:
        """Server-side apply with `force`."""
        return await self._object(
            "PATCH",
            resource.path(namespace, name),
            body=body,
            content="apply-patch+yaml",
            query={"fieldManager": owner, "force": "true"},
        )

    async def delete(self, resource: Resource, namespace: str, name: str) -> None:
        await self.remove(resource, namespace, name)

    async def remove(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        grace: int | None = None,
        uid: str = "",
        version: str = "",
    ) -> bool:
        """Delete it, only if it has this uid and resourceVersion where they are given; a Pod ends within
        `grace` seconds.

        False if it did not exist.
        """
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        conditions = {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}
        body = {**options, **({"preconditions": conditions} if conditions else {})} or None
        try:
            await self._request("DELETE", resource.path(namespace, name), body=body)
        except Missing:
            return False
        return True

    async def evict(self, pod: Object, *, grace: int | None = None) -> bool:
        """Ask for the Pod's eviction. False if it is gone; TooManyRequests if a budget forbids it now."""
        options = {"preconditions": {"uid": pod.uid}}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options if grace is None else {**options, "gracePeriodSeconds": grace},
        }
        try:
            await self._request("POST", PODS.path(pod.namespace, pod.name) + "/eviction", body=body)
        except (Missing, Conflict):  # it is gone, or another Pod has its name now
            return False
        return True

    async def now(self) -> datetime:
        """The time of the server, which sets the timestamps of its objects; our own for a tenant's server."""
        if self._tenant:
            return datetime.now(UTC)
        if not self._clock.known:
            with contextlib.suppress(PermanentError):
                await self.version()
        return self._clock.now()

    async def version(self) -> str:
        return str((await self._request("GET", "/version"))["gitVersion"])

    async def _object(self, method: str, path: str, **request: Any) -> Object:
        answer = await self._request(method, path, **request)
        return Object(apiresponses.sound(f"{method.lower()} {path}", answer))

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content: Literal[
            "json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"
        ] = "json",
        accept: str = "application/json",
        decode: Callable[[str, bytes], dict[str, Any]] = apiresponses.decoded,
        limit: Limit | None = None,
    ) -> dict[str, Any]:
        what = f"{method.lower()} {path}"
        headers, data = await self._headers(accept), b""
        if body is not None:
            data, headers["Content-Type"] = orjson.dumps(body), f"application/{content}"
        ask = self._ask_plainly if self._session.plain else self._ask
        with self._noticing(what):
            status, answer = await ask(what, method, path, query, headers, data, limit or self.limits.object)
            if status >= 300:
                raise apiresponses.refusal(what, status, answer)
            return await _apart(decode, what, answer, size=len(answer))

    async def _ask_plainly(
        self, what: str, method: str, path: str, query: Mapping[str, str] | None,
        headers: dict[str, str], data: bytes, limit: Limit,
    ) -> tuple[int, bytes]:  # fmt: skip
        """The status and body of the answer of a server of our own."""
        plain, asked = self._session.plain, time.monotonic()
        assert plain
        try:
            async with asyncio.timeout(TIMEOUT):
                answer = await plain.ask(method, target(path, query), headers, data, limit.of_status)
        except Overlong as error:
            raise _too_long(what, error.limit) from None
        self._clock.learn(answer.headers.get("date"), asked)
        _check_encoding(what, answer.headers.get("content-encoding"))
        return answer.status, _checked(what, answer.body, limit)

    async def _ask(
        self, what: str, method: str, path: str, query: Mapping[str, str] | None,
        headers: dict[str, str], data: bytes, limit: Limit,
    ) -> tuple[int, bytes]:  # fmt: skip
        """The status and body of the answer of a tenant's server, or through a proxy."""
        asked, content_type = time.monotonic(), headers.get("Content-Type", "")
        async with self._session.http.request(
            method,
            url(self._host + path),
            params=query,
            data=aiohttp.BytesPayload(data, content_type=content_type) if content_type else None,
            headers=headers,
            allow_redirects=False,
            timeout=_LIMIT,
        ) as response:
            self._clock.learn(response.headers.get("Date"), asked)
            return response.status, await read_body(what, response, limit)

    @contextlib.contextmanager
    def _noticing(self, what: str) -> Iterator[None]:
        """Translate errors, and record failed authentication of either side."""
        if self._session.closed:
            raise Unreachable(f"{what}: the connection to this cluster has been given up")
        try:
            with _translated(what, tenant=self._tenant):
                yield
        except WindowboxError as error:
            if (
                isinstance(error.__cause__, (aiohttp.ClientSSLError, ssl.SSLError))
                or apiresponses.UNAUTHENTICATED in error.codes
            ):
                self._distrusted = True
            raise
        self._distrusted = False

    async def _headers(self, accept: str) -> dict[str, str]:
        headers = {"Accept": accept, "Accept-Encoding": "identity", "User-Agent": "windowbox"}
        if "BearerToken" in self._configuration.api_key:
            headers["Authorization"] = await self._configuration.get_api_key_with_prefix("BearerToken")
        return headers


@contextlib.asynccontextmanager
async def from_file(
    kubeconfig: Path | None, context: str | None = None, *, moves: bool = True
) -> AsyncIterator[Kube]:
    """The cluster of a kubeconfig file; without one, the cluster this process runs in.

    Credentials that are rotated are read again when their files change. They never lead to another cluster.
    If its API server `moves`, it is followed: for that, the namespace kube-system is read.
    """
    found = await credentials.read(kubeconfig, context)
    session = contextlib.AsyncExitStack()
    made = Kube(found.configuration, await session.enter_async_context(found.session()), found.trust)
    rotation = Rotation(made, kubeconfig, context, found, session, Kube, moves=moves)
    following = asyncio.create_task(rotation.follow(), name=f"credentials of {made.host}")
    try:
        yield made
    finally:
        following.cancel()
        await asyncio.wait([following])
        await rotation.aclose()


@contextlib.asynccontextmanager
async def from_text(kubeconfig: bytes, what: str, egress: Egress) -> AsyncIterator[Kube]:
    """The cluster of an untrusted kubeconfig: it must not run programs or read our files."""
    content = await asyncio.to_thread(kubeconfigs.harmless, kubeconfig, what)
    configuration = credentials.empty()
    with tempfile.TemporaryDirectory(prefix="windowbox-") as folder:
        try:
            await kube_config.load_kube_config_from_dict(
                content, client_configuration=configuration, temp_file_path=folder
            )
            tls, trust = credentials.tls(configuration), credentials.trust(configuration)
        except Exception:
            # The library expects valid kubeconfigs, so it may raise anything; and
            # its messages quote the Secret.
            raise Malformed(
                f"{what}: unusable kubeconfig: it needs clusters, users, contexts and current-context that "
                "fit together, with certificates and keys that can be read; try it with kubectl"
            ) from None
        if not str(configuration.api_key.get("BearerToken", "")).isprintable():
            raise Malformed(f"{what}: the kubeconfig's token holds a line break or other control characters")
        kubeconfigs.check_addresses(configuration.host, configuration.proxy, egress, what)
        kubeconfigs.check_proof(trust, what)
        kubeconfigs.check_key(configuration.key_file, what)
        async with credentials.opened(configuration.host or "", configuration.proxy, tls, egress) as session:
            yield Kube(configuration, session, trust, tenant=True)


def url(text: str) -> yarl.URL:
    """The URL; of a plain one, which nearly all are, not each letter is looked at."""
    return yarl.URL(text, encoded=_PLAIN.fullmatch(text) is not None)


def target(path: str, query: Mapping[str, str] | None) -> str:
    """The path and query as a request line spells them."""
    spelled = path if _PLAIN_PATH.fullmatch(path) else yarl.URL.build(path=path).raw_path
    return f"{spelled}?{urlencode(query)}" if query else spelled


def _selection(resource: Resource) -> dict[str, str]:
    labels = {"labelSelector": resource.selector} if resource.selector else {}
    return labels | ({"fieldSelector": f"metadata.name={resource.named}"} if resource.named else {})


def _accept(metadata_only: bool, *, listing: bool) -> str:
    if not metadata_only:
        return "application/json"
    return _METADATA.format("List" if listing else "")


async def _apart(read: Callable[..., T], *arguments: Any, size: int) -> T:
    """Parse a response; a big one in a thread, because that takes long."""
    return await asyncio.to_thread(read, *arguments) if size > _BIG else read(*arguments)


@contextlib.contextmanager
def _translated(what: str, *, tenant: bool) -> Iterator[None]:
    """Translate errors of aiohttp into WindowboxErrors."""
    try:
        yield
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        text = str(error) or type(error).__name__
        if tenant:
            # The author of the kubeconfig must not learn from our error which service listens at an address.
            logger.info("%s: %s", what, text)
            text = "no usable connection to the API server that the kubeconfig names"
        raise Unreachable(f"{what}: {text}") from error


_REFUSAL = 1 << 16
"""Bytes of the body of an error: Kubernetes needs a few hundred."""


class Limit(NamedTuple):
    """The limits of a response: its bytes, and its number of lists and mappings."""

    size: int
    parts: int
    """Three bytes make a mapping that takes seventy in memory."""

    def of_status(self, status: int) -> int:
        """The most bytes of an answer with this status."""
        return self.size if status < 300 else _REFUSAL


class Listing(NamedTuple):
    """The limits of all pages of a listing together."""

    objects: int
    """Also how many objects of one kind are watched."""
    size: int
    seconds: float
    """A continue token is valid for some five minutes, because etcd is compacted then."""


class Limits(NamedTuple):
    """The limits for each kind of response of an API server."""

    object: Limit
    """One object, or one line of a watch."""
    page: Limit
    """A page of a listing with several objects."""
    listing: Listing


# etcd takes 1.5 MiB for one object by default; as JSON a built-in kind takes up to three times as much.
OWN = Limits(Limit(16 << 20, 4_000_000), Limit(16 << 20, 200_000), Listing(10_000_000, 1 << 37, 600.0))
"""For clusters whose kubeconfig is a file of this machine."""
TENANT = Limits(Limit(4 << 20, 200_000), Limit(8 << 20, 200_000), Listing(100_000, 1 << 30, 300.0))
"""For clusters whose kubeconfig is in a Secret: their API server is not trusted."""


async def read_body(what: str, response: aiohttp.ClientResponse, limit: Limit) -> bytes:
    """The whole body. TooLarge as soon as it is known to be longer than the limit."""
    _check_encoding(what, response.headers.get("Content-Encoding"))
    most = limit.of_status(response.status)
    if (response.content_length or 0) > most:
        raise _too_long(what, most)
    chunks, size = [], 0
    while chunk := await response.content.readany():
        size += len(chunk)
        if size > most:
            raise _too_long(what, most)
        chunks.append(chunk)
    return _checked(what, b"".join(chunks), limit)


async def read_lines(what: str, response: aiohttp.ClientResponse, limit: Limit) -> AsyncIterator[list[bytes]]:
    """Whole lines, in batches as they arrive. TooLarge if one exceeds the limit."""
    _check_encoding(what, response.headers.get("Content-Encoding"))
    begun: list[bytes] = []
    size = 0
    while chunk := await response.content.readany():
        first, *others = chunk.split(b"\n")
        begun.append(first)
        size += len(first)
        if size > limit.size:
            raise _too_long(what, limit.size)
        if others:
            yield [_checked(what, line, limit) for line in (b"".join(begun), *others[:-1])]
            begun, size = [others[-1]], len(others[-1])


def _checked(what: str, text: bytes, limit: Limit) -> bytes:
    if len(text) > 2 * limit.parts and text.count(b"[") + text.count(b"{") > limit.parts:
        raise TooLarge(f"{what}: the answer has more than {limit.parts:,} lists and mappings")
    return text


def _check_encoding(what: str, encoding: str | None) -> None:
    # A kilobyte of gzip can expand to a megabyte, so compressed responses are neither requested nor read.
    if encoding not in (None, "identity"):
        raise Unreachable(f"{what}: the answer is compressed, which was not asked for")


def _too_long(what: str, most: int) -> TooLarge:
    return TooLarge(f"{what}: the answer has more than {most:,} bytes")
