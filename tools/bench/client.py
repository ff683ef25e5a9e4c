"""The load generator: requests to the API server, and when watches show their effects."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TypeVar

import aiohttp
import orjson

from sandbox.servers.apiserver import ApiServer
from sandbox.servers.zoneserver import ZONE
from windowbox.clients.kubernetes import apiresponses
from windowbox.errors import Refused, Unreachable, WindowboxError
from windowbox.models.extensions import OPERATION, TIMESTAMP
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, NAMESPACES, Resource

_Item = TypeVar("_Item")

NAMESPACE = "bench"
WRITERS = 32
"""Concurrent requests of `each`."""


async def each(
    items: Iterable[_Item], act: Callable[[_Item], Awaitable[None]], writers: int = WRITERS
) -> dict[_Item, float]:
    """Call `act` for all items, `writers` at a time. Returns the start time of each."""
    # Writers share the iterator, so that a slow request does not hold up the items of others.
    left, begun = iter(items), dict[_Item, float]()

    async def write() -> None:
        for item in left:
            begun[item] = time.perf_counter()
            await act(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(writers):
            group.create_task(write())
    return begun


async def until(look: Callable[[], Awaitable[_Item]], patience: float, pause: float = 0.1) -> _Item:
    """Poll what sends no event, also while servers refuse or restart. Returns the first true answer."""
    async with asyncio.timeout(patience):
        while True:
            with contextlib.suppress(WindowboxError):
                if found := await look():
                    return found
            await asyncio.sleep(pause)


@contextlib.asynccontextmanager
async def background(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    """Run `work` beside the block; its failure ends the block."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work, name=name)
        yield
        task.cancel()


