"""What Gardener's own provider-local leaves when it ends: the contract's objects after success."""

from __future__ import annotations

import contextlib
from typing import Any

import yaml

from tests.support.kindworld import Client
from windowbox.errors import WindowboxError
from windowbox.models.refs import (
    EXTENSIONS,
    HEARTBEATS,
    INFRASTRUCTURES,
    IP_POOLS,
    MANAGED_RESOURCES,
    NAMESPACES,
    NETWORK_POLICIES,
    SECRETS,
    Resource,
)
from workers.extension import wanted
from workers.owned import managedresources

MANAGER = "gardener-extension-provider-local"
STAMP = {"gardener.cloud/timestamp": "2026-09-01T10:15:30.123456789Z"}
LEADER, HEARTBEAT = "provider-local-leader-election", "gardener-extension-heartbeat"

_POLICIES = """
- metadata: {name: provider-local-deny-all, labels: {app.kubernetes.io/managed-by: provider-local}}
  spec: {podSelector: {}, policyTypes: [Ingress, Egress]}
- metadata: {name: provider-local-allow-machine-pods, labels: {app.kubernetes.io/managed-by: provider-local}}
  spec:
    podSelector: {matchLabels: {app: machine}}
    policyTypes: [Ingress, Egress]
    ingress:
    - from: [{ipBlock: {cidr: 172.18.0.0/24}}, {ipBlock: {cidr: "fd00:10::/64"}}]
      ports: [{protocol: TCP, port: 30000, endPort: 32767}, {protocol: TCP, port: 10256}]
    - from: [{podSelector: {matchLabels: {app: bastion}}}]
      ports: [{protocol: TCP, port: 22}]
    - from: [{podSelector: {matchLabels: {app: machine}}}]
    egress:
    - to:
      - namespaceSelector: {matchLabels: {gardener.cloud/role: istio-ingress}}
        podSelector: {matchLabels: {app: istio-ingressgateway}}
      ports: [{protocol: TCP, port: 8132}, {protocol: TCP, port: 8443}, {protocol: TCP, port: 9443}]
    - to: [{ipBlock: {cidr: 172.18.255.53/32}}, {ipBlock: {cidr: "fd00:ff::53/128"}}]
      ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]
    - to:
      - ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10]}
      - ipBlock: {cidr: "::/0", except: ["fe80::/10", "fc00::/7"]}
    - to: [{ipBlock: {cidr: 172.18.255.224/27}}, {ipBlock: {cidr: "fd00:ff::e0/123"}}]
    - to: [{podSelector: {matchLabels: {app: machine}}}]
    - to: [{ipBlock: {cidr: 172.18.0.0/24}}, {ipBlock: {cidr: "fd00:10::/64"}}]
"""


async def leave(shoot: Client, release: str) -> None:
    """Make all of it: a Shoot's Infrastructure and Extension, what they consist of, and Leases."""
    await _infrastructure(shoot)
    await _extension(shoot)
    with contextlib.suppress(WindowboxError):
        await shoot.kube.create(NAMESPACES, "", {"metadata": {"name": release}})
    for name, holder in ((LEADER, "go-program_1234"), (HEARTBEAT, "provider-local")):
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": 30,
            "renewTime": "2026-09-01T10:15:30.000000Z",
        }
        await shoot.kube.create(HEARTBEATS, release, {"metadata": {"name": name}, "spec": spec})


async def _infrastructure(shoot: Client) -> None:
    spec = {
        "region": "local",
        "secretRef": {"name": "cloudprovider", "namespace": shoot.namespace},
        "sshPublicKey": "c3NoLWVkMjU1MTkgQUFBQSB1c2VyQGV4YW1wbGU=",
    }
    status = {
        "networking": {"nodes": ["10.0.0.0/16"], "pods": ["10.3.0.0/16"], "services": ["10.4.0.0/16"]},
        "egressCIDRs": ["10.0.0.0/16"],
    }
    await _succeeded(shoot, INFRASTRUCTURES, "local", spec, status)
    inside = f"infra-{shoot.namespace}"
    made = await _apply(
        shoot, NAMESPACES, "", {"metadata": {"name": inside, "labels": {"gardener.cloud/role": "infra"}}}
    )
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": inside, "uid": made}
    pool = {"cidr": "10.0.0.0/16", "ipipMode": "Always", "natOutgoing": True, "nodeSelector": "!all()"}
    name = f"shoot-machine-pods-{shoot.namespace}-ipv4"
    await _apply(shoot, IP_POOLS, "", {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": pool})
    for policy in yaml.safe_load(_POLICIES):
        await _apply(shoot, NETWORK_POLICIES, inside, policy)


async def _extension(shoot: Client) -> None:
    await _succeeded(shoot, EXTENSIONS, wanted.SHOOT, {"type": wanted.SHOOT}, {})
    bundle = wanted.bundle(wanted.SHOOT, shoot.namespace)
    await _apply(shoot, SECRETS, shoot.namespace, managedresources.secret(bundle))
    await _apply(shoot, MANAGED_RESOURCES, shoot.namespace, managedresources.managed_resource(bundle))


async def _succeeded(
    shoot: Client, resource: Resource, name: str, spec: dict[str, Any], status: dict[str, Any]
) -> None:
    suffix = spec.get("type", resource.kind.lower())
    finalizers = [f"extensions.gardener.cloud/{suffix}"]
    made = await shoot.create(resource, name, spec, operation=None, annotations=STAMP, finalizers=finalizers)
    last = {
        "type": "Create", "state": "Succeeded", "progress": 100, "lastUpdateTime": "2026-09-01T10:15:32Z",
        "description": f"Successfully reconciled {resource.kind.lower()}",
    }  # fmt: skip
    body = {"status": {"observedGeneration": made.generation, "lastOperation": last, **status}}
    await shoot.merge(resource, name, body, part="status")


async def _apply(shoot: Client, resource: Resource, namespace: str, body: dict[str, Any]) -> str:
    head = {"apiVersion": f"{resource.group}/{resource.version}".removeprefix("/"), "kind": resource.kind}
    applied = await shoot.kube.apply(
        resource, namespace, body["metadata"]["name"], head | body, owner=MANAGER
    )
    return applied.uid
