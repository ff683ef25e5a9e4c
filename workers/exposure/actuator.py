"""Makes the load balancer in front of the control plane nodes of a Shoot that hosts itself."""

from __future__ import annotations

import logging
from contextlib import AbstractAsyncContextManager
from typing import Any

from windowbox.errors import Missing, PermanentError, TransientError, Waiting
from windowbox.models.refs import ENDPOINT_SLICES, EXPOSURES, SERVICES
from workers.exposure import specs, wanted
from workers.lifecycle.kinds import Actuator, Kind, Run, Status, shoot_of
from workers.lifecycle.statuses import Phrases, Words
from workers.owned import balancers, ownerindex
from workers.owned.manifests import Manifest
from workers.owned.targets import TargetCluster, TargetClusters

logger = logging.getLogger(__name__)

_DONE = "Successfully reconciled SelfHostedShootExposure"

_RECONCILE = Phrases(
    "Reconciling the SelfHostedShootExposure", _DONE, "Error reconciling SelfHostedShootExposure"
)
# What has been deleted was "reconciled", too: so the contract has it.
_DELETE = Phrases("Deleting the SelfHostedShootExposure", _DONE, "Error deleting SelfHostedShootExposure")

# They are never handed over: the last two are not said.
WORDS = Words(reconcile=_RECONCILE, delete=_DELETE, migrate=_RECONCILE, restore=_RECONCILE)

KIND = Kind(
    resource=EXPOSURES,
    pool="exposure",
    finalizer="extensions.gardener.cloud/selfhostedshootexposure",
    words=WORDS,
    classes=frozenset({"shoot"}),
    deadline=1200.0,
    heeds_failure=False,
    migrates=False,
)


class ExposureActuator(Actuator):
    """Makes and removes a Service without selector, and the EndpointSlices behind it."""

    def __init__(self, targets: TargetClusters) -> None:
        self._targets = targets

    async def reconcile(self, run: Run) -> Status:
        shoot, spec, name = shoot_of(run), specs.parsed(run.object.spec), run.ref.name
        home = ownerindex.infrastructure_namespace(shoot.technical_id)
        service = wanted.service(name, home, spec)
        slices = wanted.slices(name, home, spec, shoot.ip_families)
        async with self._provider(run) as place:
            await self._make(place, home, service, slices)
            for family in wanted.FAMILIES:
                if family not in shoot.ip_families:
                    await _drop(place, home, wanted.slice_name(name, family))
            return {"ingress": await _ingress(place, home, name)}

    async def delete(self, run: Run) -> None:
        home, service = ownerindex.home(run), wanted.service_name(run.ref.name)
        async with self._provider(run) as place:
            if await place.remove(SERVICES, home, service):
                raise Waiting(f"waiting for Service {service} to be gone")
            await _remove_slices(place, home, run.ref.name)

    async def force_delete(self, run: Run) -> None:
        """All of it is asked to go, and nothing is waited for. What nobody lets us remove stays behind."""
        try:
            home, service = ownerindex.home(run), wanted.service_name(run.ref.name)
            async with self._provider(run) as place:
                await place.remove(SERVICES, home, service)
                await _remove_slices(place, home, run.ref.name)
        except PermanentError as error:
            logger.warning("%s: forced to go, so what it made is left behind: %s", run.ref, error)

    async def _make(self, place: TargetCluster, home: str, service: Manifest, slices: list[Manifest]) -> None:
        try:
            await _balance(place, service)
            for one in slices:
                await place.ensure(ENDPOINT_SLICES, one)
        except Missing as error:
            raise TransientError(
                f"namespace {home}, which the Shoot's Infrastructure makes, is not there yet"
            ) from error

    def _provider(self, run: Run) -> AbstractAsyncContextManager[TargetCluster]:
        namespace = run.ref.namespace
        return self._targets.provider(run, namespace, specs.credentials(run.object.spec, namespace))


async def _balance(place: TargetCluster, service: Manifest) -> None:
    home, name = service["metadata"]["namespace"], service["metadata"]["name"]
    found = await place.seen(SERVICES, home, name)
    if found and not found.deleting and (patch := wanted.excess(found, service)):
        await place.merge(SERVICES, home, name, patch)
    await place.correct(SERVICES, found, service)


async def _ingress(place: TargetCluster, home: str, exposure: str) -> list[dict[str, Any]]:
    """Where the load balancer answers. None at all is never reported: the former value stays."""
    name = wanted.service_name(exposure)
    ingress = balancers.ingress(await place.seen(SERVICES, home, name))
    if not ingress:
        raise Waiting(f"waiting for an address of Service {name}")
    return ingress


async def _drop(place: TargetCluster, home: str, name: str) -> None:
    """Remove the slice of a family that the Shoot has no more."""
    if await place.seen(ENDPOINT_SLICES, home, name):
        await place.remove(ENDPOINT_SLICES, home, name)


async def _remove_slices(place: TargetCluster, home: str, exposure: str) -> None:
    for family in wanted.FAMILIES:
        await place.remove(ENDPOINT_SLICES, home, wanted.slice_name(exposure, family))
