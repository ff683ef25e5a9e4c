"""The objects that an exposure consists of. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv6Address
from typing import Any

from windowbox.errors import Malformed
from windowbox.models.objects import Object
from windowbox.models.refs import ENDPOINT_SLICES, SERVICES
from workers.core.owned.manifests import Manifest, manifest
from workers.kinds.exposure.specs import Address, ExposureSpec

FAMILIES = ("IPv4", "IPv6")
_VERSIONS = {"IPv4": 4, "IPv6": 6}
_PORT = "https"


def service_name(exposure: str) -> str:
    return f"exposure-{exposure}"


def slice_name(exposure: str, family: str) -> str:
    return f"{service_name(exposure)}-{family.lower()}"


def service(exposure: str, namespace: str, request: ExposureSpec) -> Manifest:
    """The load balancer. It has no selector: its endpoints are written by us, for they are no Pods."""
    port = {"name": _PORT, "port": request.port, "targetPort": request.port, "protocol": "TCP"}
    spec = {"type": "LoadBalancer", "ipFamilyPolicy": "PreferDualStack", "ports": [port]}
    return manifest(SERVICES, service_name(exposure), namespace, spec=spec)


def excess(found: Object, service: Manifest) -> dict[str, Any] | None:
    """The merge patch that takes out of a Service what keeps ours from being what it is, if any.

    A port that somebody else has put there would not let ours in beside it.
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
    """The nodes behind it, by IP family. Each family that the Shoot has must have one."""
    return [_slice(exposure, namespace, family, request) for family in families]


def _slice(exposure: str, namespace: str, family: str, request: ExposureSpec) -> Manifest:
    return manifest(
        ENDPOINT_SLICES,
        slice_name(exposure, family),
        namespace,
        labels={"kubernetes.io/service-name": service_name(exposure)},
        addressType=family,
        endpoints=[_endpoint(address) for address in _of(family, request)],
        ports=[{"name": _PORT, "port": request.port, "protocol": "TCP"}],
    )


def _of(family: str, request: ExposureSpec) -> list[Address]:
    if family not in _VERSIONS:
        raise Malformed(f"spec.networking.ipFamilies of the Shoot: {family!r} is neither IPv4 nor IPv6")
    found = [address for address in request.addresses if address.version == _VERSIONS[family]]
    if not found:
        raise Malformed(
            f"spec.endpoints: no InternalIP is of family {family}, which the Shoot has; give one, or take "
            f"{family} out of the Shoot's spec.networking.ipFamilies"
        )
    return found


def _endpoint(address: Address) -> dict[str, Any]:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    if mapped:
        # Of the two families it counts as IPv6, but the API takes no such endpoints.
        raise Malformed(
            f"spec.endpoints: InternalIP ::ffff:{mapped} is an IPv4 address; write it as {mapped}"
        )
    return {"addresses": [str(address)], "conditions": {"ready": True}}
