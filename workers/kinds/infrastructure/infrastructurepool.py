"""Infrastructures: events of their objects requeue them; one process looks for orphans."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager

from windowbox.errors import Conflict, Superseded, TransientError, Waiting, WindowboxError
from windowbox.kinds import Served
from windowbox.models.clouds import BY_TYPE
from windowbox.models.refs import INFRASTRUCTURES, IP_POOLS, NAMESPACES, NETWORK_POLICIES, ObjectRef
from windowbox.settings.kindsettings import InfrastructureSettings
from workers.core.cloudaccounts import CloudAccounts
from workers.core.lifecycle.actuators import Actuator, Kind, Run, Status, shoot_of
from workers.core.lifecycle.statuses import Descriptions, OperationTexts
from workers.core.owned import marks, ownerindex
from workers.core.owned.cloudorphans import CloudOrphans
from workers.core.owned.manifests import Manifest
from workers.core.owned.ownedorphans import OwnedOrphans
from workers.core.owned.ownerindex import OwnerIndex, infrastructure_namespace
from workers.core.owned.targets import TargetCluster, TargetClusters, concurrently
from workers.core.serving import Common, Serving
from workers.kinds.infrastructure import cloudinfrastructures, infrastructureobjects
from workers.kinds.infrastructure.cloudinfrastructures import CloudInfrastructures, is_of_cloud
from workers.kinds.infrastructure.infrastructureobjects import networks, policies

logger = logging.getLogger(__name__)

_RETRY_AFTER = 10.0
"""Seconds until the second and last attempt to remove a mark."""

DESCRIPTIONS = Descriptions(
    reconcile=OperationTexts(
        "Reconciling the infrastructure",
        "Successfully reconciled infrastructure",
        "Error reconciling infrastructure",
    ),
    delete=OperationTexts(
        "Deleting the Infrastructure",
        "Successfully deleted Infrastructure",
        "Error deleting Infrastructure",
    ),
    migrate=OperationTexts(
        "Starting migration of the Infrastructure",
        "Successfully migrated Infrastructure",
        "Error migrating Infrastructure",
    ),
    restore=OperationTexts(
        "Restoring the Infrastructure",
        "Successfully restored Infrastructure",
        "Error restoring Infrastructure",
    ),
)

KIND = Kind(
    resource=INFRASTRUCTURES,
    pool="infrastructure",
    finalizer="extensions.gardener.cloud/infrastructure",
    descriptions=DESCRIPTIONS,
    classes=frozenset({"shoot"}),
    clouds=BY_TYPE,
    deadline=1200.0,
    strips_all_finalizers=False,
)


class InfrastructureActuator(Actuator):
    """Creates and deletes the namespace of a Shoot's machines, its address pools and NetworkPolicies."""

    def __init__(
        self, targets: TargetClusters, settings: InfrastructureSettings, clouds: CloudInfrastructures
    ) -> None:
        self._targets = targets
        self._settings = settings
        self._clouds = clouds

    async def reconcile(self, run: Run) -> Status:
        if is_of_cloud(run.object):
            return await self._reconcile_cloud(run)
        infrastructureobjects.check_provider_config(run.object)
        shoot = shoot_of(run)
        found = networks(shoot)
        await self._ensure(
            run,
            lambda home, uid: infrastructureobjects.pools(shoot.technical_id, found, home, uid),
            policies(
                infrastructure_namespace(shoot.technical_id), self._settings, self_hosted=shoot.self_hosted
            ),
        )
        return infrastructureobjects.status(found)

    async def _reconcile_cloud(self, run: Run) -> Status:
        shoot = shoot_of(run)
        account, plan = await self._clouds.plan(run)
        home = infrastructure_namespace(shoot.technical_id)
        pools = [infrastructureobjects.subnet_pool(shoot.technical_id, one) for one in plan.subnets]
        await self._ensure(
            run,
            lambda home, uid: infrastructureobjects.subnet_pools(shoot.technical_id, plan.subnets, home, uid),
            [
                *policies(home, self._settings, self_hosted=shoot.self_hosted),
                infrastructureobjects.security_group(home, plan.openings),
            ],
            former=set(await self._clouds.pools(run)).difference(pools),
        )
        await self._clouds.keep(run, account, plan, pools)
        return cloudinfrastructures.status(plan, run.object.status)

    async def _ensure(
        self,
        run: Run,
        pools: Callable[[str, str], list[Manifest]],
        policies: Iterable[Manifest],
        *,
        former: Iterable[str] = (),
    ) -> None:
        """Create and update the namespace, its address pools, of its name and uid, and its policies."""
        namespace = ownerindex.machine_namespace(run)
        async with self._provider(run) as target:
            uid = await self._ensure_namespace(run, target, namespace)
            for pool in sorted(former):  # a subnet for one zone may have the range of one for all zones
                await target.remove(IP_POOLS, "", pool)
            # Pools and policies do not depend on one another.
            await concurrently(
                *(target.ensure(IP_POOLS, pool) for pool in pools(namespace, uid)),
                *(target.ensure(NETWORK_POLICIES, rule) for rule in policies),
            )

    async def delete(self, run: Run) -> None:
        shoot = shoot_of(run)
        if is_of_cloud(run.object):
            await self._clouds.drop(run)
        namespace = ownerindex.infrastructure_namespace(shoot.technical_id)
        async with self._provider(run) as target:
            found = await target.live(NAMESPACES, "", namespace)
            if found and not infrastructureobjects.is_ours(found, run.object):
                return  # it has another owner
            if found:
                # The garbage collector deletes its address pools; nothing waits for that.
                if not found.deleting:
                    await target.remove(NAMESPACES, "", namespace)
                return
            for family in ("IPv4", "IPv6"):
                await target.remove(IP_POOLS, "", ownerindex.machine_ip_pool(shoot.technical_id, family))

    async def force_delete(self, run: Run) -> None:
        try:
            await self.delete(run)
        except (Superseded, Waiting):
            raise
        except WindowboxError as error:
            logger.warning("%s: objects that cannot be deleted are left behind: %s", run.ref, error)

    async def migrate(self, run: Run) -> None:
        """Remove the mark: the namespace has no owner until the next seed sets its own, and has to stay.

        So have the objects in the inventory of a cloud.
        """
        namespace = ownerindex.infrastructure_namespace(shoot_of(run).technical_id)
        try:
            if is_of_cloud(run.object):
                await self._clouds.leave(run)
            async with self._provider(run) as target:
                found = await target.live(NAMESPACES, "", namespace)
                if found is None or marks.ANNOTATION not in found.annotations:
                    return
                ours, there = marks.parse(target.mark), marks.parsed(found)
                if ours and there and ours.same_owner(there):
                    patch = {"metadata": {"annotations": {marks.ANNOTATION: None}}}
                    await target.merge(NAMESPACES, "", namespace, patch)
                else:
                    logger.warning(
                        "%s: the mark stays at namespace %s: it names another owner", run.ref, namespace
                    )
        except (Superseded, Waiting):
            raise
        except WindowboxError as error:
            last = run.object.last_operation
            failed_before = (last.get("type"), last.get("state")) == ("Migrate", "Error")
            if isinstance(error, TransientError) and not failed_before:
                raise TransientError(str(error), retry_after=_RETRY_AFTER, codes=error.codes) from error
            # A migration must not fail for this. A namespace without Pods may then have to be recreated.
            logger.warning("%s: the mark stays at namespace %s: %s", run.ref, namespace, error)

    async def _ensure_namespace(self, run: Run, target: TargetCluster, name: str) -> str:
        """Create or update the namespace, unless it has another owner. Returns its uid."""
        namespace = infrastructureobjects.namespace(name)
        found = await target.cached(NAMESPACES, "", name)
        if found and not infrastructureobjects.made_before(run.object):
            # The namespace of a former Shoot may be terminating, and the bus behind.
            found = await target.live(NAMESPACES, "", name)
        if found is None:
            # Only a creation excludes a race.
            if uid := await target.create_if_absent(NAMESPACES, namespace):
                return uid
            found = await target.live(NAMESPACES, "", name)
        if found is None:
            raise Conflict(f"namespace {name} was deleted meanwhile")
        if not found.deleting:
            infrastructureobjects.check_ownership(found, run.object)
        return await target.update(NAMESPACES, found, namespace)

    def _provider(self, run: Run) -> AbstractAsyncContextManager[TargetCluster]:
        if is_of_cloud(run.object):
            return self._clouds.provider(run)
        return self._targets.provider(run, *infrastructureobjects.provider_secret(run.object))


