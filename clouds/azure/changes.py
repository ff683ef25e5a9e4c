"""What updates of Shoots of type azure do. Inputs of the hash need no rule: nodes are rolled by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clouds.azure import machines
from clouds.azure.api import ControlPlaneConfig, InfrastructureConfig, WorkerConfig
from clouds.frame.changes.effects import NETWORKS, Changes, Kind, Rule, flow_annotations, given_up
from clouds.frame.cloud import Json
from clouds.frame.decoding import decode_leniently
from clouds.frame.pools import Site

_GROUP = "azure.provider.extensions.gardener.cloud"


def expected(site: Site, before: Json | None) -> Site:
    """The subnets and the identity."""
    config = _infrastructure(site.shoot)
    former = _infrastructure(before).networks.workers if before else None
    subnets = [
        {
            "purpose": "nodes",
            "name": f"nodes-z{zone.name}",
            "zone": str(zone.name),
            # AZU-U5: the zone that keeps the range of the workers keeps their subnet, and so its nodes.
            "migrated": zone.cidr == former,
        }
        for zone in config.zones
    ] or [{"purpose": "nodes", "name": "nodes"}]
    layout = "MultipleSubnet" if config.zones else "SingleSubnet"
    infra: dict[str, Any] = {
        "zoned": config.zoned,
        "networks": {"layout": layout, "subnets": subnets},
        "resourceGroup": {"name": "group"},
    }
    if config.identity is not None:
        infra["identity"] = {"id": f"{config.identity.resource_group}/{config.identity.name}"}
    return replace(site, infrastructure=infra)


def _infrastructure(shoot: Mapping[str, Any]) -> InfrastructureConfig:
    given = shoot["spec"]["provider"].get("infrastructureConfig")
    return decode_leniently(InfrastructureConfig, given, "spec.provider.infrastructureConfig")


def _gets_gateways(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether zones take over from a subnet without a NAT gateway, and one of them has a gateway."""
    gateways = (zone.get("natGateway", {}) for zone in new.get("zones", ()))
    return not old.get("zones") and not old.get("natGateway") and any(one.get("enabled") for one in gateways)


def _nat(path: str) -> dict[str, list[Rule]]:
    """Of one subnet."""
    switched = Rule(Kind.EGRESS, "nodes leave through the NAT gateway, or no longer")
    renewed = Rule(Kind.EGRESS, "the NAT gateway and its managed address are made anew")
    return {
        f"{path}.enabled": [switched],
        f"{path}.zone": [renewed],
        f"{path}.idleConnectionTimeoutMinutes": [Rule(Kind.IN_PLACE, "the NAT gateway is updated")],
        f"{path}.ipAddresses": [
            Rule(Kind.EGRESS, "the NAT gateway gives up a former address", when=given_up),
            Rule(Kind.IN_PLACE, "the NAT gateway gets further addresses, egressCIDRs too"),
        ],
    }


_MIGRATION = "nodes move from the availability set to scale sets"
_DRIVER = Rule(Kind.IN_PLACE, "the CSI driver is updated")

CHANGES = Changes(
    machines=machines.MACHINES,
    hash_inputs=machines.hash_inputs,
    infrastructure=InfrastructureConfig,
    control_plane=ControlPlaneConfig,
    worker=WorkerConfig,
    rules={
        NETWORKS: [
            Rule(
                Kind.EGRESS,
                "nodes leave through the NAT gateways of their zones",
                "AZU-U5",
                _gets_gateways,
            )
        ],
        f"{NETWORKS}.zones[]": [Rule(Kind.IN_PLACE, "the zone gets a subnet of its own", "AZU-U6")],
        **_nat(f"{NETWORKS}.natGateway"),
        **_nat(f"{NETWORKS}.zones[].natGateway"),
    },
    annotations={
        **flow_annotations("azure"),
        f"migration.{_GROUP}/vmo": [
            Rule(Kind.ROLLS, _MIGRATION, "AZU-W5"),
            Rule(Kind.LASTING, _MIGRATION, "AZU-W5"),
        ],
        f"alpha.{_GROUP}/vmo": [Rule(Kind.IN_PLACE, "it counts for new clusters only", "AZU-W5")],
        f"{_GROUP}/disable-remedy-controller": [Rule(Kind.IN_PLACE, "the remedy controller comes or goes")],
        f"{_GROUP}/enable-volume-attributes-class": [_DRIVER],
    },
    expected=expected,
)
