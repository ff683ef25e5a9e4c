"""Makes the load balancer in front of the control plane nodes of a Shoot that hosts itself."""

from __future__ import annotations

import logging
from contextlib import AbstractAsyncContextManager
from typing import Any

from windowbox.errors import Missing, Superseded, TransientError, Waiting, WindowboxError
from windowbox.models.refs import ENDPOINT_SLICES, EXPOSURES, SERVICES
from workers.core.lifecycle.kinds import Actuator, Kind, Run, Status, shoot_of
from workers.core.lifecycle.statuses import Descriptions, OperationTexts
from workers.core.owned import manifests, ownerindex
from workers.core.owned.manifests import Manifest
from workers.core.owned.targets import TargetCluster, TargetClusters
from workers.kinds.exposure import exposureobjects

logger = logging.getLogger(__name__)

_DONE = "Successfully reconciled SelfHostedShootExposure"

_RECONCILE = OperationTexts(
    "Reconciling the SelfHostedShootExposure", _DONE, "Error reconciling SelfHostedShootExposure"
)
# What has been deleted was "reconciled", too: so the contract has it.
_DELETE = OperationTexts(
    "Deleting the SelfHostedShootExposure", _DONE, "Error deleting SelfHostedShootExposure"
)

# They are never handed over: the last two are not said.
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
    """Makes and removes a Service without selector, and the EndpointSlices behind it."""

    def __init__(self, targets: TargetClusters) -> None:
        self._targets = targets

    async def reconcile(self, run: Run) -> Status:
        shoot, spec, name = shoot_of(run), exposureobjects.parsed(run.object.spec), run.ref.name
        namespace = ownerindex.infrastructure_namespace(shoot.technical_id)
        service = exposureobjects.service(name, namespace, spec)
        slices = exposureobjects.slices(name, namespace, spec, shoot.ip_families)
        async with self._provider(run) as target:
            await self._make(target, namespace, service, slices)
            for family in exposureobjects.FAMILIES:
                if family not in shoot.ip_families:
                    await _remove_slice(target, namespace, exposureobjects.slice_name(name, family))
            return {"ingress": await _ingress(target, namespace, name)}

    async def delete(self, run: Run) -> None:
        if not (run.object.spec.get("credentialsRef") or run.object.status.get("ingress")):
            return  # infrastructure of somebody else: nothing could ever be made
        namespace, service = ownerindex.machine_namespace(run), exposureobjects.service_name(run.ref.name)
        async with self._provider(run) as target:
            if await target.remove(SERVICES, namespace, service):
                raise Waiting(f"waiting for Service {service} to be gone")
            await _remove_slices(target, namespace, run.ref.name)

    async def force_delete(self, run: Run) -> None:
        """All of it is asked to go, and nothing is waited for. What nobody lets us remove stays behind."""
        try:
            namespace, service = ownerindex.machine_namespace(run), exposureobjects.service_name(run.ref.name)
            async with self._provider(run) as target:
                await target.remove(SERVICES, namespace, service)
                await _remove_slices(target, namespace, run.ref.name)
        except (Superseded, Waiting):
            raise
        except WindowboxError as error:
            logger.warning("%s: forced to go, so what it made is left behind: %s", run.ref, error)

    async def _make(
        self, target: TargetCluster, namespace: str, service: Manifest, slices: list[Manifest]
    ) -> None:
        try:
            await _ensure_service(target, service)
            for one in slices:
                await target.ensure(ENDPOINT_SLICES, one)
        except Missing as error:
            raise TransientError(
                f"namespace {namespace}, which the Shoot's Infrastructure makes, is not there yet"
            ) from error

    def _provider(self, run: Run) -> AbstractAsyncContextManager[TargetCluster]:
        namespace = run.ref.namespace
        return self._targets.provider(run, namespace, exposureobjects.credentials(run.object.spec, namespace))


async def _ensure_service(target: TargetCluster, service: Manifest) -> None:
    namespace, name = service["metadata"]["namespace"], service["metadata"]["name"]
    found = await target.cached(SERVICES, namespace, name)
    if found and not found.deleting and (patch := exposureobjects.excess(found, service)):
        await target.merge(SERVICES, namespace, name, patch)
    await target.update(SERVICES, found, service)


async def _ingress(target: TargetCluster, namespace: str, exposure: str) -> list[dict[str, Any]]:
    """Where the load balancer answers. None at all is never reported: the former value stays."""
    name = exposureobjects.service_name(exposure)
    ingress = manifests.balancer_ingress(await target.cached(SERVICES, namespace, name))
    if not ingress:
        raise Waiting(f"waiting for an address of Service {name}")
    return ingress


async def _remove_slice(target: TargetCluster, namespace: str, name: str) -> None:
    """Remove the slice of a family that the Shoot has no more."""
    if await target.cached(ENDPOINT_SLICES, namespace, name):
        await target.remove(ENDPOINT_SLICES, namespace, name)


async def _remove_slices(target: TargetCluster, namespace: str, exposure: str) -> None:
    for family in exposureobjects.FAMILIES:
        await target.remove(ENDPOINT_SLICES, namespace, exposureobjects.slice_name(exposure, family))
