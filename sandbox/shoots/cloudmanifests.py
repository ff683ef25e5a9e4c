"""Manifests of a Shoot of a cloud, from the cloud's example: as gardenlet writes them for its extension."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import yaml

from sandbox import shipped
from sandbox.programs.binaries import PROGRAMS
from sandbox.servers import manifests
from sandbox.shoots import shootmanifests
from sandbox.shoots.records import Shoot

_SSH_KEY = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFdpbmRvd2JveCBvcGVucyBub3RoaW5nIHdpdGggaXQu windowbox"


def example(cloud: str) -> dict[str, Any]:
    """The objects of a cloud's example, by kind."""
    text = (shipped.EXAMPLES / "clouds" / f"{cloud}.yaml").read_text()
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


def credentials(shoot: Shoot) -> dict[str, Any]:
    """The Secret with the credentials of the cloud."""
    found = example(shoot.cloud)["Secret"]
    metadata = shootmanifests.credentials_ref(shoot)
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": found["data"]}


def cluster(shoot: Shoot, pods: str, services: str) -> dict[str, Any]:
    """The Cluster, with these ranges of Pods and Services."""
    given = example(shoot.cloud)
    of_shoot, profile = given["Shoot"], given["CloudProfile"]
    of_shoot["metadata"]["name"] = shoot.name
    of_shoot["spec"]["kubernetes"]["version"] = PROGRAMS["kubelet"].version
    of_shoot["spec"]["networking"] |= {
        "type": "none",
        "pods": pods,
        "services": services,
    }
    of_shoot["status"] = {
        "technicalID": shoot.technical_id,
        "lastOperation": {"type": "Reconcile", "state": "Processing", "progress": 1},
    }
    seed = {"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Seed", "metadata": {"name": "sandbox"}}
    return {
        "apiVersion": shootmanifests.EXTENSIONS,
        "kind": "Cluster",
        "metadata": {"name": shoot.technical_id},
        "spec": {"cloudProfile": profile, "seed": seed, "shoot": of_shoot},
    }


def infrastructure(shoot: Shoot) -> dict[str, Any]:
    provider = example(shoot.cloud)["Shoot"]["spec"]["provider"]
    spec = {"sshPublicKey": base64.b64encode(_SSH_KEY).decode()}
    if config := provider.get("infrastructureConfig"):
        spec["providerConfig"] = config
    return _extension(shoot, "Infrastructure", shootmanifests.INFRASTRUCTURE, **spec)


def controlplane(shoot: Shoot, network: Any) -> dict[str, Any]:
    """`network` is the status that the Infrastructure reports."""
    spec = {"infrastructureProviderStatus": network}
    if config := example(shoot.cloud)["Shoot"]["spec"]["provider"].get("controlPlaneConfig"):
        spec["providerConfig"] = config
    return _extension(shoot, "ControlPlane", shootmanifests.CONTROL_PLANE, **spec)


def worker(shoot: Shoot, count: int, user_data: str, network: Any) -> dict[str, Any]:
    """`user_data` is the Secret that came of the OperatingSystemConfig."""
    given = example(shoot.cloud)
    types = {one["name"]: one for one in given["CloudProfile"]["spec"]["machineTypes"]}
    [asked] = given["Shoot"]["spec"]["provider"]["workers"]
    machine, kubelet = asked["machine"], PROGRAMS["kubelet"].version
    inputs = f"{kubelet} {machine}"
    digest = hashlib.sha256(inputs.encode()).hexdigest()[:16]
    has = types[machine["type"]]
    kept = ("name", "maxSurge", "maxUnavailable", "volume", "dataVolumes", "zones", "providerConfig")
    pool = {name: asked[name] for name in kept if name in asked} | {
        "minimum": count,
        "maximum": count,
        "machineType": machine["type"],
        "machineImage": machine["image"],
        "architecture": machine.get("architecture", "amd64"),
        "nodeAgentSecretName": f"gardener-node-agent-{asked['name']}-{digest}",
        "userDataSecretRef": {"name": user_data, "key": "cloud_config"},
        "kubernetesVersion": kubelet,
        "nodeTemplate": {"capacity": {name: has[name] for name in ("cpu", "gpu", "memory")}},
        "labels": {"node.kubernetes.io/role": "node", "worker.gardener.cloud/pool": asked["name"]},
    }
    spec = {
        "sshPublicKey": base64.b64encode(_SSH_KEY).decode(),
        "infrastructureProviderStatus": network,
        "pools": [pool],
    }
    return _extension(shoot, "Worker", shootmanifests.WORKER, **spec)


def provider_secret(kubeconfig: str) -> dict[str, Any]:
    return manifests.secret(manifests.SYSTEM_NAMESPACE, manifests.CLOUDS_SECRET, {"kubeconfig": kubeconfig})


def _extension(shoot: Shoot, kind: str, name: str, **spec: Any) -> dict[str, Any]:
    region = example(shoot.cloud)["Shoot"]["spec"]["region"]
    secret = shootmanifests.credentials_ref(shoot)
    return shootmanifests.extension(
        shoot, kind, name, type=shoot.cloud, region=region, secretRef=secret, **spec
    )
