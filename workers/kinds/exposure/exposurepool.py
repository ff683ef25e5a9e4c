"""SelfHostedShootExposures: a load balancer and EndpointSlices. Their events requeue the exposure."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from windowbox.errors import Malformed, Missing, Superseded, TransientError, Waiting, WindowboxError
from windowbox.kinds import Served
from windowbox.models.objects import Object
from windowbox.models.refs import ENDPOINT_SLICES, EXPOSURES, SERVICES, ObjectRef
from workers.core.lifecycle import statuses
from workers.core.lifecycle.actuators import Actuator, Kind, Run, Status, check_parts, shoot_of
from workers.core.owned import manifests, ownerindex
from workers.core.owned.manifests import Manifest, manifest
from workers.core.owned.ownerindex import OwnerIndex
from workers.core.owned.targets import TargetCluster, TargetClusters
from workers.core.serving import Common, Serving

logger = logging.getLogger(__name__)

KIND = Kind(
    resource=EXPOSURES,
    pool="exposure",
    finalizer="extensions.gardener.cloud/selfhostedshootexposure",
    descriptions=statuses.descriptions_for("SelfHostedShootExposure", deleted="reconciled"),
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
        shoot, spec, name = shoot_of(run), parsed(run.object.spec), run.ref.name
        namespace = ownerindex.infrastructure_namespace(shoot.technical_id)
        balancer = service(name, namespace, spec)
        balancer_name = balancer["metadata"]["name"]
        wanted = slices(name, namespace, spec, shoot.ip_families)
        async with self._provider(run) as target:
            try:
                found = await target.cached(SERVICES, namespace, balancer_name)
                if found and not found.deleting and (patch := excess(found, balancer)):
                    await target.merge(SERVICES, namespace, balancer_name, patch)
                await target.update(SERVICES, found, balancer)
                for one in wanted:
                    await target.ensure(ENDPOINT_SLICES, one)
            except Missing as error:
                raise TransientError(
                    f"namespace {namespace}, which the Shoot's Infrastructure makes, is not there yet"
                ) from error
            for family in FAMILIES:
                former = slice_name(name, family)
                if family not in shoot.ip_families and await target.cached(
                    ENDPOINT_SLICES, namespace, former
                ):
                    await target.remove(ENDPOINT_SLICES, namespace, former)
            ingress = manifests.balancer_ingress(await target.cached(SERVICES, namespace, balancer_name))
            if not ingress:
                # No address is never reported: the former value stays in the status.
                raise Waiting(f"waiting for an address of Service {balancer_name}")
            return {"ingress": ingress}

    async def delete(self, run: Run) -> None:
        if not (run.object.spec.get("credentialsRef") or run.object.status.get("ingress")):
            return  # unmanaged infrastructure: nothing was ever created
        namespace, balancer = ownerindex.machine_namespace(run), service_name(run.ref.name)
        async with self._provider(run) as target:
            if await target.remove(SERVICES, namespace, balancer):
                raise Waiting(f"waiting for Service {balancer} to be gone")
            await _remove_slices(target, namespace, run.ref.name)

    async def force_delete(self, run: Run) -> None:
        """Delete everything without waiting. Objects that cannot be removed are left behind."""
        try:
            namespace, balancer = ownerindex.machine_namespace(run), service_name(run.ref.name)
            async with self._provider(run) as target:
                await target.remove(SERVICES, namespace, balancer)
                await _remove_slices(target, namespace, run.ref.name)
        except (Superseded, Waiting):
            raise
        except WindowboxError as error:
            logger.warning("%s: forced deletion leaves objects behind: %s", run.ref, error)

    def _provider(self, run: Run) -> AbstractAsyncContextManager[TargetCluster]:
        namespace = run.ref.namespace
        return self._targets.provider(run, namespace, credentials(run.object.spec, namespace))


async def _remove_slices(target: TargetCluster, namespace: str, exposure: str) -> None:
    for family in FAMILIES:
        await target.remove(ENDPOINT_SLICES, namespace, slice_name(exposure, family))


def serving(common: Common, row: Served) -> Serving:
    owner_index = OwnerIndex(common.bus, common.world, row.resource)

    def owners(made: ObjectRef) -> Iterator[ObjectRef]:
        for ref in owner_index.of_machine_namespace(made.namespace):
            names = [service_name(ref.name)]
            if made.kind != SERVICES.id:
                names = [slice_name(ref.name, one) for one in FAMILIES]
            if made.name in names:
                yield ref

    return Serving(
        KIND,
        ExposureActuator(common.targets),
        owners=owners,
        known=owner_index.complete,
        tasks={"owner index": owner_index.run},
    )


Address = IPv4Address | IPv6Address

_NAMES = frozenset({"Hostname", "InternalDNS", "ExternalDNS"})
_IPS = frozenset({"InternalIP", "ExternalIP"})
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.IGNORECASE)
_MAX_ENDPOINTS = 1000
"""As many endpoints as one EndpointSlice may have."""


@dataclass(frozen=True)
class ExposureSpec:
    """The validated spec of an exposure."""

    port: int
    addresses: tuple[Address, ...]
    """The internal IPs of the nodes, each once."""


def parsed(spec: Mapping[str, Any]) -> ExposureSpec:
    port = spec.get("port")
    if not isinstance(port, int) or not 1 <= port <= 65535:
        raise Malformed(f"spec.port: {port!r} is no port; give a number from 1 to 65535")
    endpoints = spec.get("endpoints")
    if not isinstance(endpoints, list) or not endpoints:
        raise Malformed("spec.endpoints is empty: name at least one node that the API server runs on")
    check_parts("spec.endpoints", endpoints)
    found = dict.fromkeys(one for index, endpoint in enumerate(endpoints) for one in _node(index, endpoint))
    if len(found) > _MAX_ENDPOINTS:
        raise Malformed(f"spec.endpoints: {len(found)} addresses are too many; give at most {_MAX_ENDPOINTS}")
    return ExposureSpec(port, tuple(found))


def credentials(spec: Mapping[str, Any], namespace: str) -> str:
    """The name of the Secret with the kubeconfig of the machines' cluster."""
    found = spec.get("credentialsRef")
    if not isinstance(found, Mapping):
        raise Malformed(
            "spec.credentialsRef is not set: name the Secret with the kubeconfig of the cluster that the "
            "machines run in"
        )
    for field, right in (("apiVersion", "v1"), ("kind", "Secret"), ("namespace", namespace)):
        if (value := found.get(field)) != right:
            raise Malformed(
                f"spec.credentialsRef.{field}: {value!r} is not allowed; it has to be a v1 Secret in the "
                f"exposure's own namespace, so {right!r}"
            )
    if not found.get("name"):
        raise Malformed("spec.credentialsRef.name is empty: name the Secret with the kubeconfig")
    return str(found["name"])


