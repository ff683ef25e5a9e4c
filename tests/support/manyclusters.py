"""A simulator of many clusters: the API servers of shoots, simulated on top of a single real API server.

What it says at `/shoot-<i>/…` is what the real server says of the part that belongs to that shoot: its
namespaces are called `shoot-<i>-…` there, its Nodes (and whatever else has no namespace) likewise, and all it
creates bears the label `shoot: shoot-<i>`. The controllers of the real server work for all of them at once:
they copy the label of a Service to its EndpointSlices.

Its limits: everybody is an administrator, so it simulates no authentication and no rights. All shoots share
versions, kinds, node ports, and `status.message`s that tell true names. Label selectors are combined with its
own; field selectors know only `metadata.name`. Bodies are JSON; a JSON patch is not translated. The resource
versions of a shoot are those of the real server, so they go on even where nothing changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import orjson
from aiohttp import web

from sandbox import files
from tests.support import apiservers, webserver
from tests.support.servers import ControlPlane
from windowbox.models.refs import NAMESPACES

_LABEL = "shoot"
_PASSED_ON = ("Accept", "Content-Type", "User-Agent")
_REFERRING = {"namespace", "nodeName"}
"""Keys anywhere in an object whose values are names that we change."""


class Target(NamedTuple):
    """What a path of the API names."""

    root: str
    """`/api/v1`, `/apis/discovery.k8s.io/v1`."""
    namespace: str
    rest: tuple[str, ...]
    """The kind; a name; a subresource."""


@dataclass
class ManyClusters:
    """Clusters that are called `shoot-1`, `shoot-2`, … Each can be cut off and repaired."""

    plane: ControlPlane
    url: str
    upstream: aiohttp.ClientSession

    def __post_init__(self) -> None:
        self._away: set[str] = set()
        self._hanging: set[str] = set()
        self._streams: dict[str, set[asyncio.Task[Any]]] = {}

    def kubeconfig(self, shoot: str) -> str:
        """The way into the API of a shoot, as text."""
        return apiservers.kubeconfig(self.url, shoot)

    def write_kubeconfig(self, shoot: str, folder: Path) -> Path:
        path = folder / f"{shoot}.kubeconfig"
        files.write_private(path, self.kubeconfig(shoot))
        return path

    async def add(self, shoot: str) -> None:
        """Let there be such a shoot, with a namespace `default`."""
        body = {"metadata": {"name": f"{shoot}-default", "labels": {_LABEL: shoot}}}
        async with self.upstream.post(self.plane.url + NAMESPACES.path(), json=body) as answer:
            assert answer.status in (201, 409), await answer.text()

    def cut(self, shoot: str) -> None:
        """Make its API server unreachable: open requests break off, new ones fail."""
        self._away.add(shoot)
        for stream in self._streams.get(shoot, ()):
            stream.cancel()

    def hang(self, shoot: str) -> None:
        """Answer no patch of this shoot any more."""
        self._hanging.add(shoot)

    def repair(self, shoot: str) -> None:
        self._away.discard(shoot)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One request to one shoot."""
        shoot, path = request.match_info["shoot"], "/" + request.match_info["path"]
        if shoot in self._away:
            return _hang_up(request)
        if shoot in self._hanging and request.method == "PATCH":
            await asyncio.Event().wait()  # until the client gives up
        task = asyncio.current_task()
        assert task is not None
        streams = self._streams.setdefault(shoot, set())
        streams.add(task)
        try:
            return await self._forward(request, Translation(shoot), path)
        except asyncio.CancelledError:
            if shoot not in self._away:
                raise
            return _hang_up(request)
        finally:
            streams.discard(task)

    async def _forward(self, request: web.Request, spoken: Translation, path: str) -> web.StreamResponse:
        target = _target(path)
        body = await request.read()
        if body and target and "json-patch" not in request.content_type:
            body = orjson.dumps(spoken.into(orjson.loads(body), target, whole=_is_whole(request, target)))
        async with self.upstream.request(
            request.method,
            self.plane.url + (spoken.path(target) if target else path),
            params=spoken.query(dict(request.query), target),
            headers={name: request.headers[name] for name in _PASSED_ON if name in request.headers},
            data=body or None,
        ) as found:
            if request.query.get("watch") in ("1", "true") and found.status == 200:
                return await _stream(request, found, spoken.out_of)
            answer = await found.read()
            if found.content_type == "application/json":
                answer = orjson.dumps(spoken.out_of(orjson.loads(answer)))
            return web.Response(status=found.status, body=answer, content_type=found.content_type)


