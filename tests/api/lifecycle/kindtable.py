"""How kinds of extensions differ in the contract that all of them keep: a row for each pool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from windowbox.models.objects import Object
from windowbox.models.refs import (
    ENDPOINT_SLICES,
    IP_POOLS,
    MANAGED_RESOURCES,
    NAMESPACES,
    NETWORK_POLICIES,
    PODS,
    SERVICES,
    Resource,
)


@dataclass(frozen=True)
class Bad:
    """Bad input, and the error that names field, value and remedy."""

    case: str
    says: str
    spec: dict[str, Any] = field(default_factory=dict)
    """Laid over the spec of the example."""
    shoot: dict[str, Any] = field(default_factory=dict)
    """Laid over the Cluster's Shoot, or its `cloudProfile`."""
    daily: bool = True
    """False: only long tests make it, others show it with values (tests/unit)."""
    corrected: bool = False
    """Whether it is corrected also where long tests do not run."""


@dataclass(frozen=True)
class Traits:
    bad: tuple[Bad, ...] = ()
    migrates: bool = True
    keeps: bool = True
    """A migration keeps its objects. False: it deletes ManagedResources, whose objects stay."""
    service: dict[str, Any] = field(default_factory=dict)
    """An edit of its Service."""
    needs_shoot: bool = True
    stops_on_failed_shoot: bool = True
    rules: dict[str, str] = field(default_factory=dict)
    """Rules of the contract that its cases show, by test."""


def _networking(**fields: Any) -> dict[str, Any]:
    ranges = {"nodes": "10.0.0.0/16", "pods": "10.3.0.0/16", "services": "10.4.0.0/16"}
    return {"spec": {"networking": {"ipFamilies": ["IPv4"]} | ranges | fields}}


def _profile(**config: Any) -> dict[str, Any]:
    head = {"apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1", "kind": "CloudProfileConfig"}
    return {"cloudProfile": {"spec": {"providerConfig": {**head, "machineImages": [], **config}}}}


_NO_NAMESPACE = {"status": {"technicalID": "Shoot--X"}}
_NODE = {"nodeName": "node-0", "addresses": [{"type": "InternalIP", "address": "fd00::5"}]}
_IMAGE = {"imageRef": {"image": "i", "filePathInImage": "/a"}}
_EXTENSION = {"again": "M-4+F-6", "drift": "B.26", "migration": "M-7", "cluster": "C-3"}
_IS_WRONG = "is 'Shoot--X': make it at most 57 lower-case letters"

