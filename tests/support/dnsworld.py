"""A world of kinds in which DNSRecords are served by a real name server, too."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

from bus.clusters.clusters import Clusters
from bus.clusters.providers import Providers
from bus.clusters.registry import Registry
from bus.leases.leases import Leases
from bus.transport.connection import Bus
from tests.support import leftovers
from tests.support.kindworld import KindWorld, common_of, kind_world, world_of
from tests.support.natsserver import NatsServer
from tests.support.servers import ControlPlane, NameServer
from windowbox.clients.nameserver import Nameserver
from windowbox.models.refs import DNSRECORDS
from windowbox.settings.bussettings import Zone
from windowbox.settings.dnssettings import DnsSettings
from windowbox.settings.kindsettings import KindSettings
from workers.core import pools, serving
from workers.core.owned.targets import TargetClusters


@contextlib.asynccontextmanager
async def dns_world(
    plane: ControlPlane,
    nats: NatsServer,
    named: NameServer,
    *served: str,
    drift_interval: float = 600,
    kinds: KindSettings | None = None,
    **about: Any,
) -> AsyncIterator[KindWorld]:
    """Workers serve DNSRecords in the zone of `named`, and these pools; `about` are settings of the zone."""
    assert named.key
    zone = {"name": named.zone, "servers": [named.address], "key": named.key.settings(), **about}
    settings = DnsSettings.model_validate({"zones": [zone], "drift_interval": drift_interval})
    nameserver = Nameserver(settings)
    leftovers.expect(plane, DNSRECORDS)
    async with kind_world(plane, nats, *served, kinds=kinds) as made:
        made.zones = (Zone(name=named.zone),)

        async def dns(bus: Bus, opened: Clusters, registry: Registry) -> list[Any]:
            targets = TargetClusters(opened, Providers(opened, registry))
            common = dataclasses.replace(
                common_of(made, bus, opened, registry, targets), nameserver=nameserver, dns=settings
            )
            parts = serving.parts(common, pools.serving(common, "dnsrecord"))
            leases = Leases(bus, f"dns {id(bus)}", "work")
            tasks: list[Any] = [task() for task in parts.tasks.values()]
            tasks += [leases.while_held(name, act) for name, act in parts.leased.items()]
            return [leases.run(), common.world.run(), parts.pool.run(), parts.router.run(), *tasks]

        try:
            async with world_of(made, "worker", dns):
                yield made
        finally:
            await nameserver.aclose()
