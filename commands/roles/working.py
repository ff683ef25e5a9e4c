"""`windowbox work`: takes items off the bus, and reconciles their objects."""

from __future__ import annotations

from collections.abc import Iterable

from bus import recordings
from bus.clusters.providers import Providers
from bus.workqueue.pool import this_process
from commands.roles import ccmconfig, edging, gardenaccess
from commands.roles.roleprocess import Process
from windowbox import features
from windowbox.clients.nameserver import Nameserver
from workers.core import pools
from workers.core.lifecycle.world import World
from workers.core.owned.targets import TargetClusters
from workers.core.serving import CONCURRENCY, Common
from workers.kinds.membership.clusterjoining import Joining
from workers.kinds.membership.providermembership import ProviderMembership
from workers.loadbalancer.loadbalancerpool import BalancerParts


async def work(made: Process, names: Iterable[str]) -> None:
    """Take items of these pools off the bus, and reconcile their objects."""
    settings, clusters = made.settings, await made.clusters()
    providers = Providers(clusters, made.registry, min(settings.work.concurrency, CONCURRENCY))
    nameserver = Nameserver(settings.dns)
    made.closing.push_async_callback(providers.aclose)
    made.closing.push_async_callback(nameserver.aclose)
    common = Common(
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
    made.tasks["world"] = common.world.run
    made.tasks["settings"] = lambda: recordings.tell_settings(made.bus, this_process(), settings.deciding)
    made.tasks["clusters kept"] = made.registry.keep
    if member := ccmconfig.applied(settings.loadbalancer).infrastructure:
        made.tasks["infrastructure"] = lambda: ccmconfig.join(made.registry, member)
    if settings.join.enabled:
        with_controlplanes = settings.controlplane.ccm == "none"
        joining = Joining(
            made.bus, made.registry, settings.join, settings.loadbalancer.direct,
            with_controlplanes=with_controlplanes, clouds=settings.clouds.types,
        )  # fmt: skip
        made.add_leased("join", joining.run)
    membership = ProviderMembership(
        made.bus,
        made.registry,
        providers,
        settings.work.sweep_interval,
        always=settings.clouds.provider_secrets,
    )
    made.add_leased("providers", membership.run)
    garden = settings.garden
    if garden.kubeconfig and not await gardenaccess.proven(garden):
        made.tasks["garden"] = lambda: gardenaccess.prove_later(garden)
    off = features.unserved(settings.feature_gates)
    for name in [one for one in names if one not in off]:
        if parts := await pools.assembled(common, name):
            made.add_parts(parts)
        if isinstance(parts, BalancerParts) and settings.loadbalancer.edge == "work":
            await edging.add_edge(made, parts.store, parts.states)
