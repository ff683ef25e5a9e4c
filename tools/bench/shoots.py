"""Creates what gardenlet creates before the objects of a Shoot: its namespace, Cluster and Secret."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from tools.bench.client import Client, reconcile_request
from windowbox.models.extensions import OPERATION
from windowbox.models.refs import (
    BASTIONS,
    CLUSTERS,
    CONTROL_PLANES,
    INFRASTRUCTURES,
    IP_POOLS,
    NAMESPACES,
    NETWORK_POLICIES,
    SECRETS,
)

SECRET = "cloudprovider"
_EXTENSIONS = "extensions.gardener.cloud/v1alpha1"
_CORE = "core.gardener.cloud/v1beta1"


@dataclass(frozen=True)
class Shoots:
    """A client that creates Shoots whose machines run in the cluster of their control planes."""

    client: Client
    kubeconfig: str

    async def prepare(self, number: int) -> None:
        """Create everything that an Infrastructure needs."""
        name = namespace(number)
        await self.client.request("POST", NAMESPACES.path(), _namespace(name))
        await self.client.request("POST", CLUSTERS.path(), cluster(name))
        await self.client.request("POST", SECRETS.path(name), _secret(name, self.kubeconfig))

    async def infrastructure(self, number: int) -> None:
        """Create the Infrastructure of a Shoot."""
        await self.client.request("POST", INFRASTRUCTURES.path(namespace(number)), _infrastructure(number))

    async def again(self, number: int) -> None:
        """Request a reconcile without changes."""
        patch = reconcile_request()
        await self.client.request("PATCH", INFRASTRUCTURES.path(namespace(number), named(number)), patch)

    async def controlplane(self, number: int) -> None:
        """Create the ControlPlane of a Shoot."""
        await self.client.request("POST", CONTROL_PLANES.path(namespace(number)), _controlplane(number))

    async def controlplane_again(self, number: int) -> None:
        """Request a reconcile of a ControlPlane without changes."""
        patch = reconcile_request()
        await self.client.request("PATCH", CONTROL_PLANES.path(namespace(number), named(number)), patch)

    async def rotation(self, number: int) -> None:
        """Begin to rotate the authorities of a Shoot, and request a reconcile of its ControlPlane."""
        rotation = {"lastInitiationTime": "2026-09-02T00:00:00Z", "phase": "Preparing"}
        credentials = {"rotation": {"certificateAuthorities": rotation}}
        patch = {"spec": {"shoot": {"status": {"credentials": credentials}}}}
        await self.client.request("PATCH", CLUSTERS.path(name=namespace(number)), patch)
        await self.controlplane_again(number)

    async def bastion(self, number: int) -> None:
        """Create a Bastion of a Shoot that has an Infrastructure."""
        await self.client.request("POST", BASTIONS.path(namespace(number)), _bastion(number))

    async def objects(self) -> int:
        """The number of owned objects of all Infrastructures."""
        found = 0
        for resource in (NAMESPACES, IP_POOLS, NETWORK_POLICIES):
            listing = await self.client.request("GET", resource.path())
            names = [
                item["metadata"].get("namespace") or item["metadata"]["name"] for item in listing["items"]
            ]
            found += sum(name.startswith(("infra-shoot--", "shoot-machine-pods-")) for name in names)
        return found


def namespace(number: int) -> str:
    return f"shoot--bench--{number:04}"


def named(number: int) -> str:
    """The name of the Infrastructure and the Bastion, unique to the Shoot."""
    return f"local-{number:04}"


def _namespace(name: str) -> dict[str, Any]:
    labels = {"gardener.cloud/role": "shoot"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def cluster(name: str) -> dict[str, Any]:
    networking = {
        "type": "calico",
        "ipFamilies": ["IPv4"],
        "nodes": "10.0.0.0/16",
        "pods": "10.3.0.0/16",
        "services": "10.4.0.0/16",
    }
    shoot = {
        "apiVersion": _CORE,
        "kind": "Shoot",
        "metadata": {"name": name.rpartition("--")[2], "namespace": "garden-bench"},
        "spec": {"credentialsBindingName": "local", "networking": networking},
        "status": {"technicalID": name},
    }
    return {
        "apiVersion": _EXTENSIONS,
        "kind": "Cluster",
        "metadata": {"name": name},
        "spec": {"cloudProfile": CLOUD_PROFILE, "seed": {}, "shoot": shoot},
    }


def _secret(namespace: str, kubeconfig: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": namespace},
        "data": {"kubeconfig": base64.b64encode(kubeconfig.encode()).decode()},
    }


def _infrastructure(number: int) -> dict[str, Any]:
    return _extension("Infrastructure", number)


def _controlplane(number: int) -> dict[str, Any]:
    return _extension("ControlPlane", number)


def _extension(kind: str, number: int) -> dict[str, Any]:
    return {
        "apiVersion": _EXTENSIONS,
        "kind": kind,
        "metadata": {"name": named(number), "annotations": {OPERATION: "reconcile"}},
        "spec": {
            "type": "local",
            "region": "local",
            "secretRef": {"name": SECRET, "namespace": namespace(number)},
        },
    }


def _bastion(number: int) -> dict[str, Any]:
    return {
        "apiVersion": _EXTENSIONS,
        "kind": "Bastion",
        "metadata": {"name": named(number), "annotations": {OPERATION: "reconcile"}},
        "spec": {
            "type": "local",
            "userData": base64.b64encode(b"#!/bin/sh\n").decode(),
            "ingress": [{"ipBlock": {"cidr": "0.0.0.0/0"}}],
        },
    }


_IMAGE = "windowbox.local/bench:1"
CLOUD_PROFILE = {
    "apiVersion": _CORE,
    "kind": "CloudProfile",
    "metadata": {"name": "local"},
    "spec": {
        "type": "local",
        "machineTypes": [{"name": "local", "cpu": "1", "gpu": "0", "memory": "8Gi", "architecture": "amd64"}],
        "machineImages": [
            {
                "name": "local",
                "versions": [{"version": "1.0.0", "architectures": ["amd64"], "classification": "supported"}],
            }
        ],
        "providerConfig": {
            "apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1",
            "kind": "CloudProfileConfig",
            "machineImages": [{"name": "local", "versions": [{"version": "1.0.0", "image": _IMAGE}]}],
        },
    },
}
"""Names an image for Bastions, which nobody pulls where nodes are simulated."""