def _node(index: int, endpoint: Any) -> Iterator[Address]:
    where = f"spec.endpoints[{index}]"
    if not isinstance(endpoint, Mapping) or not endpoint.get("nodeName"):
        raise Malformed(f"{where}.nodeName is empty: give the name of the node")
    for number, address in enumerate(endpoint.get("addresses") or ()):
        at = f"{where}.addresses[{number}]"
        kind, value = str(address.get("type")), str(address.get("address"))
        if kind in _IPS:
            try:
                found = ip_address(value)
            except ValueError as error:
                raise Malformed(f"{at}.address: {value!r} is no IP address; correct it") from error
            if kind == "InternalIP":
                yield _reachable(f"{at}.address", found)
        elif kind not in _NAMES:
            known = ", ".join(sorted(_IPS | _NAMES))
            raise Malformed(f"{at}.type: {kind!r} is no type of a node address; give one of {known}")
        elif len(value) > 253 or not _NAME.fullmatch(value):
            raise Malformed(f"{at}.address: {value!r} is no host name; correct it")


def _reachable(at: str, address: Address) -> Address:
    """The address, if other machines can reach it. Only internal IPs are used, so only they are checked."""
    # API servers refuse an EndpointSlice with such an address, and all its endpoints with it.
    if address.is_unspecified or address.is_loopback or address.is_link_local or address.is_multicast:
        raise Malformed(f"{at}: {address} leads to no node; give the address that other machines reach it at")
    if isinstance(address, IPv6Address) and address.scope_id:
        raise Malformed(f"{at}: {address} is known to one machine alone; give the address without %")
    return address


FAMILIES = ("IPv4", "IPv6")
_VERSIONS = {"IPv4": 4, "IPv6": 6}
_PORT = "https"


def service_name(exposure: str) -> str:
    return f"exposure-{exposure}"


def slice_name(exposure: str, family: str) -> str:
    return f"{service_name(exposure)}-{family.lower()}"


def service(exposure: str, namespace: str, request: ExposureSpec) -> Manifest:
    """The load balancer, without selector: its endpoints are no Pods."""
    port = {"name": _PORT, "port": request.port, "targetPort": request.port, "protocol": "TCP"}
    spec = {"type": "LoadBalancer", "ipFamilyPolicy": "PreferDualStack", "ports": [port]}
    return manifest(SERVICES, service_name(exposure), namespace, spec=spec)


def excess(found: Object, service: Manifest) -> dict[str, Any] | None:
    """The merge patch that removes what conflicts with the desired Service; None if nothing does.

    A port of the same name that another field manager owns would make our apply fail.
    """
    ports = service["spec"]["ports"]
    ours = {(port["port"], port["protocol"]) for port in ports}
    patch: dict[str, Any] = {}
    if any((port.get("port"), port.get("protocol")) not in ours for port in found.spec.get("ports") or ()):
        patch["ports"] = ports
    if found.spec.get("selector"):
        patch["selector"] = None
    return {"spec": patch} if patch else None


def slices(exposure: str, namespace: str, request: ExposureSpec, families: Iterable[str]) -> list[Manifest]:
    """An EndpointSlice of the nodes for each IP family. Each family of the Shoot needs an address."""
    made = []
    for family in families:
        if family not in _VERSIONS:
            raise Malformed(f"spec.networking.ipFamilies of the Shoot: {family!r} is neither IPv4 nor IPv6")
        found = [address for address in request.addresses if address.version == _VERSIONS[family]]
        if not found:
            raise Malformed(
                f"spec.endpoints: no InternalIP is of family {family}, which the Shoot has; give one, or "
                f"take {family} out of the Shoot's spec.networking.ipFamilies"
            )
        made.append(
            manifest(
                ENDPOINT_SLICES,
                slice_name(exposure, family),
                namespace,
                labels={"kubernetes.io/service-name": service_name(exposure)},
                addressType=family,
                endpoints=[_endpoint(address) for address in found],
                ports=[{"name": _PORT, "port": request.port, "protocol": "TCP"}],
            )
        )
    return made


def _endpoint(address: Address) -> dict[str, Any]:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    if mapped:
        # Python counts it as IPv6, but the API refuses it as an endpoint.
        raise Malformed(
            f"spec.endpoints: InternalIP ::ffff:{mapped} is an IPv4 address; write it as {mapped}"
        )
    return {"addresses": [str(address)], "conditions": {"ready": True}}
