"""The Envoys of this host, and which load balancers each serves."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from bus.leases import guard
from windowbox.errors import WindowboxError
from windowbox.models.loadbalancers import LoadBalancer
from windowbox.models.refs import ObjectRef
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.envoy import resources
from workers.loadbalancer.envoy.attachments import Attachment
from workers.loadbalancer.envoy.discovery import Discovery
from workers.loadbalancer.envoy.docker import boxes
from workers.loadbalancer.envoy.edge import Edge
from workers.loadbalancer.envoy.resources import Owner
from workers.loadbalancer.tracked import LoadBalancers, Tracked

logger = logging.getLogger(__name__)

_SHARED = "edge"
"""The name of the Envoy that all Services share."""

_RENEW_AGAIN, _RENEW_SELDOM = 1.0, 60.0
"""Seconds until the replacement of an outdated Envoy is retried: after the first failure, and after many."""


def box_name(uid: str) -> str:
    """The name of a Service's own Envoy, by which Gardener's scripts know it."""
    return f"gardener-lb-{hashlib.sha256(uid.encode()).hexdigest()[:8]}"


@dataclass
class Kept:
    """An edge, and the tasks that keep it running and up to date."""

    edge: Edge
    keeping: list[asyncio.Task[None]]
    routes: Mapping[str, str] | None = None
    """Its routes; None if they are not known."""


@dataclass(eq=False, repr=False)
class Edges:
    """All edges, for one term of the lease. The Envoys outlive it."""

    _attachment: Attachment
    _discovery: Discovery
    _settings: LoadBalancerSettings
    _group: asyncio.TaskGroup
    _started: Callable[[], None]
    _kept: dict[str, Kept] = field(default_factory=dict, init=False)
    _tidied: bool = field(default=False, init=False)
    """Whether Envoys of earlier terms that serve nothing are ended."""
    lingering: bool = field(default=False, init=False)
    """Whether addresses wait for their removal until their last connections end."""

    @property
    def names(self) -> list[str]:
        return sorted(self._kept)

    @property
    def running(self) -> list[Edge]:
        return [kept.edge for kept in self._kept.values() if kept.edge.running.is_set()]

    async def owners(self) -> list[Owner]:
        """The Services whose addresses Envoys serve, or served last, by their files."""
        names = {_SHARED, *await self._attachment.names()}
        kept = [await self._attachment.owners(name) for name in sorted(names)]
        return [owner for file in kept if file for owner in resources.owners_in(file)]

    async def write(
        self,
        load_balancers: LoadBalancers,
        unhealthy: frozenset[str] = frozenset(),
        retry: Collection[ObjectRef] = (),
    ) -> None:
        """Serve these load balancers, and end all other Envoys.

        Nodes at the addresses `unhealthy` get no traffic. Ports of those in `retry` were refused and may be
        free by now.
        """
        if self._isolated:
            groups = {box_name(one.uid): Tracked({one.ref: one}) for one in load_balancers.values()}
        else:
            # Before the first load balancer, no Envoy runs.
            needed = load_balancers or self._kept or _SHARED in await self._attachment.names()
            groups = {_SHARED: load_balancers} if needed else {}
        for name, group in groups.items():
            kept = self._kept.get(name) or self._keep(name, group)
            await kept.edge.write(group, unhealthy, retry=any(ref in group for ref in retry))
        for name in self._kept.keys() - groups.keys():
            ended = self._kept.pop(name)
            self._tidied = False  # an Envoy that fails to end is found again
            for task in ended.keeping:
                task.cancel()
            await asyncio.wait(ended.keeping)
            await ended.edge.end()
        if not self._tidied:
            for name in set(await self._attachment.names()) - groups.keys():
                logger.info("%s: ending an Envoy without load balancers", name)
                await Edge(self._attachment, self._discovery, name).end()
            self._tidied = True

    def of(self, load_balancer: LoadBalancer) -> Edge:
        """The edge that serves this load balancer."""
        return self._kept[box_name(load_balancer.uid) if self._isolated else _SHARED].edge

    async def remove_unused_addresses(self, is_elsewhere: Callable[[str], bool]) -> None:
        """Remove addresses that were added to this host, have no listeners now, and no connections left.

        Those that another host serves are removed at once.
        """
        # Envoys are asked only about unserved addresses: the answer costs them more than most changes.
        added, edges = await self._attachment.added(), [kept.edge for kept in self._kept.values()]
        if unserved := {one for one in added if not any(one in edge.addresses for edge in edges)}:
            if moved := set(filter(is_elsewhere, unserved)):
                logger.info("removing addresses of another host: %s", ", ".join(sorted(moved)))
                await self._attachment.remove(moved)
                unserved -= moved
            in_use: set[str] = set()
            for edge in edges:
                try:
                    in_use |= await edge.in_use(unserved)
                except WindowboxError:  # its Envoy does not answer: nothing is known of its connections
                    in_use = unserved
            self.lingering = bool(in_use)
            if unused := unserved - in_use:
                logger.info("removing addresses of no load balancer: %s", ", ".join(sorted(unused)))
                await self._attachment.remove(unused)

    async def wait_processed(self) -> None:
        """Wait a while until all Envoys have processed the last write."""
        await asyncio.gather(*(kept.edge.wait_processed() for kept in self._kept.values()))

    async def wait_accepted(self) -> bool:
        """Wait until all Envoys have accepted the last write: removed load balancers are served no longer."""
        if self._isolated:
            return True  # an Envoy of its own has ended with it
        return all(await asyncio.gather(*(edge.wait_accepted() for edge in self.running)))

    async def route(self, routes: Mapping[str, str]) -> None:
        """Set the routes to nodes that run in Pods, for all Envoys that run."""
        for kept in self._kept.values():
            if kept.edge.running.is_set() and kept.routes != routes:
                await kept.edge.route(routes)
                kept.routes = routes

    @property
    def _isolated(self) -> bool:
        # Published ports are fixed for the life of a container: each new Service would restart a shared one.
        return self._settings.isolation or self._attachment.fixed_ports

    def _keep(self, name: str, load_balancers: LoadBalancers) -> Kept:
        labels = None
        if self._isolated:
            [ref] = load_balancers
            labels = boxes.service_labels(ref, self._settings.cluster_name)
        edge = Edge(self._attachment, self._discovery, name, labels=labels, on_start=self._restarted)
        keep = guard.kept(f"edge: keep {name}", edge.keep)
        keeping = [self._group.create_task(keep, name=f"edge: keep {name}")]
        if not self._attachment.fixed_ports:  # two could not have the same ports
            renew = guard.kept(f"edge: renew {name}", lambda: _renew(edge))
            keeping.append(self._group.create_task(renew, name=f"edge: renew {name}"))
        kept = self._kept[name] = Kept(edge, keeping)
        return kept

    def _restarted(self) -> None:
        for kept in self._kept.values():
            kept.routes = None
        self._started()


async def _renew(edge: Edge) -> None:
    """Replace an Envoy of an earlier version of windowbox or Envoy.

    Until then, it may get no configuration at all, and serve an old one.
    """
    pause = _RENEW_AGAIN
    while True:
        try:
            await edge.running.wait()
            if not await edge.outdated():
                return
            logger.info("%s: Envoy or its bootstrap is outdated; replacing it", edge.name)
            await edge.replace()
        except WindowboxError as error:
            logger.warning("%s: Envoy is not replaced, again in %g s: %s", edge.name, pause, error)
            await asyncio.sleep(pause)
            pause = min(_RENEW_SELDOM, pause * 2)
        else:
            return
