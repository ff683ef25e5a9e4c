"""The cloud of an Infrastructure of type gcp: a VPC with its subnets, firewall and router, and Cloud NAT."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from clouds.frame import inventory
from clouds.frame.cidrs import unusable
from clouds.frame.decoding import decode
from clouds.frame.infrastructure import (
    NODE_PORTS,
    Json,
    Opening,
    Plan,
    Planner,
    Site,
    Subnet,
    require_valid,
    state_object,
)
from clouds.frame.inventory import CloudObject, Found, Reference
from clouds.gcp import infrastructure
from clouds.gcp.api import CloudNat, FlowLogs, InfrastructureConfig, Networks

_VERSION = "gcp.provider.extensions.gardener.cloud/v1alpha1"
_CHECKERS = ("35.191.0.0/16", "209.85.204.0/22", "209.85.152.0/22", "130.211.0.0/22")
"""Whence load balancers of Google check the health of nodes."""


def references(site: Site) -> list[Reference]:
    networks, found = _config(site).networks, []
    if (vpc := networks.vpc) is not None:
        found.append(Reference("vpc", vpc.name, "networks.vpc.name"))
        if vpc.cloud_router is not None:
            found.append(Reference("router", vpc.cloud_router.name, "networks.vpc.cloudRouter.name"))
    for i, one in enumerate((networks.cloud_nat or CloudNat()).nat_ip_names or []):
        path = f"networks.cloudNAT.natIPNames[{i}].name"
        found.append(Reference("address", one.name, path, exclusive=True))
    return found


def plan(site: Site, found: Found) -> Plan:
    networks = _config(site).networks
    require_valid(
        chain(
            infrastructure.problems(_config(site), site.networking),
            unusable(*site.networking.ranges("spec.networking")),
        )
    )
    uses, addresses = references(site), []
    for one in uses:  # GCP-R1, GCP-R2
        existing = inventory.required(found, one, site.technical_id)
        if one.kind != "vpc":  # VPCs are of all regions
            inventory.require_properties(existing, one, region=site.region)
        if one.kind == "address":
            inventory.require_properties(existing, one, addressType="EXTERNAL")
            addresses.append(inventory.address_of(existing, one))
    workers = networks.workers or networks.worker
    inside = [one for one in (site.networking.pods, networks.internal, workers) if one]
    everything = (Opening(protocol, source=source) for source in inside for protocol in ("TCP", "UDP"))
    checks = (
        Opening(one.protocol, one.first, one.last, source) for source in _CHECKERS for one in NODE_PORTS
    )
    return Plan(
        objects=tuple(_objects(site, networks, inside)),
        provider_status=_status(site, networks, addresses),
        state=state_object(_VERSION, {"resources_exist": "true"}),
        subnets=(Subnet(workers),),
        # Addresses that Google chooses are not reported.
        egress=tuple(f"{address}/32" for address in addresses),
        uses=tuple(uses),
        openings=(*everything, *checks),
    )


PLANNER = Planner(references, plan)


def _config(site: Site) -> InfrastructureConfig:
    return decode(InfrastructureConfig, site.config, "spec.providerConfig")


def _vpc_and_router(site: Site, networks: Networks) -> tuple[str, str]:
    """Their names."""
    name, vpc = site.technical_id, networks.vpc
    router = vpc.cloud_router.name if vpc and vpc.cloud_router else f"{name}-cloud-router"
    return vpc.name if vpc else name, router


def _objects(site: Site, networks: Networks, inside: list[str]) -> Iterator[CloudObject]:
    name, workers = site.technical_id, networks.workers or networks.worker
    vpc, router = _vpc_and_router(site, networks)

    def made(kind: str, collection: str, named: str, **properties: Any) -> CloudObject:
        id_ = f"projects/{site.credentials['project']}/{collection}/{named}"
        return CloudObject(kind, id_, named, properties)

    here = f"regions/{site.region}"
    if networks.vpc is None:
        yield made("vpc", "global/networks", vpc, routingMode="REGIONAL")
    logs = _flow_logs(networks.flow_logs) if networks.flow_logs else None
    yield made("subnet", f"{here}/subnetworks", f"{name}-nodes", cidr=workers, vpc=vpc, flowLogs=logs)
    if networks.internal is not None:
        yield made(
            "subnet",
            f"{here}/subnetworks",
            f"{name}-internal",
            cidr=networks.internal,
            vpc=vpc,
            flowLogs=None,
        )
    if networks.vpc is None:
        yield made("router", f"{here}/routers", router, vpc=vpc)
    nat = _nat(networks.cloud_nat or CloudNat())
    yield made(
        "cloud-nat", f"{here}/routers/{router}/nats", f"{name}-cloud-nat", subnet=f"{name}-nodes", **nat
    )
    firewalls = "global/firewalls"
    yield made(
        "firewall",
        firewalls,
        f"{name}-allow-internal-access",
        vpc=vpc,
        sources=inside,
        allowed=["icmp", "ipip", "tcp:1-65535", "udp:1-65535"],
    )
    yield made(
        "firewall",
        firewalls,
        f"{name}-allow-health-checks",
        vpc=vpc,
        sources=list(_CHECKERS),
        allowed=["tcp:30000-32767", "udp:30000-32767"],
    )


def _flow_logs(logs: FlowLogs) -> Json:
    sampling = logs.flow_sampling
    return {
        "aggregationInterval": logs.aggregation_interval or "INTERVAL_5_MIN",
        "flowSampling": 0.5 if sampling is None else sampling,
        "metadata": logs.metadata or "EXCLUDE_ALL_METADATA",
    }


def _nat(nat: CloudNat) -> Json:
    """What a Cloud NAT does."""
    numbers = {
        "minPortsPerVm": (nat.min_ports_per_vm, 2048),
        "maxPortsPerVm": (nat.max_ports_per_vm, 65536),
        "icmpIdleTimeoutSec": (nat.icmp_idle_timeout_sec, 30),
        "tcpEstablishedIdleTimeoutSec": (nat.tcp_established_idle_timeout_sec, 1200),
        "tcpTimeWaitTimeoutSec": (nat.tcp_time_wait_timeout_sec, 120),
        "tcpTransitoryIdleTimeoutSec": (nat.tcp_transitory_idle_timeout_sec, 30),
        "udpIdleTimeoutSec": (nat.udp_idle_timeout_sec, 30),
    }
    addresses, mapping = nat.nat_ip_names or [], nat.endpoint_independent_mapping
    return {
        "natIpAllocateOption": "MANUAL_ONLY" if addresses else "AUTO_ONLY",
        "natIps": [one.name for one in addresses],
        "enableDynamicPortAllocation": nat.enable_dynamic_port_allocation,
        "enableEndpointIndependentMapping": mapping is not None and mapping.enabled,
        "logs": "ERRORS_ONLY",
        **{name: default if given is None else given for name, (given, default) in numbers.items()},
    }


def _status(site: Site, networks: Networks, addresses: list[str]) -> Json:
    vpc, router = _vpc_and_router(site, networks)
    subnets = [{"name": f"{site.technical_id}-nodes", "purpose": "nodes"}]
    if networks.internal is not None:
        subnets.append({"name": f"{site.technical_id}-internal", "purpose": "internal"})
    found: Json = {"vpc": {"name": vpc, "cloudRouter": {"name": router}}, "subnets": subnets}
    if addresses:
        found["natIPs"] = [{"ip": address} for address in addresses]
    return {
        "apiVersion": _VERSION,
        "kind": "InfrastructureStatus",
        "networks": found,
        "serviceAccountEmail": "",  # no account is made (feature gate DisableGardenerServiceAccountCreation)
    }
