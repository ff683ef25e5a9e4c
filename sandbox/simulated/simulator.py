"""The node simulator: listens for Services where simulated nodes would, steered through the API alone.

Simulated nodes have IPv4 addresses of loopback, because IPv6 has only one of them. No Pod is behind a port:
the simulator answers in place of all. Of kube-proxy it simulates which ports are open, which refuse, which
drop, and the answers to health checks; not ClusterIPs, session affinity or source ranges.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from sandbox.simulated import openports
from sandbox.simulated.openports import Key, Node, OpenPorts, Slice
from sandbox.simulated.sockets import Sockets
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import TransientError, WatchExpired
from windowbox.models.objects import Object
from windowbox.models.refs import ENDPOINT_SLICES, NODES, SERVICES, Resource

logger = logging.getLogger(__name__)

_AGAIN = 1.0
"""Seconds until the next attempt to open a port that another process holds."""

T = TypeVar("T")

_PAUSE = 0.5


class Reflector(Generic[T]):
    """The objects of a kind, parsed by `read` (None: ignored); `changed` is called with old and new value."""

    def __init__(
        self,
        kube: Kube,
        resource: Resource,
        read: Callable[[Object], T | None],
        changed: Callable[[tuple[str, str], T | None, T | None], None],
    ) -> None:
        self.values: dict[tuple[str, str], T] = {}
        self.listed = asyncio.Event()
        self.resource = resource
        self._kube = kube
        self._read = read
        self._changed = changed

    async def run(self) -> None:
        """List and watch for ever. Lists again after every gap, so that no change is missed."""
        while True:
            try:
                found: set[tuple[str, str]] = set()
                version = ""
                async for page in self._kube.pages(self.resource):
                    version = version or page.resource_version
                    found.update(self._see(Object(raw)) for raw in page.items)
                for gone in self.values.keys() - found:
                    self._note(gone, None)
                self.listed.set()
                while True:
                    async for events in self._kube.watch(self.resource, version):
                        for event in events:
                            object = Object(event.object)
                            if event.type == "DELETED":
                                self._note((object.namespace, object.name), None)
                            elif event.type != "BOOKMARK":
                                self._see(object)
                        version = Object(events[-1].object).resource_version
            except WatchExpired:
                logger.info("%s: watch expired; listing again", self.resource.id)
            except TransientError as error:
                logger.warning("%s: again in %.1f s: %s", self.resource.id, _PAUSE, error)
                await asyncio.sleep(_PAUSE)

    def _see(self, object: Object) -> tuple[str, str]:
        key = object.namespace, object.name
        self._note(key, self._read(object))
        return key

    def _note(self, key: tuple[str, str], new: T | None) -> None:
        old = self.values.get(key)
        if old == new:
            return
        if new is None:
            del self.values[key]
        else:
            self.values[key] = new
        self._changed(key, old, new)


class Simulator:
    """Opens and closes open_ports as Services, EndpointSlices and Nodes change; idle while they do not."""

    def __init__(self, kube: Kube) -> None:
        self._nodes = Reflector(kube, NODES, openports.node, self._wake_all)
        self._services = Reflector(kube, SERVICES, openports.service, lambda key, *_: self._wake([Key(*key)]))
        self._slices = Reflector(kube, ENDPOINT_SLICES, openports.endpoint_slice, self._slice_changed)
        self._slices_of: dict[Key, dict[tuple[str, str], Slice]] = {}
        self._listening = Sockets(self._silent)
        self._open_ports: dict[Key, OpenPorts] = {}
        """By Service; those of a node itself under its name without a namespace."""
        self._unopened: OpenPorts = {}
        self._dirty: set[Key] = set()
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Simulate for ever."""
        followed = (self._nodes, self._services, self._slices)
        async with asyncio.TaskGroup() as group:
            for following in followed:
                group.create_task(following.run(), name=f"follow {following.resource.id}")
            for following in followed:
                await following.listed.wait()
            while True:
                await self._catch_up()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_AGAIN if self._unopened else None):
                        await self._woken.wait()

    def _wake_all(self, key: tuple[str, str], old: Node | None, new: Node | None) -> None:
        # A node changes the ports of all Services.
        self._wake([Key("", key[1]), *(service.key for service in self._services.values.values())])

    def _slice_changed(self, key: tuple[str, str], old: Slice | None, new: Slice | None) -> None:
        if old:
            del self._slices_of[old.service][key]
            if not self._slices_of[old.service]:
                del self._slices_of[old.service]
        if new:
            self._slices_of.setdefault(new.service, {})[key] = new
        self._wake(part.service for part in (old, new) if part)

    def _silent(self, name: str) -> bool:
        node = self._nodes.values.get(("", name))
        return node is not None and node.behaviour in ("hang", "drop")

    def _wake(self, keys: Iterable[Key]) -> None:
        self._dirty.update(keys)
        self._woken.set()

    async def _catch_up(self) -> None:
        """Apply all changes that have accumulated."""
        began = time.monotonic()
        self._woken.clear()
        dirty, self._dirty = self._dirty, set()
        before = {key: self._open_ports.pop(key, {}) for key in dirty}
        nodes = self._nodes.values
        for key in dirty:
            wanted: OpenPorts = {}
            if not key.namespace:
                node = nodes.get(("", key.name))
                wanted = openports.of_node(node) if node else {}
            elif service := self._services.values.get(key):
                slices = self._slices_of.get(key, {}).values()
                wanted = openports.of_service(service, slices, nodes.values())
            if wanted:
                self._open_ports[key] = wanted
        changes = [(before[key], self._open_ports.get(key, {})) for key in dirty]
        # Close first, so that a port can pass from one Service to the next.
        for place in (place for old, new in changes for place in old.keys() - new.keys()):
            self._listening.close(place)
            self._unopened.pop(place, None)
        to_open, self._unopened = self._unopened, {}
        for old, new in changes:
            to_open |= {place: port for place, port in new.items() if old.get(place) != port}
        for place, port in to_open.items():
            try:
                await self._listening.open(place, port)
            except OSError as error:
                self._unopened[place] = port
                reason = error.strerror or error
                logger.warning("%s cannot be opened, again in %.0f s: %s", place, _AGAIN, reason)
        if to_open:
            took = time.monotonic() - began
            logger.debug("%d open_ports changed in %.3f s; %d open", len(to_open), took, len(self._listening))