TRAITS = {
    "infrastructure": Traits(
        bad=(
            Bad(
                "I-3+B.9-no-nodes",
                "networking.nodes of the Shoot is not set: give it a CIDR",
                shoot=_networking(nodes=None),
                corrected=True,
            ),
            Bad(
                "I-3+B.17-host-bits",
                "nodes of the Shoot: 10.0.0.1/16 has host bits set; correct the CIDR",
                shoot=_networking(nodes="10.0.0.1/16"),
                daily=False,
            ),
            Bad(
                "B.7-family",
                "is not of its ipFamilies (IPv6)",
                shoot=_networking(ipFamilies=["IPv6"]),
                daily=False,
            ),
            Bad("technical-id", _IS_WRONG, shoot=_NO_NAMESPACE, daily=False),
            Bad(
                "D-7-config",
                "there are kind: 'X', networks: {'vpc': '10.0.0.0/8'}; remove",
                spec={"providerConfig": {"networks": {"vpc": "10.0.0.0/8"}, "kind": "X"}},
            ),
        ),
        rules={
            "drift": "I-2",
            "migration": "I-2+N-2+B.22+B.31",
            "forced": "I-2+C-8",
            "cluster": "C-3",
            "credentials": "K-1+B.17",
        },
    ),
    "bastion": Traits(
        bad=(
            Bad(
                "BA-5-cidr",
                "spec.ingress[0].ipBlock.cidr is '203.0.113.7'",
                spec={"ingress": [{"ipBlock": {"cidr": "203.0.113.7"}}]},
            ),
            Bad(
                "B.9-no-config",
                "spec.providerConfig of the CloudProfile is missing",
                shoot={"cloudProfile": {}},
                daily=False,
            ),
            Bad(
                "2.16-field",
                "spec.providerConfig of the CloudProfile: machineImage is unknown",
                shoot=_profile(machineImage=[]),
                daily=False,
            ),
        ),
        migrates=False,
        service={"loadBalancerSourceRanges": ["0.0.0.0/0"]},
        stops_on_failed_shoot=False,
        rules={
            "again": "BA-2+BA-3",
            "drift": "BA-5+B.5",
            "migration": "O-7",
            "forced": "D-2+B.6+BA-4",
            "failed": "T-8",
            "credentials": "K-1+K-3+B.17",
        },
    ),
    "exposure": Traits(
        bad=(
            Bad("K-3-unset", "spec.credentialsRef is not set", spec={"credentialsRef": None}),
            Bad("A-7-family", "no InternalIP is of family IPv4", spec={"endpoints": [_NODE]}, daily=False),
        ),
        migrates=False,
        service={"ports": [{"name": "https", "port": 8443, "targetPort": 8443, "protocol": "TCP"}]},
        stops_on_failed_shoot=False,
        rules={"migration": "O-7", "forced": "B.6+C-8", "credentials": "K-3"},
    ),
    "operatingsystemconfig": Traits(
        bad=(
            Bad("X-9-purpose", "unknown purpose: both; set spec.purpose to", spec={"purpose": "both"}),
            Bad(
                "X-1+B.9-image",
                "spec.files[0].content.imageRef is 'i'",
                spec={"files": [{"path": "/a", "content": _IMAGE}]},
                corrected=True,
            ),
        ),
        rules={"migration": "D-6", "failed": "T-8+C.5-15"},
    ),
    "controlplane": Traits(
        bad=(
            Bad("B.9-no-config", "add a CloudProfileConfig", shoot={"cloudProfile": {}}),
            Bad(
                "E-2-image",
                "loadBalancer.image is 3: write a text",
                shoot=_profile(loadBalancer={"image": 3}),
                daily=False,
            ),
            Bad("technical-id", _IS_WRONG, shoot=_NO_NAMESPACE, daily=False),
        ),
        keeps=False,
        rules={"drift": "M-1", "migration": "A.13+N-2", "forced": "C-8"},
    ),
    "backupbucket": Traits(
        bad=(
            Bad("D-4+V-11-no-namespace", "spec.secretRef", spec={"secretRef": {"name": "credentials"}}),
            Bad(
                "D-4+V-11-no-name",
                "cannot be a name",
                spec={"secretRef": {"name": "a/b", "namespace": "garden"}},
                corrected=True,
            ),
        ),
        migrates=False,
        needs_shoot=False,
        rules={"migration": "O-7", "life": "D-3"},
    ),
    "backupentry": Traits(
        bad=(
            Bad(
                "D-4+V-11-no-namespace",
                "spec.secretRef",
                spec={"secretRef": {"name": "credentials"}},
                daily=False,
            ),
            Bad(
                "upwards",
                "spec.bucketName: '../other' cannot be the name of a folder",
                spec={"bucketName": "../other"},
            ),
            Bad("nul", "spec.bucketName", spec={"bucketName": "nul\0"}),
        ),
        needs_shoot=False,
        rules={"migration": "BE-5+D-4+N-2", "life": "BE-4"},
    ),
    "dnsrecord": Traits(
        bad=(
            Bad("values", "spec.values is empty: give at least one value", spec={"values": []}, daily=False),
        )
    ),
    "local-ext-seed": Traits(keeps=False, rules=_EXTENSION),
    "local-ext-shoot": Traits(keeps=False, rules=_EXTENSION),
    "local-ext-shoot-after-worker": Traits(keeps=False, rules=_EXTENSION),
}
ALIKE = ("local-ext-seed", "local-ext-shoot")
"""To these tests the same as `local-ext-shoot-after-worker`: theirs are long."""

WITHOUT = {
    "heartbeat": "windowbox itself creates its only object",
    "ingress": "not an extension",
    "loadbalancer": "not an extension",
    "machine": "not an extension",
    "machinedeployment": "not an extension",
    "machineset": "not an extension",
    "worker": "is ready only with machines: tests/api/machines",
}
"""Pools without a row, and why."""
WITH = {"worker": ("machinedeployment", "machineset")}
"""Further pools that a pool needs."""


def _address(found: Object) -> dict[str, Any]:
    return {"loadBalancer": {"ingress": [{"ip": "172.18.255.231", "ipMode": "Proxy"}]}}


def _running(found: Object) -> dict[str, Any]:
    return {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def _healthy(found: Object) -> dict[str, Any]:
    reported = {"status": "True", "reason": "Done", "message": "done"}
    reported |= dict.fromkeys(("lastTransitionTime", "lastUpdateTime"), "2026-09-01T10:15:30Z")
    conditions = [reported | {"type": f"Resources{one}"} for one in ("Applied", "Healthy")]
    return {"observedGeneration": found.generation, "conditions": conditions}


REPORTS: dict[Resource, Callable[[Object], dict[str, Any]]] = {
    SERVICES: _address,
    PODS: _running,
    MANAGED_RESOURCES: _healthy,
}
"""The status that other controllers report for owned objects. Their owner is ready only then."""

EDITS: dict[Resource, dict[str, Any]] = {
    ENDPOINT_SLICES: {"endpoints": [{"addresses": ["10.9.9.9"], "conditions": {"ready": True}}]},
    IP_POOLS: {"spec": {"cidr": "10.9.0.0/16"}},
    MANAGED_RESOURCES: {"spec": {"class": "other", "secretRefs": [{"name": "none"}]}},
    NAMESPACES: {"metadata": {"labels": {"gardener.cloud/role": None}}},
    NETWORK_POLICIES: {"spec": {"ingress": [{"ports": [{"protocol": "TCP", "port": 1}]}]}},
}
"""Edits by hand, by kind of owned object. The spec of a Pod is immutable."""