@dataclass(frozen=True)
class Translation:
    """Between the names that a shoot knows, and those of the real server."""

    shoot: str

    def real(self, name: str) -> str:
        return f"{self.shoot}-{name}" if name else name

    def shown(self, name: str) -> str:
        return name.removeprefix(f"{self.shoot}-")

    def path(self, target: Target) -> str:
        rest = target.rest
        if target.namespace:
            return "/".join([target.root, "namespaces", self.real(target.namespace), *rest])
        if len(rest) > 1:
            rest = (rest[0], self.real(rest[1]), *rest[2:])
        return "/".join([target.root, *rest])

    def query(self, query: dict[str, str], target: Target | None) -> dict[str, str]:
        """Of a list or a watch: only what belongs to the shoot."""
        if target is None or len(target.rest) > 1:
            return query
        own = f"{_LABEL}={self.shoot}"
        asked = query.get("labelSelector")
        fields = query.get("fieldSelector", "")
        if not target.namespace and fields.startswith("metadata.name="):
            query |= {"fieldSelector": "metadata.name=" + self.real(fields.partition("=")[2])}
        return query | {"labelSelector": f"{asked},{own}" if asked else own}

    def into(self, object: dict[str, Any], target: Target, *, whole: bool) -> dict[str, Any]:
        """An object, or some of its fields, from a Shoot, as the real server stores it."""
        reported: dict[str, Any] = _renamed(object, self.real)
        metadata = reported.get("metadata") or {}
        if not target.namespace:
            for key in metadata.keys() & {"name", "generateName"}:
                metadata[key] = self.real(metadata[key])
        if whole:
            metadata["labels"] = {**(metadata.get("labels") or {}), _LABEL: self.shoot}
        return reported

    def out_of(self, object: dict[str, Any]) -> dict[str, Any]:
        """An object, a list or an event of a watch from the real server, as a Shoot sees it."""
        if isinstance(inner := object.get("object"), dict) and "type" in object:
            return {**object, "object": self.out_of(inner)}
        if isinstance(items := object.get("items"), list):
            return {**object, "items": [self.out_of(item) for item in items]}
        reported: dict[str, Any] = _renamed(object, self.shown)
        metadata = reported.get("metadata") or {}
        if "namespace" not in metadata and "name" in metadata:
            metadata["name"] = self.shown(metadata["name"])
        if _LABEL in (labels := metadata.get("labels") or {}):
            del labels[_LABEL]
        return reported


def _is_whole(request: web.Request, target: Target) -> bool:
    """Does the request bring an object, rather than changes to one?"""
    if request.method == "POST":
        return len(target.rest) == 1
    return request.method == "PUT" or "apply-patch" in request.content_type


def _target(path: str) -> Target | None:
    """What the path names; None if that is no kind: /version, /healthz."""
    parts = path.strip("/").split("/")
    depth = {"api": 2, "apis": 3}.get(parts[0], len(parts))
    root, rest = "/" + "/".join(parts[:depth]), parts[depth:]
    if not rest:
        return None
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        return Target(root, rest[1], tuple(rest[2:]))
    return Target(root, "", tuple(rest))


def _renamed(value: Any, rename: Callable[[str], str], key: str = "") -> Any:
    """A copy in which every reference to a namespace or a Node has another name."""
    if isinstance(value, dict):
        if key in ("labels", "annotations", "managedFields"):
            return dict(value)
        return {name: _renamed(inner, rename, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_renamed(inner, rename) for inner in value]
    return rename(value) if key in _REFERRING and isinstance(value, str) else value


async def _stream(
    request: web.Request, found: aiohttp.ClientResponse, show: Callable[[dict[str, Any]], dict[str, Any]]
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    async for line in found.content:
        await response.write(orjson.dumps(show(orjson.loads(line))) + b"\n")
    await response.write_eof()
    return response


def _trust(plane: ControlPlane) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(plane.api.ca.certificate))
    context.load_cert_chain(plane.api.user.certificate, plane.api.user.key)
    return context


def _hang_up(request: web.Request) -> web.Response:
    if request.transport:
        request.transport.abort()
    return web.Response(status=503)


@contextlib.asynccontextmanager
async def many_clusters(plane: ControlPlane) -> AsyncIterator[ManyClusters]:
    """The simulator, on a port of 127.0.0.1 that the system chose."""
    upstream = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=_trust(plane), limit=0),
        timeout=aiohttp.ClientTimeout(total=None, connect=15),
        read_bufsize=1 << 22,  # a line is a whole object
        headers={"Accept-Encoding": "identity"},
    )
    async with upstream:
        clusters = ManyClusters(plane, "", upstream)
        every = web.route("*", "/{shoot}/{path:.*}", clusters.answer)
        options: Any = {"tls": webserver.identity().tls, "handler_cancellation": True, "shutdown_timeout": 1}
        async with webserver.serving(every, **options) as clusters.url:
            yield clusters
