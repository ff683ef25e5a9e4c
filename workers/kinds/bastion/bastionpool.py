"""Bastions: a Pod with a load balancer. Events of its objects requeue a Bastion."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager

from windowbox.errors import (
    Forbidden,
    Missing,
    Superseded,
    TransientError,
    Waiting,
    WindowboxError,
)
from windowbox.kinds import Served
from windowbox.models.clouds import WITH_BASTIONS
from windowbox.models.extensions import FORCE_DELETION
from windowbox.models.gardener import cloudprofile
from windowbox.models.gardener.bastion import BastionSpec
from windowbox.models.refs import (
    BASTIONS,
    CLUSTERS,
    NAMESPACES,
    NETWORK_POLICIES,
    PODS,
    SECRETS,
    SERVICES,
    ObjectRef,
    Resource,
)
from workers.core import clock
from workers.core.cloudaccounts import CloudAccounts
from workers.core.lifecycle import statuses
from workers.core.lifecycle.actuators import Actuator, Kind, Run, Status, parsed_spec
from workers.core.owned import manifests, ownerindex, ownermapping
from workers.core.owned.manifests import Manifest
from workers.core.owned.ownerindex import OwnerIndex
from workers.core.owned.targets import TargetCluster, TargetClusters, concurrently
from workers.core.serving import Common, Serving
from workers.kinds.bastion import bastionimages, bastionobjects, cloudbastions
from workers.kinds.bastion.bastionobjects import Site
from workers.kinds.bastion.cloudbastions import CloudBastions

logger = logging.getLogger(__name__)

KIND = Kind(
    resource=BASTIONS,
    pool="bastion",
    finalizer="extensions.gardener.cloud/bastion",
    descriptions=statuses.descriptions_for("Bastion", deleted="reconciled"),
    classes=frozenset({"shoot"}),
    clouds=WITH_BASTIONS,
    deadline=1200.0,
    stops_on_failed_shoot=False,
    migrates=False,
)

_WITH_FINALIZERS = (PODS, SERVICES)
"""Kinds whose objects other controllers hold by finalizers."""
_TERMINATED = ("Failed", "Succeeded")


class BastionActuator(Actuator):
    """Creates and removes a Bastion's objects, and reports the address of its load balancer."""

    def __init__(self, targets: TargetClusters, clouds: CloudBastions) -> None:
        self._targets = targets
        self._clouds = clouds

    async def reconcile(self, run: Run) -> Status:
        spec = parsed_spec(BastionSpec, run.object)
        at = bastionobjects.site(ownerindex.machine_namespace(run), run.ref.name)
        secret = bastionobjects.secret(at, spec.user_data)
        service = bastionobjects.service(at, bastionobjects.sources(spec.ingress))
        cluster = await run.recorder.read(ObjectRef(run.ref.cluster, CLUSTERS.id, "", run.ref.namespace))
        if cluster is None:
            raise TransientError(f"the Cluster {run.ref.namespace} is not there yet")
        profile, cloud = cloudprofile.profile(cluster.spec), cloudbastions.cloud_of(run.object)
        await self._clouds.call(run)
        async with self._provider(run) as target:
            now = await clock.now(run.recorder)
            if cloud:
                image = self._clouds.image(cloud, cluster, profile, now)
            else:
                current = bastionimages.of_pod(await target.cached(PODS, at.namespace, at.name))
                image = bastionimages.image(profile, now, current)
            pod = bastionobjects.pod(at, image)
            home = await target.cached(NAMESPACES, "", at.namespace)
            if home and home.deleting:
                raise Waiting(f"waiting for the former namespace {at.namespace} to be gone")
            try:
                # They do not depend on one another.
                await concurrently(
                    target.ensure_secret(secret),
                    _ensure_pod(target, at, pod),
                    target.ensure(SERVICES, service),
                    target.ensure(NETWORK_POLICIES, bastionobjects.policy(at)),
                )
            except Missing as error:
                what = f"namespace {at.namespace}, which the Infrastructure makes"
                raise Waiting(f"waiting for {what}") from error
            ingress = manifests.balancer_ingress(await target.cached(SERVICES, at.namespace, at.name))
            if not ingress:
                raise Waiting("waiting for Bastion LoadBalancer to get ready")
            ready = await target.cached(PODS, at.namespace, at.name)
            if ready is None or ready.deleting or not ownermapping.ready(ready):
                raise Waiting("waiting for Bastion Pod to get ready")
            endpoint = cloudbastions.ingress(cloud, cluster, ingress[0]) if cloud else ingress[0]
            # The merge patch removes fields of a former address.
            return {"ingress": {"hostname": None, "ip": None, "ipMode": None, **endpoint}}

    async def delete(self, run: Run) -> None:
        at = Site(ownerindex.machine_namespace(run), run.ref.name)
        await self._clouds.call(run)
        async with self._provider(run) as target:
            left = await _remove(target, at)
        if left:
            raise Waiting(f"waiting for {' and '.join(left)} {at.name} to be gone")

    def forced(self, run: Run) -> bool:
        return run.object.annotations.get(FORCE_DELETION) == "true"

    async def force_delete(self, run: Run) -> None:
        try:
            async with self._provider(run) as target:
                await _remove(target, Site(ownerindex.machine_namespace(run), run.ref.name))
        except (Superseded, Waiting):
            raise
        except WindowboxError as error:
            logger.warning("%s: objects are left behind: %s", run.ref, error)

    def _provider(self, run: Run) -> AbstractAsyncContextManager[TargetCluster]:
        if cloudbastions.cloud_of(run.object):
            secret = self._clouds.settings.provider_secret
            return self._targets.provider(run, secret.namespace, secret.name)
        return self._targets.provider(run, run.ref.namespace, cloudbastions.CREDENTIALS)


