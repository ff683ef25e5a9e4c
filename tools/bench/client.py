"""The load generator: creates, changes and deletes DNSRecords, and watches their status."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import aiohttp
import orjson

from sandbox.servers.apiserver import ApiServer
from sandbox.servers.zoneserver import ZONE
from windowbox.clients.kubernetes import apiresponses
from windowbox.errors import Refused, Unreachable
from windowbox.models.extensions import OPERATION, TIMESTAMP
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, NAMESPACES, Resource

NAMESPACE = "bench"
WRITERS = 32


class Client:
    """Requests to the API server by plain HTTP, without the cost of a library."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def prepare(self) -> None:
        namespace = {"metadata": {"name": NAMESPACE}}
        await self.request("POST", NAMESPACES.path(), namespace, accepted=(201, 409))

    async def create(self, number: int) -> None:
        await self.request("POST", DNSRECORDS.path(NAMESPACE), manifest(number))

    async def change(self, number: int) -> None:
        """Change the record's address, and set the operation annotation."""
        patch = {
            "metadata": {"annotations": {OPERATION: "reconcile"}},
            "spec": {"values": [_address(number, 11)]},
        }
        await self.request("PATCH", DNSRECORDS.path(NAMESPACE, name(number)), patch)

    async def delete(self, number: int) -> None:
        await self.request("DELETE", DNSRECORDS.path(NAMESPACE, name(number)))

    async def request(
        self, method: str, path: str, body: object = None, accepted: tuple[int, ...] = (200, 201)
    ) -> Any:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = body if isinstance(body, bytes) else orjson.dumps(body) if body is not None else None
        headers = {"Content-Type": kind}
        with translated(f"{method} {path}"):
            async with self._session.request(method, path, data=data, headers=headers) as answer:
                content = apiresponses.shallowly_decoded(path, await answer.read())
        if answer.status not in accepted:
            raise Refused(f"{method} {path}: {content.get('message')}")
        return content

    async def each(
        self,
        numbers: Iterable[int],
        act: Callable[[int], Awaitable[None]],
        named: Callable[[int], str] | None = None,
    ) -> dict[str, float]:
        """`act` on all of them with all writers concurrently. Returns the start time of each."""
        left, begun, named = iter(numbers), dict[str, float](), named or name

        async def writer() -> None:
            for number in left:
                begun[named(number)] = time.perf_counter()
                await act(number)

        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(writer())
        return begun

    async def version(self, resource: Resource = DNSRECORDS, namespace: str = NAMESPACE) -> str:
        """The current resource version, from which a watch can start."""
        listing = await self.request("GET", resource.path(namespace) + "?limit=1")
        return str(listing["metadata"]["resourceVersion"])

    async def events(
        self, version: str, resource: Resource = DNSRECORDS, namespace: str = NAMESPACE
    ) -> AsyncIterator[list[bytes]]:
        """Watch events of one kind, as raw lines."""
        path = resource.path(namespace)
        query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "7200"}
        async with self._session.get(path, params=query) as answer:
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                yield lines


class Observer:
    """Records when each object is done, or deleted."""

    def __init__(
        self,
        resource: Resource,
        namespace: str,
        holds: Callable[[Object], bool],
        only: Callable[[bytes], bool],
        seconds_each: float = 0.1,
    ) -> None:
        self._resource, self._namespace, self._holds, self._only = resource, namespace, holds, only
        self._seconds_each = seconds_each
        self._seen: dict[str, float] = {}
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
        """Watch one kind, by default until objects are done. Lines that are not among `only` are not read.

        After a minute, and `seconds_each` for each object, that counts as too late.
        """
        observer = cls(resource, namespace, holds or done, only, seconds_each)
        version = await client.version(resource, namespace)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(observer._watch(client, version), name="observer")
            yield observer
            watching.cancel()

    @property
    def seen(self) -> dict[str, float]:
        """When each object was done, or gone."""
        return self._seen

    def expect(self, *, gone: bool = False) -> None:
        """Reset; from now on record objects that are done or, with `gone`, deleted."""
        self._seen, self._gone = {}, gone

    async def all_of(self, names: Iterable[str]) -> dict[str, float]:
        """Wait for all of these objects; returns the time of each."""
        self._complete.clear()
        self._missing = set(names) - self._seen.keys()
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
        return self._seen

    async def _watch(self, client: Client, version: str) -> None:
        # The server ends a watch that is read too slowly; it goes on from the last version seen.
        while True:
            async for lines in client.events(version, self._resource, self._namespace):
                now = time.perf_counter()
                for event in map(orjson.loads, filter(self._only, lines)):
                    if event["type"] == "ERROR":
                        raise Refused(f"watch: {event['object'].get('message')}")
                    version = event["object"]["metadata"]["resourceVersion"]
                    self._note(event, now)

    def _note(self, event: dict[str, Any], now: float) -> None:
        found = Object(event["object"])
        if (event["type"] == "DELETED") if self._gone else self._holds(found):
            self._seen.setdefault(found.name, now)
            self._missing.discard(found.name)
            if not self._missing:
                self._complete.set()


def done(found: Object) -> bool:
    """Whether the object's status reports success for its latest generation and request."""
    return (
        found.last_operation.get("state") == "Succeeded"
        and found.status.get("observedGeneration") == found.generation
        and OPERATION not in found.annotations
        and found.annotations.get(TIMESTAMP, "")[:19] <= str(found.last_operation.get("lastUpdateTime"))
    )


def reconcile_request() -> dict[str, Any]:
    """A patch that requests a reconcile, and tells when: reports of before do not count."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"metadata": {"annotations": {OPERATION: "reconcile", TIMESTAMP: now}}}


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """A server that does not answer is a failed request, and no end of the benchmark."""
    try:
        yield
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Unreachable(f"{what}: {str(error) or type(error).__name__}") from error


def name(number: int) -> str:
    return f"record-{number:05}"


def manifest(number: int) -> dict[str, Any]:
    return {
        "apiVersion": "extensions.gardener.cloud/v1alpha1",
        "kind": "DNSRecord",
        "metadata": {"name": name(number), "namespace": NAMESPACE},
        "spec": {
            "type": "local",
            "name": f"{name(number)}.bench.{ZONE}",
            "recordType": "A",
            "values": [_address(number, 10)],
            "secretRef": {"name": "dns", "namespace": "garden"},
        },
    }


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
