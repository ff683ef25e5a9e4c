"""Simulated API servers of many clusters, in one process: lists and watches of objects in memory.

Requests to `/<cluster>/…` are for that cluster. There is no authorization, a listing has one page, and a
watch from before the last hundred events of a kind expires.
Objects are changed by `put` and `delete`, or by `POST /<cluster>/-/fill?kind=…&count=…`; `GET /-/counts`
counts listings and watches. Run as a program it prints its URL and its authority, and serves until it is
killed.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from ssl import SSLObject
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import orjson
import yaml
from aiohttp import web

from tests.support import webserver
from windowbox.kinds import RESOURCES
from windowbox.models.refs import Resource

_REMEMBERED = 100

Raw = dict[str, Any]
_Connections = WeakKeyDictionary[SSLObject, bool]


class _Kind(NamedTuple):
    """A kind of a cluster."""

    cluster: str
    path: str


@dataclass
class _Store:
    """The objects of a kind of a cluster, and its last events."""

    objects: dict[tuple[str, str], Raw] = field(default_factory=dict)
    remembered: int = _REMEMBERED
    events: deque[tuple[int, bytes]] = field(default_factory=deque)
    forgotten: int = 0
    """The version of the newest event that was dropped."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class ApiServers:
    """Clusters exist from their first request on."""

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        """A watch may begin `remembered` events of its kind ago."""
        self.url = ""
        self.listings: Counter[str] = Counter()
        """By cluster."""
        self.watches: Counter[str] = Counter()
        """Those that are open, by cluster."""
        self.connections: defaultdict[str, WeakKeyDictionary[SSLObject, bool]] = defaultdict(
            WeakKeyDictionary
        )
        """Those that are open, by cluster, and whether each has resumed a TLS session."""
        self.away: set[str] = set()
        """Clusters that answer 503 to everything."""
        self.unknowing: set[str] = set()
        """Clusters that answer 401 to everything."""
        self._version = 1
        self._stores: dict[_Kind, _Store] = defaultdict(lambda: _Store(remembered=remembered))
        self._objects: dict[_Kind, Raw] = {}
        """By the path of each."""
        self.hanging: set[str] = set()
        """Names of objects whose requests are never answered."""
        self.hung = 0
        """How many requests were never answered."""

    def kubeconfig(self, cluster: str) -> str:
        return kubeconfig(self.url, cluster)

    def put(self, cluster: str, resource: Resource, body: Mapping[str, Any]) -> Raw:
        """Create or change an object."""
        store = self._stores[_Kind(cluster, resource.path())]
        metadata = dict(body["metadata"])
        key = (metadata.get("namespace", ""), metadata["name"])
        before = store.objects.get(key)
        self._version += 1
        metadata["resourceVersion"] = str(self._version)
        metadata["uid"] = before["metadata"]["uid"] if before else f"uid-{self._version}"
        version = f"{resource.group}/{resource.version}" if resource.group else resource.version
        made = {"apiVersion": version, "kind": resource.kind, **body, "metadata": metadata}
        store.objects[key] = made
        self._objects[_Kind(cluster, resource.path(*key))] = made
        self._record(store, "MODIFIED" if before else "ADDED", made)
        return made

    def names(self, cluster: str, resource: Resource) -> set[tuple[str, str]]:
        """The namespaces and names of the objects that there are."""
        return set(self._stores[_Kind(cluster, resource.path())].objects)

    def delete(self, cluster: str, resource: Resource, namespace: str, name: str) -> None:
        store = self._stores[_Kind(cluster, resource.path())]
        gone = store.objects.pop((namespace, name))
        del self._objects[_Kind(cluster, resource.path(namespace, name))]
        self._version += 1
        metadata = {**gone["metadata"], "resourceVersion": str(self._version)}
        self._record(store, "DELETED", {**gone, "metadata": metadata})

    def fill(self, cluster: str, resource: Resource, count: int) -> None:
        """Create `count` objects of some hundred bytes, as Shoots have them."""
        for number in range(count):
            name = f"{resource.plural}-{number}"
            metadata = {"name": name, **({"namespace": "default"} if resource.namespaced else {})}
            labels = {"app": name, "shoot.gardener.cloud/name": cluster}
            spec = {"filler": "x" * 400, "selector": labels}
            self.put(cluster, resource, {"metadata": {**metadata, "labels": labels}, "spec": spec})

    def _record(self, store: _Store, type: str, object: Raw) -> None:
        if len(store.events) == store.remembered:
            store.forgotten = store.events.popleft()[0]
        store.events.append((self._version, orjson.dumps({"type": type, "object": object}) + b"\n"))
        store.changed.set()
        store.changed = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One request to one cluster."""
        cluster, path = request.match_info["cluster"], "/" + request.match_info["path"]
        if request.transport and (tls := request.transport.get_extra_info("ssl_object")):
            self.connections[cluster][tls] = tls.session_reused
        if cluster in self.away:
            return web.Response(status=503)
        if cluster in self.unknowing:
            return web.Response(status=401)
        if path == "/version":
            return web.json_response({"gitVersion": "v1.0.0-simulated"})
        if found := self._objects.get(_Kind(cluster, path)):
            if found["metadata"]["name"] in self.hanging:
                self.hung += 1
                await asyncio.Event().wait()  # until the client gives up
            return web.Response(body=orjson.dumps(found), content_type="application/json")
        store = self._stores[_Kind(cluster, path)]
        if request.query.get("watch"):
            return await self._watch(request, cluster, store)
        self.listings[cluster] += 1
        listing = {"metadata": {"resourceVersion": str(self._version)}, "items": [*store.objects.values()]}
        return web.Response(body=orjson.dumps(listing), content_type="application/json")

    async def _watch(self, request: web.Request, cluster: str, store: _Store) -> web.StreamResponse:
        seen = int(request.query["resourceVersion"])
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        if seen < store.forgotten:
            return web.json_response({"code": 410, "reason": "Expired"}, status=410)
        await response.prepare(request)
        self.watches[cluster] += 1
        try:
            while cluster not in self.away:
                changed = store.changed
                for version, line in list(store.events):
                    if version > seen:
                        seen = version
                        await response.write(line)
                await changed.wait()
        except ConnectionResetError:
            pass  # the client has closed the watch
        finally:
            self.watches[cluster] -= 1
        return response

    async def answer_fill(self, request: web.Request) -> web.Response:
        resource = RESOURCES[request.query["kind"]]
        self.fill(request.match_info["cluster"], resource, int(request.query["count"]))
        return web.Response()

    async def answer_counts(self, request: web.Request) -> web.Response:
        counts = {"listings": self.listings.total(), "watches": self.watches.total()}
        return web.json_response(counts)


def kubeconfig(url: str, cluster: str, authority: bytes | None = None) -> str:
    """A kubeconfig of a cluster whose server has the identity of this process, or that of this authority."""
    data = base64.b64encode(authority or webserver.identity().authority).decode()
    proof = {"certificate-authority-data": data} if url.startswith("https") else {}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": cluster,
            "clusters": [{"name": cluster, "cluster": {"server": f"{url}/{cluster}", **proof}}],
            "users": [{"name": cluster, "user": {"token": "nobody-looks-at-it"}}],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
        }
    )


@contextlib.asynccontextmanager
async def api_servers(remembered: int = _REMEMBERED) -> AsyncIterator[ApiServers]:
    """The simulator, on a port of 127.0.0.1 that the system chose."""
    servers = ApiServers(remembered)
    routes = (
        web.get("/-/counts", servers.answer_counts),
        web.post("/{cluster}/-/fill", servers.answer_fill),
        web.route("*", "/{cluster}/{path:.*}", servers.answer),
    )
    tls = webserver.identity().tls
    async with webserver.serving(*routes, tls=tls, handler_cancellation=True) as servers.url:
        yield servers


async def _main() -> None:
    async with api_servers() as servers:
        print(servers.url, base64.b64encode(webserver.identity().authority).decode(), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    import uvloop

    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(_main())
