"""Makes the place where a Shoot's machines live."""

from __future__ import annotations

import logging
from contextlib import AbstractAsyncContextManager

from windowbox.errors import Conflict, Superseded, WindowboxError
from windowbox.models.kindsettings import InfrastructureSettings
from windowbox.models.refs import INFRASTRUCTURES, IP_POOLS, NAMESPACES, NETWORK_POLICIES
from workers.infrastructure import specs, wanted
from workers.infrastructure.networks import networks
from workers.infrastructure.policies import policies
from workers.lifecycle.kinds import Actuator, Kind, Run, Status, shoot_of
from workers.lifecycle.statuses import Phrases, Words
from workers.owned import ownerindex
from workers.owned.targets import TargetCluster, TargetClusters, concurrently

logger = logging.getLogger(__name__)

WORDS = Words(
    reconcile=Phrases(
        "Reconciling the infrastructure",
        "Successfully reconciled infrastructure",
        "Error reconciling infrastructure",
    ),
    delete=Phrases(
        "Deleting the Infrastructure",
        "Successfully deleted Infrastructure",
        "Error deleting Infrastructure",
    ),
    migrate=Phrases(
        "Starting migration of the Infrastructure",
        "Successfully migrated Infrastructure",
        "Error migrating Infrastructure",
    ),
    restore=Phrases(
        "Restoring the Infrastructure",
        "Successfully restored Infrastructure",
        "Error restoring Infrastructure",
    ),
)

KIND = Kind(
    resource=INFRASTRUCTURES,
    pool="infrastructure",
    finalizer="extensions.gardener.cloud/infrastructure",
    words=WORDS,
    classes=frozenset({"shoot"}),
    deadline=1200.0,
    strips=False,
)


class InfrastructureActuator(Actuator):
    """Makes and removes the namespace of a Shoot's machines, and what keeps them apart from others."""

    def __init__(self, targets: TargetClusters, settings: InfrastructureSettings) -> None:
        self._targets = targets
        self._settings = settings

    async def reconcile(self, run: Run) -> Status:
        specs.check_provider_config(run.object)
        shoot = shoot_of(run)
        found = networks(shoot)
        home = ownerindex.infrastructure_namespace(shoot.technical_id)
        async with self._provider(run) as place:
            uid = await self._home(run, place, home)
            pools = wanted.pools(shoot.technical_id, found, home, uid)
            rules = policies(home, self._settings, self_hosted=shoot.self_hosted)
            # They do not depend on one another.
            await concurrently(
                *(place.ensure(IP_POOLS, pool) for pool in pools),
                *(place.ensure(NETWORK_POLICIES, rule) for rule in rules),
            )
        return wanted.status(found)

    async def delete(self, run: Run) -> None:
        shoot = shoot_of(run)
        home = ownerindex.infrastructure_namespace(shoot.technical_id)
        async with self._provider(run) as place:
            found = await place.found(NAMESPACES, "", home)
            if found and not wanted.ours(found, run.object):
                return  # somebody else's, in which we have never made anything
            if found:
                # Its address pools go with it. Nobody waits for that but the next Shoot of the same name.
                if not found.deleting:
                    await place.remove(NAMESPACES, "", home)
                return
            for family in ("IPv4", "IPv6"):
                await place.remove(IP_POOLS, "", wanted.pool_name(shoot.technical_id, family))

    async def force_delete(self, run: Run) -> None:
        try:
            await self.delete(run)
        except Superseded:
            raise
        except WindowboxError as error:
            logger.warning("%s: what cannot be removed is left behind: %s", run.ref, error)

    async def _home(self, run: Run, place: TargetCluster, name: str) -> str:
        """The namespace, which must not be anybody else's. Returns its uid."""
        namespace = wanted.namespace(name)
        found = await place.seen(NAMESPACES, "", name)
        if found and not wanted.made_before(run.object):
            # That of a former Shoot may be going, and the bus not have heard of it yet.
            found = await place.found(NAMESPACES, "", name)
        if found is None:
            # Only a creation tells for sure that nobody else was faster.
            if uid := await place.claim(NAMESPACES, namespace):
                return uid
            found = await place.found(NAMESPACES, "", name)
        if found is None:
            raise Conflict(f"namespace {name} has gone this very moment")
        if not found.deleting:
            wanted.check_ownership(found, run.object)
        return await place.correct(NAMESPACES, found, namespace)

    def _provider(self, run: Run) -> AbstractAsyncContextManager[TargetCluster]:
        return self._targets.provider(run, *specs.provider_secret(run.object))