async def _ensure_pod(target: TargetCluster, at: Site, pod: Manifest) -> None:
    """Create the Pod, or update its metadata. A Pod that has ended is deleted first."""
    found = await target.cached(PODS, at.namespace, at.name)
    if found and not found.deleting and found.status.get("phase") in _TERMINATED:
        await target.remove(PODS, at.namespace, at.name)
        raise Waiting("waiting for the Bastion Pod that has ended to be gone")
    # The spec of a Pod is immutable: that of another program or a former version stays. Created, not
    # applied, so that Gardener's own program can apply its own manifest later.
    try:
        if not found and not await target.create_if_absent(PODS, pod):
            found = await target.live(PODS, at.namespace, at.name)
        if found:
            await target.update_metadata(PODS, found, pod)
    except Forbidden as error:
        # Retried soon: a quota may be used up, or a new namespace may have no service account yet.
        raise TransientError(str(error), codes=error.codes) from error


async def _remove(target: TargetCluster, at: Site) -> list[str]:
    """Delete all four concurrently. Returns the kinds of those that are still being deleted."""
    left: list[str] = []

    async def remove(resource: Resource) -> None:
        found = await target.cached(resource, at.namespace, at.name) if resource in _WITH_FINALIZERS else None
        leaving = found is not None and found.deleting
        if leaving or await target.remove(resource, at.namespace, at.name):
            left.append(resource.kind)

    await concurrently(*(remove(resource) for resource in (SERVICES, PODS, SECRETS, NETWORK_POLICIES)))
    return sorted(kind for kind in left if kind in {resource.kind for resource in _WITH_FINALIZERS})


def serving(common: Common, row: Served) -> Serving:
    owner_index = OwnerIndex(common.bus, common.world, row.resource)

    def owners(ref: ObjectRef) -> Iterator[ObjectRef]:
        if ref.kind == NAMESPACES.id:
            yield from owner_index.of_machine_namespace(ref.name)
        elif name := bastionobjects.bastion(ref.name):
            yield from (
                owner for owner in owner_index.of_machine_namespace(ref.namespace) if owner.name == name
            )

    return Serving(
        KIND,
        BastionActuator(
            common.targets,
            CloudBastions(CloudAccounts(common.bus, common.clusters), common.kinds.clouds),
        ),
        owners=owners,
        known=owner_index.complete,
        tasks={"owner index": owner_index.run},
    )
