"""`windowbox admit`: the process that answers admission requests. It also answers without the bus."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

from bus import subjects
from bus.leases import presence
from bus.leases.leases import Leases
from bus.messages import Reason, Wish
from bus.transport.connection import Bus, connected
from bus.workqueue.pool import PROCESS
from bus.workqueue.queue import Queue
from webhooks import table
from webhooks.journal import Journal
from webhooks.keeping import Keeping, Served
from webhooks.lookups import Lookups
from webhooks.review import Context
from webhooks.server import Certificates, Server
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.leaderelection import LeaderElection
from windowbox.errors import Missing, WindowboxError
from windowbox.models.gardener.images import ImageVector
from windowbox.models.refs import CLUSTERS, CONTROL_PLANES, RUNTIME
from windowbox.models.webhooks import Target
from windowbox.rights import webhookconfigurations as configurations
from windowbox.settings.settings import Settings
from windowbox.telemetry import http, stalls, tracing

logger = logging.getLogger(__name__)

_AGAIN = 1.0
_MIRRORED = frozenset({CLUSTERS.id})
_CONTROL_PLANES = "controlplane"
"""The pool that hands configurations over to Shoots."""


class Admitting:
    """One process that serves webhooks."""

    def __init__(self, settings: Settings, served: Served, process: str) -> None:
        self._settings = settings
        self._process = process
        self._served = served
        self._bus: Bus | None = None
        self._role = "admission" if served.garden else "admit"
        self._lease = configurations.lease(served.settings, garden=served.garden)
        self._certificates = Certificates()
        self._journal = Journal(process, has_bus=not self._by_lease)
        self.keeping = Keeping(served, self._certificates, self._told)
        mirrored = frozenset[str]() if served.garden else _MIRRORED
        self._lookups = Lookups(served.called, lambda: self._bus, mirrored)
        self._address = ""
        self.metrics = ""

    @property
    def ready(self) -> bool:
        return bool(self._address)

    async def run(self) -> None:
        """Answer until cancelled."""
        await self._begin()
        settings = self._settings
        given = Context(settings.webhooks, images=_images(settings.kinds.images))
        server = Server(self._webhooks(), given, self._lookups.look, self._journal)
        async with server.listening(self._certificates) as self._address:
            logger.info("webhooks at https://%s; metrics at http://%s/metrics", self._address, self.metrics)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self.keeping.follow(), name="certificates")
                    group.create_task(self._elected() if self._by_lease else self._on_bus(), name="leader")
            finally:
                self._address = ""  # not ready any more, while the last are answered

    def describe(self) -> dict[str, Any]:
        """What `windowbox status` shows of this process."""
        renewal = self.keeping.renewal
        return {
            "role": self._role,
            "process": self._process,
            "metrics": self.metrics,
            "ready": self.ready,
            "webhooks": self._address,
            "certificate": self.keeping.shown,
            **({"renewal": renewal.isoformat()} if renewal else {}),
        }

    @property
    def _by_lease(self) -> bool:
        return self._served.garden and bool(self._served.settings.garden_lease)

    async def _elected(self) -> None:
        """Keep the configurations whenever the Lease of the API is ours: there is no bus."""
        given = self._served.settings
        election = LeaderElection(self._served.own, given.namespace, given.garden_lease, self._process)
        await election.while_leading(self.keeping.keep)

    def _webhooks(self) -> list[Any]:
        targets = (Target.GARDEN,) if self._served.garden else (Target.SEED, Target.SHOOT)
        wanted = configurations.served(self._served.settings, *targets)
        return [table.WEBHOOKS[one.name] for one in wanted]

    async def _begin(self) -> None:
        """Get a certificate. Without one there is nothing to listen with."""
        while True:
            try:
                return await self.keeping.begin()
            except WindowboxError as error:
                logger.warning("%s; again in %.0f s", error, _AGAIN)
                await asyncio.sleep(_AGAIN)

    async def _on_bus(self) -> None:
        """What needs the bus, whenever it is there."""
        access = self._settings.nats.access(f"windowbox {self._role}")
        while True:
            try:
                async with connected(access) as bus, presence.answering(bus, self.describe):
                    await self._with(bus)
            except* WindowboxError as group:
                logger.warning("%s; reviews are answered all the same", _first(group))
            finally:
                self._bus = None
            await asyncio.sleep(_AGAIN)

    async def _with(self, bus: Bus) -> None:
        self._bus = bus
        leases = Leases(bus, self._process, "admit")
        async with asyncio.TaskGroup() as group:
            group.create_task(bus.watch(), name="bus")
            group.create_task(leases.run(), name="leases")
            group.create_task(leases.while_held(self._lease, self.keeping.keep), name="configurations")
            group.create_task(self._journal.write(bus), name="journal")

    async def _told(self) -> None:
        """Have all ControlPlanes reconciled, which hand the configuration of today over to their Shoots."""
        bus = self._bus
        if self._served.garden or bus is None:
            return
        queue = Queue(bus, _CONTROL_PLANES)
        async for found in self._served.called.objects(CONTROL_PLANES, metadata_only=True):
            ref = found.ref(RUNTIME, CONTROL_PLANES.id)
            await queue.wish(subjects.key(ref), Wish(reason=Reason.DRIFT))


def _images(vector: ImageVector) -> dict[str, str]:
    """The images by name. Those that depend on versions are for none."""
    found = {}
    for name in {one.name for one in vector.images}:
        with contextlib.suppress(Missing):
            found[name] = vector.image(name)
    return found


def _first(group: BaseExceptionGroup[WindowboxError]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@contextlib.asynccontextmanager
async def admitting(settings: Settings, *, garden: bool, process: str = PROCESS) -> AsyncIterator[Admitting]:
    """A process with its connections to API servers, and its metrics."""
    async with contextlib.AsyncExitStack() as stack:
        own = await stack.enter_async_context(
            kube.from_file(settings.cluster.kubeconfig, settings.cluster.context)
        )
        called, file = own, settings.webhooks.garden_kubeconfig or settings.garden.kubeconfig
        if garden and file:
            called = await stack.enter_async_context(kube.from_file(file))
        made = Admitting(settings, Served(settings.webhooks, own, called, garden), process)
        made.metrics = await stack.enter_async_context(
            http.served(settings.metrics, lambda: made.ready, _nothing, probes=settings.probes)
        )
        yield made


async def _nothing() -> None:
    """All our metrics are up to date."""


async def run(settings: Settings, *, garden: bool) -> None:
    """Answer until cancelled."""
    tracing.export("windowbox-admit")
    with stalls.watched():
        async with admitting(settings, garden=garden) as made:
            await made.run()
