"""Creates what gardenlet creates for a Shoot: its namespace, Cluster, Secret, and extension objects."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import yaml

from sandbox import roles
from tools.bench.client import Client, reconcile_request
from tools.bench.world import World
from windowbox.models.extensions import OPERATION
from windowbox.models.refs import (
    BASTIONS,
    CLUSTERS,
    CONTROL_PLANES,
    INFRASTRUCTURES,
    NAMESPACES,
    SECRETS,
    Resource,
)

SECRET = "cloudprovider"
_EXTENSIONS = "extensions.gardener.cloud/v1alpha1"


@dataclass(frozen=True)
class Shoots:
    """A client that creates Shoots, whose machines run in the cluster that the kubeconfig leads to."""

    client: Client
    kubeconfig: str

    @classmethod
    def within(cls, here: World) -> Shoots:
        """Shoots whose machines run in the sandbox itself."""
        return cls(here.client, roles.provider_kubeconfig(here.sandbox.folder))

    async def prepare(self, number: int) -> None:
        """Create everything that an Infrastructure needs."""
        name = namespace(number)
        metadata = {"name": name, "labels": {"gardener.cloud/role": "shoot"}}
        data = {"kubeconfig": base64.b64encode(self.kubeconfig.encode()).decode()}
        await self.client.request("POST", NAMESPACES.path(), {"metadata": metadata})
        await self.client.request("POST", CLUSTERS.path(), cluster(name))
        await self.client.request("POST", SECRETS.path(name), {"metadata": {"name": SECRET}, "data": data})

    async def infrastructure(self, number: int) -> None:
        """Create the Infrastructure of a Shoot."""
        await self._create(INFRASTRUCTURES, number, _placed(number))

    async def controlplane(self, number: int) -> None:
        """Create the ControlPlane of a Shoot."""
        await self._create(CONTROL_PLANES, number, _placed(number))

    async def rotation(self, number: int) -> None:
        """Begin to rotate the authorities of a Shoot, and request a reconcile of its ControlPlane."""
        rotation = {"lastInitiationTime": "2026-09-02T00:00:00Z", "phase": "Preparing"}
        credentials = {"rotation": {"certificateAuthorities": rotation}}
        patch = {"spec": {"shoot": {"status": {"credentials": credentials}}}}
        await self.client.request("PATCH", CLUSTERS.path(name=namespace(number)), patch)
        await self.reconcile(CONTROL_PLANES, number)

    async def bastion(self, number: int) -> None:
        """Create a Bastion of a Shoot that has an Infrastructure."""
        script = base64.b64encode(b"#!/bin/sh\n").decode()
        await self._create(
            BASTIONS, number, {"userData": script, "ingress": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}
        )

    async def _create(self, resource: Resource, number: int, spec: dict[str, Any]) -> None:
        metadata = {"name": named(number), "annotations": {OPERATION: "reconcile"}}
        head = {"apiVersion": _EXTENSIONS, "kind": resource.kind, "metadata": metadata}
        body = {**head, "spec": {"type": "local", **spec}}
        await self.client.request("POST", resource.path(namespace(number)), body)

    async def delete(self, resource: Resource, number: int) -> None:
        """Delete an extension object of a Shoot."""
        await self.client.request("DELETE", resource.path(namespace(number), named(number)))

    async def reconcile(self, resource: Resource, number: int) -> None:
        """Request a reconcile of an unchanged object."""
        path = resource.path(namespace(number), named(number))
        await self.client.request("PATCH", path, reconcile_request())


def namespace(number: int) -> str:
    """The namespace of a Shoot."""
    return f"shoot--bench--{number:04}"


def named(number: int) -> str:
    """The name of the extension objects of a Shoot: unique, because observers see all namespaces."""
    return f"local-{number:04}"


def _placed(number: int) -> dict[str, Any]:
    return {"region": "local", "secretRef": {"name": SECRET, "namespace": namespace(number)}}


def cluster(name: str) -> Any:
    """The Cluster of a Shoot. The image in its cloud profile is never pulled: nodes are simulated."""
    return yaml.safe_load(_CLUSTER.replace("SHORT", name.rpartition("--")[2]).replace("NAME", name))


_CLUSTER = """
apiVersion: extensions.gardener.cloud/v1alpha1
kind: Cluster
metadata: {name: NAME}
spec:
  seed: {}
  shoot:
    apiVersion: core.gardener.cloud/v1beta1
    kind: Shoot
    metadata: {name: "SHORT", namespace: garden-bench}
    spec:
      credentialsBindingName: local
      networking:
        {type: calico, ipFamilies: [IPv4], nodes: 10.0.0.0/16, pods: 10.3.0.0/16, services: 10.4.0.0/16}
    status: {technicalID: NAME}
  cloudProfile:
    apiVersion: core.gardener.cloud/v1beta1
    kind: CloudProfile
    metadata: {name: local}
    spec:
      type: local
      machineTypes: [{name: local, cpu: "1", gpu: "0", memory: 8Gi, architecture: amd64}]
      machineImages:
      - {name: local, versions: [{version: 1.0.0, architectures: [amd64], classification: supported}]}
      providerConfig:
        apiVersion: local.provider.extensions.gardener.cloud/v1alpha1
        kind: CloudProfileConfig
        machineImages: [{name: local, versions: [{version: 1.0.0, image: "windowbox.local/bench:1"}]}]
"""
