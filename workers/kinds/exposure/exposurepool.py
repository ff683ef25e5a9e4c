"""SelfHostedShootExposures: a load balancer and EndpointSlices. Their events requeue the exposure."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager

from windowbox.errors import Missing, Superseded, TransientError, Waiting, WindowboxError
from windowbox.kinds import Served
from windowbox.models.refs import ENDPOINT_SLICES, EXPOSURES, SERVICES, ObjectRef
from workers.core.lifecycle.actuators import Actuator, Kind, Run, Status, shoot_of
from workers.core.lifecycle.statuses import Descriptions, OperationTexts
from workers.core.owned import manifests, ownerindex
from workers.core.owned.ownerindex import OwnerIndex
from workers.core.owned.targets import TargetCluster, TargetClusters
from workers.core.serving import Common, Serving
from workers.kinds.exposure import exposureobjects

logger = logging.getLogger(__name__)

_DONE = "Successfully reconciled SelfHostedShootExposure"

_RECONCILE = OperationTexts(
    "Reconciling the SelfHostedShootExposure", _DONE, "Error reconciling SelfHostedShootExposure"
)
# The contract has "reconciled" for deletions, too.
_DELETE = OperationTexts(
    "Deleting the SelfHostedShootExposure", _DONE, "Error deleting SelfHostedShootExposure"
)

# Exposures are never migrated or restored.
DESCRIPTIONS = Descriptions(reconcile=_RECONCILE, delete=_DELETE, migrate=_RECONCILE, restore=_RECONCILE)

KIND = Kind(
    resource=EXPOSURES,
    pool="exposure",
    finalizer="extensions.gardener.cloud/selfhostedshootexposure",
    descriptions=DESCRIPTIONS,
    classes=frozenset({"shoot"}),
    deadline=1200.0,
    stops_on_failed_shoot=False,
    migrates=False,
)


class ExposureActuator(Actuator):
    """Creates and removes a Service without selector, and its EndpointSlices."""

    def __init__(self, targets: TargetClusters) -> None:
        self._targets = targets

    async def reconcile(self, run: Run) -> Status:
        shoot, spec, name = shoot_of(run), exposureobjects.parsed(run.object.spec), run.ref.name
        namespace = ownerindex.infrastructure_namespace(shoot.technical_id)
        service = exposureobjects.service(name, namespace, spec)
        service_name = service["metadata"]["name"]
        slices = exposureobjects.slices(name, namespace, spec, shoot.ip_families)
        async with self._provider(run) as target:
            try:
                found = await target.cached(SERVICES, namespace, service_name)
                if found and not found.deleting and (patch := exposureobjects.excess(found, service)):
                    await target.merge(SERVICES, namespace, service_name, patch)
                await target.update(SERVICES, found, service)
                for one in slices:
                    await target.ensure(ENDPOINT_SLICES, one)
            except Missing as error:
                raise TransientError(
                    f"namespace {namespace}, which the Shoot's Infrastructure makes, is not there yet"
                ) from error
            for family in exposureobjects.FAMILIES:
                former = exposureobjects.slice_name(name, family)
                if family not in shoot.ip_families and await target.cached(
                    ENDPOINT_SLICES, namespace, former
                ):
                    await target.remove(ENDPOINT_SLICES, namespace, former)
            ingress = manifests.balancer_ingress(await target.cached(SERVICES, namespace, service_name))
            if not ingress:
                # No address is never reported: the former value stays in the status.
                raise Waiting(f"waiting for an address of Service {service_name}")
            return {"ingress": ingress}

    async def delete(self, run: Run) -> None:
        if not (run.object.spec.get("credentialsRef") or run.object.status.get("ingress")):
            return  # unmanaged infrastructure: nothing was ever created
        namespace, service = ownerindex.machine_namespace(run), exposureobjects.service_name(run.ref.name)
        async with self._provider(run) as target:
            if await target.remove(SERVICES, namespace, service):
                raise Waiting(f"waiting for Service {service} to be gone")
            await _remove_slices(target, namespace, run.ref.name)

    async def force_delete(self, run: Run) -> None:
        """Delete everything without waiting. Objects that cannot be removed are left behind."""
        try:
            namespace, service = ownerindex.machine_namespace(run), exposureobjects.service_name(run.ref.name)
            async with self._provider(run) as target:
                await target.remove(SERVICES, namespace, service)
                await _remove_slices(target, namespace, run.ref.name)
        except (Superseded, Waiting):
            raise
        except WindowboxError as error:
            logger.warning("%s: forced to go, so what it made is left behind: %s", run.ref, error)

    def _provider(self, run: Run) -> AbstractAsyncContextManager[TargetCluster]:
        namespace = run.ref.namespace
        return self._targets.provider(run, namespace, exposureobjects.credentials(run.object.spec, namespace))


async def _remove_slices(target: TargetCluster, namespace: str, exposure: str) -> None:
    for family in exposureobjects.FAMILIES:
        await target.remove(ENDPOINT_SLICES, namespace, exposureobjects.slice_name(exposure, family))


def serving(common: Common, row: Served) -> Serving:
    owner_index = OwnerIndex(common.bus, common.world, row.resource)

    def owners(made: ObjectRef) -> Iterator[ObjectRef]:
        for ref in owner_index.of_machine_namespace(made.namespace):
            names = [exposureobjects.service_name(ref.name)]
            if made.kind != SERVICES.id:
                names = [exposureobjects.slice_name(ref.name, one) for one in exposureobjects.FAMILIES]
            if made.name in names:
                yield ref

    return Serving(
        KIND,
        ExposureActuator(common.targets),
        owners=owners,
        known=owner_index.complete,
        tasks={"owner index": owner_index.run},
    )
