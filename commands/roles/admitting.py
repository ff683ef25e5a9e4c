"""`windowbox admit`: the process that answers admission requests, with or without the bus."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from bus import subjects
from bus.leases import guard, presence
from bus.leases.leases import Leases
from bus.messages import Reason, Wish
from bus.transport.connection import Bus, connected
from bus.transport.finishing import check_cancelled
from bus.workqueue.pool import this_process
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
from windowbox.models.refs import CLUSTERS, CONTROL_PLANES, RUNTIME
from windowbox.models.webhooks import Target
from windowbox.rights import webhookconfigurations as configurations
from windowbox.settings.settings import Settings
from windowbox.telemetry import garbage, http, stalls, tracing

logger = logging.getLogger(__name__)

_RETRY = 1.0
_MIRRORED = frozenset({CLUSTERS.id})
_CONTROL_PLANES = "controlplane"
"""The pool whose runs copy the configurations to Shoots."""


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
        self._lease_of_api = served.garden and bool(served.settings.garden_lease)
        self._journal = Journal(process, has_bus=not self._lease_of_api)
        self.keeping = Keeping(served, self._certificates, self._request_control_planes)
        mirrored = frozenset[str]() if served.garden else _MIRRORED
        self._lookups = Lookups(served.called, lambda: self._bus, mirrored)
        self._address = ""
        self.metrics = ""

    @property
    def ready(self) -> bool:
        return bool(self._address)

    async def run(self) -> None:
        """Answer until cancelled."""
        # The server cannot listen without a certificate.
        while True:
            try:
                await self.keeping.begin()
                break
            except Exception as error:  # persons and other programs write the Secret, too
                guard.note("certificates", error, f"again in {_RETRY:.0f} s")
                await asyncio.sleep(_RETRY)
        settings, garden = self._settings, self._served.garden
        images = {}
        for name in {one.name for one in settings.kinds.images.images}:
            # An image that depends on a version has no entry here.
            with contextlib.suppress(Missing):
                images[name] = settings.kinds.images.image(name)
        targets = (Target.GARDEN,) if garden else (Target.SEED, Target.SHOOT)
        wanted = configurations.served(settings.webhooks, *targets, clouds=settings.clouds.types)
        webhooks = [table.WEBHOOKS[one.name] for one in wanted]
        # In mode `driver` windowbox itself is the driver of machines.
        context = Context(settings.webhooks, images=images, driver=settings.machines.mode != "driver")
        server = Server(webhooks, context, self._lookups.look, self._journal)
        leading = self._by_bus
        if self._lease_of_api:
            # Without a bus: write the configurations while this process holds the Lease of the API.
            given = self._served.settings
            election = LeaderElection(self._served.own, given.namespace, given.garden_lease, self._process)
            keep = partial(guard.kept, "configurations", self.keeping.keep)
            leading = partial(election.while_leading, keep)
        async with server.listening(self._certificates) as self._address:
            logger.info("webhooks at https://%s; metrics at http://%s/metrics", self._address, self.metrics)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(guard.kept("certificates", self.keeping.follow), name="certificates")
                    group.create_task(guard.kept("leader", leading), name="leader")
            finally:
                self._address = ""  # not ready while the last requests are answered

    def describe(self) -> dict[str, Any]:
        """The details that `windowbox status` shows of this process."""
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

    async def _by_bus(self) -> None:
        """Run the tasks that need the bus; write the configurations while this process holds their lease."""
        access = self._settings.nats.access(f"windowbox {self._role}")
        while True:
            try:
                async with connected(access) as bus, presence.answering(bus, self.describe):
                    self._bus = bus
                    leases = Leases(bus, self._process, "admit")
                    async with asyncio.TaskGroup() as group:
                        group.create_task(bus.watch(), name="bus")
                        group.create_task(guard.kept("leases", leases.run), name="leases")
                        keep = leases.while_held(self._lease, self.keeping.keep)
                        group.create_task(keep, name="configurations")
                        writing = guard.kept("journal", partial(self._journal.write, bus))
                        group.create_task(writing, name="journal")
            except* WindowboxError as group_of_errors:
                error: BaseException = group_of_errors
                while isinstance(error, BaseExceptionGroup):
                    error = error.exceptions[0]
                check_cancelled(error)
                logger.warning("%s; reviews are answered meanwhile", error)
            finally:
                self._bus = None
            await asyncio.sleep(_RETRY)

    async def _request_control_planes(self) -> None:
        """Request a reconcile of all ControlPlanes: their runs copy a changed configuration to the Shoots."""
        bus = self._bus
        if self._served.garden or bus is None:
            return
        queue = Queue(bus, _CONTROL_PLANES)
        async for found in self._served.called.objects(CONTROL_PLANES, metadata_only=True):
            ref = found.ref(RUNTIME, CONTROL_PLANES.id)
            await queue.wish(subjects.key(ref), Wish(reason=Reason.DRIFT))


@contextlib.asynccontextmanager
async def admitting(settings: Settings, *, garden: bool, process: str = "") -> AsyncIterator[Admitting]:
    """A process with its connections to API servers, and its metrics. `process` is another name for it."""
    async with contextlib.AsyncExitStack() as stack:
        own = await stack.enter_async_context(
            kube.from_file(settings.cluster.kubeconfig, settings.cluster.context)
        )
        called, file = own, settings.webhooks.garden_kubeconfig or settings.garden.kubeconfig
        if garden and file:
            called = await stack.enter_async_context(kube.from_file(file))
        served = Served(settings.webhooks, own, called, garden, settings.clouds.types)
        made = Admitting(settings, served, process or this_process())
        made.metrics = await stack.enter_async_context(
            http.served(settings.metrics, lambda: made.ready, probes=settings.probes)
        )
        yield made


async def run(settings: Settings, *, garden: bool) -> None:
    """Answer until cancelled."""
    tracing.export("windowbox-admit")
    with stalls.watched(), garbage.bounded():
        async with admitting(settings, garden=garden) as made:
            await made.run()