class Client:
    """Requests to the API server by plain HTTP, without the cost of a library."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def prepare(self) -> None:
        """Create the namespace of the records."""
        namespace = {"metadata": {"name": NAMESPACE}}
        await self.request("POST", NAMESPACES.path(), namespace, accepted=(201, 409))

    async def request_record(self, number: int) -> None:
        """Create a DNSRecord with a request of its reconcile, as gardenlet does."""
        await self.create(number, reconcile_request()["metadata"])

    async def create(self, number: int, metadata: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Create a DNSRecord."""
        record = {
            "apiVersion": "extensions.gardener.cloud/v1alpha1",
            "kind": "DNSRecord",
            "metadata": {"name": name(number), "namespace": NAMESPACE, **metadata},
            "spec": {
                "type": "local",
                "name": f"{name(number)}.bench.{ZONE}",
                "recordType": "A",
                "values": [_address(number, 10)],
                "secretRef": {"name": "dns", "namespace": "garden"},
            },
        }
        await self.request("POST", DNSRECORDS.path(NAMESPACE), record)

    async def change(self, number: int) -> None:
        """Change the address of a DNSRecord, and request a reconcile."""
        patch = {
            "metadata": {"annotations": {OPERATION: "reconcile"}},
            "spec": {"values": [_address(number, 11)]},
        }
        await self.request("PATCH", DNSRECORDS.path(NAMESPACE, name(number)), patch)

    async def delete(self, number: int) -> None:
        """Delete a DNSRecord."""
        await self.request("DELETE", DNSRECORDS.path(NAMESPACE, name(number)))

    async def request(
        self, method: str, path: str, body: object = None, accepted: tuple[int, ...] = (200, 201)
    ) -> Any:
        """The answer, decoded; Refused if its status is not among the accepted ones."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = body if isinstance(body, bytes) else orjson.dumps(body) if body is not None else None
        headers = {"Content-Type": kind}
        with translated(f"{method} {path}"):
            async with self._session.request(method, path, data=data, headers=headers) as answer:
                content = apiresponses.shallowly_decoded(path, await answer.read())
        if answer.status not in accepted:
            raise Refused(f"{method} {path}: {content.get('message')}")
        return content

    async def version(self, resource: Resource, namespace: str) -> str:
        """The current resource version, from which a watch can start."""
        listing = await self.request("GET", resource.path(namespace) + "?limit=1")
        return str(listing["metadata"]["resourceVersion"])

    async def changes(
        self, version: str, resource: Resource, namespace: str, only: Callable[[bytes], bool] = bool
    ) -> AsyncIterator[tuple[float, str, Object]]:
        """Watch one kind for ever: the time, type and object of each event whose line is `only`."""
        query = {"watch": "1", "timeoutSeconds": "7200"}
        # The API server ends a watch that is read too slowly: continue from the last version seen.
        while True:
            params = query | {"resourceVersion": version}
            async with self._session.get(resource.path(namespace), params=params) as answer:
                rest = b""
                async for chunk in answer.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    now = time.perf_counter()
                    for event in map(orjson.loads, filter(only, lines)):
                        if event["type"] == "ERROR":
                            raise Refused(f"watch: {event['object'].get('message')}")
                        found = Object(event["object"])
                        version = found.resource_version
                        yield now, event["type"], found


class Observer:
    """Records when each object is done, or deleted."""

    def __init__(self, resource: Resource, holds: Callable[[Object], bool], seconds_each: float) -> None:
        self._resource, self._holds, self._seconds_each = resource, holds, seconds_each
        self.seen: dict[str, float] = {}
        """When each object was done, or gone."""
        self.objects: dict[str, Object] = {}
        """These objects, as they were then."""
        self._missing: set[str] = set()
        self._complete = asyncio.Event()
        self._gone = False

    @classmethod
    @contextlib.asynccontextmanager
    async def watching(
        cls,
        client: Client,
        resource: Resource = DNSRECORDS,
        namespace: str = NAMESPACE,
        holds: Callable[[Object], bool] | None = None,
        only: Callable[[bytes], bool] = bool,
        seconds_each: float = 0.1,
    ) -> AsyncIterator[Observer]:
        """Watch one kind; by default objects are recorded when they are done.

        Only events whose lines are `only` are read. `all_of` waits for a minute, plus `seconds_each`.
        """
        observer = cls(resource, holds or done, seconds_each)
        version = await client.version(resource, namespace)

        async def follow() -> None:
            async for now, type_, found in client.changes(version, resource, namespace, only):
                if (type_ == "DELETED") if observer._gone else observer._holds(found):
                    # Later events of an object that is done do not count.
                    if found.name not in observer.seen:
                        observer.seen[found.name], observer.objects[found.name] = now, found
                    observer._missing.discard(found.name)
                    if not observer._missing:
                        observer._complete.set()

        async with background(follow(), "observer"):
            yield observer

    def expect(self, *, gone: bool = False) -> None:
        """Reset; from now on record objects that are done or, with `gone`, deleted."""
        self.seen, self.objects, self._gone = {}, {}, gone

    async def all_of(self, names: Iterable[str]) -> dict[str, float]:
        """Wait for all of these objects. Returns the time of each object seen."""
        # Events may have arrived before this call: the watch began before the first request.
        self._complete.clear()
        self._missing = set(names) - self.seen.keys()
        patience = 60 + self._seconds_each * len(self._missing)
        try:
            async with asyncio.timeout(patience):
                if self._missing:
                    await self._complete.wait()
        except TimeoutError:
            few = ", ".join(sorted(self._missing)[:3])
            raise Unreachable(
                f"{len(self._missing)} {self._resource.plural} are not done after {patience:.0f} s: {few} …"
            ) from None
        return self.seen


def done(found: Object) -> bool:
    """Whether the object's status reports success for its latest generation and request."""
    return (
        found.last_operation.get("state") == "Succeeded"
        and found.status.get("observedGeneration") == found.generation
        and OPERATION not in found.annotations
        and found.annotations.get(TIMESTAMP, "")[:19] <= str(found.last_operation.get("lastUpdateTime"))
    )


def reconcile_request() -> dict[str, Any]:
    """A patch that requests a reconcile; by its timestamp, earlier reports do not count as its result."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"metadata": {"annotations": {OPERATION: "reconcile", TIMESTAMP: now}}}


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise Unreachable where aiohttp fails: such a request counts as failed, and the benchmark goes on."""
    try:
        yield
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Unreachable(f"{what}: {str(error) or type(error).__name__}") from error


def name(number: int) -> str:
    """The name of a DNSRecord."""
    return f"record-{number:05}"


def _address(number: int, first: int) -> str:
    return f"{first}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


@contextlib.asynccontextmanager
async def opened(api: ApiServer) -> AsyncIterator[Client]:
    """An administrator's client of the sandbox's API server."""
    trust = ssl.create_default_context(cafile=str(api.ca.certificate))
    trust.load_cert_chain(api.user.certificate, api.user.key)
    connector = aiohttp.TCPConnector(ssl=trust, limit=WRITERS + 2)
    unlimited = aiohttp.ClientTimeout(total=None, sock_connect=10)
    async with aiohttp.ClientSession(api.url, connector=connector, timeout=unlimited) as session:
        yield Client(session)
