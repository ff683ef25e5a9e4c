"""What the processes of each role run: watchers, workers, edges, patchers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable

from bus import intents, recordings, streams
from bus.buckets import Bucket
from bus.pool import PROCESS, Pool
from bus.queue import Queue
from bus.routing import run_due
from patchers.status import StatusPatcher
from watchers.watching import Watching
from windowbox.clients.clustershares import ClusterShares
from windowbox.clients.envoy import opening
from windowbox.clients.nameserver import Nameserver
from windowbox.clients.providers import Providers
from windowbox.errors import Malformed, WindowboxError
from windowbox.processes import Process
from workers import ccmconfig, pools
from workers.edge.controller import EdgeParts, EdgeTerms
from workers.lifecycle.world import World
from workers.loadbalancer.edgestate import POOL, States
from workers.loadbalancer.ipam.store import AddressStore
from workers.loadbalancer.pool import BalancerParts
from workers.membership.joining import Joining
from workers.membership.providers import ProviderMembership
from workers.owned.targets import TargetClusters
from workers.serving import CONCURRENCY, Common

logger = logging.getLogger(__name__)

_STREAMS_RETRY = 1.0


async def watch(made: Process) -> None:
    """Mirror clusters to the bus. Watchers also create the streams: they notice first when those are gone."""
    settings = made.settings
    await streams.ensure(made.bus, settings.nats.replicas)
    watching = Watching(
        made.bus,
        made.leases,
        await made.clusters(),
        made.registry,
        settings.watch.kinds,
        settings.watch.page,
    )
    made.details["watches"] = lambda: dict(watching.states)
    made.tasks |= {"watch": watching.run, "streams": lambda: _keep_streams(made)}


async def work(made: Process, names: Iterable[str]) -> None:
    """Take items of these pools off the bus, and reconcile their objects."""
    common = await _common(made)
    made.tasks["world"] = common.world.run
    made.tasks["settings"] = lambda: recordings.tell_settings(made.bus, PROCESS, made.settings.deciding)
    _add_membership(made, common)
    for name in names:
        if parts := await pools.assembled(common, name):
            made.add_parts(parts)
        if isinstance(parts, BalancerParts) and made.settings.loadbalancer.edge == "work":
            await _add_edge(made, parts.store, parts.states)


async def edge(made: Process) -> None:
    """Run Envoy for load balancers. This role reads and writes the bus, and reaches no API server."""
    settings = made.settings.loadbalancer
    if not settings.ranges:
        raise Malformed("the edge needs loadbalancer.ranges: set it as for `windowbox work`")
    store = AddressStore(made.bus, settings.ranges, settings.quota)
    states = States(Bucket(made.bus, streams.EDGES))
    made.tasks |= {"addresses": store.run, "edge states": states.bucket.run}
    await _add_edge(made, store, states)


async def patch(made: Process) -> None:
    """Write status back to the clusters."""
    settings, queue = made.settings.patch, Queue(made.bus, intents.PATCH)
    handler = StatusPatcher(made.bus, await made.clusters(), settings.rate)
    shares = ClusterShares(handler, settings.concurrency)
    ack_wait = made.settings.work.ack_wait
    made.add_pool(Pool(made.bus, intents.PATCH, shares, concurrency=settings.concurrency, ack_wait=ack_wait))
    made.tasks["patch dues"] = lambda: run_due(made.bus, queue)
    made.add_leased("sweep.patch", lambda: _sweep(queue, made.settings.work.sweep_interval))


async def _add_edge(made: Process, store: AddressStore, states: States) -> None:
    """Run Envoy while this process holds the lease `edge`."""
    config = ccmconfig.applied(made.settings.loadbalancer)
    attachment = await made.closing.enter_async_context(opening.opened(config.settings))
    queue = Queue(made.bus, POOL)
    terms = EdgeTerms(
        EdgeParts(made.bus, made.registry, store, states, attachment, config.settings, queue, config.machines)
    )
    made.add_leased("edge", terms.run)
    made.details["edge"] = terms.describe


async def _common(made: Process) -> Common:
    """What all pools of this process share."""
    settings, clusters = made.settings, await made.clusters()
    slots = min(settings.work.concurrency, CONCURRENCY)
    providers = Providers(clusters, made.registry, slots)
    nameserver = Nameserver(settings.dns)
    made.closing.push_async_callback(providers.aclose)
    made.closing.push_async_callback(nameserver.aclose)
    return Common(
        bus=made.bus,
        clusters=clusters,
        registry=made.registry,
        world=World(made.bus, clusters),
        targets=TargetClusters(clusters, providers),
        nameserver=nameserver,
        closing=made.closing,
        work=settings.work,
        kinds=settings.kinds,
        dns=settings.dns,
        loadbalancer=settings.loadbalancer,
    )


def _add_membership(made: Process, common: Common) -> None:
    """Have clusters join and leave, as Namespaces and provider Secrets ask; and again after a bus loss."""
    settings = made.settings
    made.tasks["clusters kept"] = made.registry.keep
    if member := ccmconfig.applied(settings.loadbalancer).infrastructure:
        made.tasks["infrastructure"] = lambda: ccmconfig.join(made.registry, member)
    if settings.join.enabled:
        joining = Joining(
            made.bus,
            made.registry,
            settings.join,
            settings.loadbalancer.direct,
            with_controlplanes=settings.controlplane.ccm == "none",
        )
        made.add_leased("join", joining.run)
    membership = ProviderMembership(
        made.bus, made.registry, common.targets.providers, settings.work.sweep_interval
    )
    made.add_leased("providers", membership.run)


async def _sweep(queue: Queue, interval: float) -> None:
    while True:
        with contextlib.suppress(WindowboxError):
            await queue.sweep(interval)
        await asyncio.sleep(interval)


async def _keep_streams(made: Process) -> None:
    """Create the streams again after every interruption: the server may have lost its store."""
    back = asyncio.Event()
    with made.bus.on_reconnect(back.set):
        while True:
            await back.wait()
            back.clear()
            try:
                await streams.ensure(made.bus, made.settings.nats.replicas)
            except WindowboxError as error:
                logger.warning("streams: %s; again in %.0f s", error, _STREAMS_RETRY)
                await asyncio.sleep(_STREAMS_RETRY)
                back.set()