def serving(common: Common, row: Served) -> Serving:
    owner_index = OwnerIndex(common.bus, common.world, row.resource)

    def owners(ref: ObjectRef) -> Iterator[ObjectRef]:
        match ref.kind:
            case NAMESPACES.id:
                yield from owner_index.of_machine_namespace(ref.name)
            case IP_POOLS.id:
                yield from owner_index.of_shoot(infrastructureobjects.technical_id(ref.name))
            case _ if ref.name in infrastructureobjects.POLICIES:  # others are those of Bastions
                yield from owner_index.of_machine_namespace(ref.namespace)

    orphans = OwnedOrphans(common.bus, common.clusters, common.targets)
    accounts = CloudAccounts(common.bus, common.clusters)
    in_clouds = CloudOrphans(common.bus, common.clusters, accounts)

    async def clean_up() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(orphans.run())
            if common.kinds.clouds.types:
                group.create_task(in_clouds.run())

    return Serving(
        KIND,
        InfrastructureActuator(
            common.targets,
            common.kinds.infrastructure,
            CloudInfrastructures(common.targets, accounts, common.kinds.clouds),
        ),
        owners=owners,
        known=owner_index.complete,
        tasks={"owner index": owner_index.run},
        leased={f"drift.{KIND.pool}": clean_up},
    )
