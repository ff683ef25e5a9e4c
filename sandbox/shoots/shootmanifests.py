"""Manifests of a Shoot, as a platform like Gardener writes them; windowbox makes its machines from these."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import yaml

from sandbox.programs import binaries
from sandbox.programs.binaries import PROGRAMS
from sandbox.servers.ranges import Ranges
from sandbox.shoots import contents
from sandbox.shoots.records import Shoot
from windowbox.models.extensions import OPERATION

POOL = "small"
WORKER = "workers"
INFRASTRUCTURE = "infrastructure"
SYSTEM_CONFIG = "machine-init"
CONTROL_PLANE = "control-plane"
CREDENTIALS = "cloudprovider"
"""The Secret with the kubeconfig of the provider cluster or, in clouds, with the credentials."""
GENERIC_KUBECONFIG = "generic-token-kubeconfig"
"""The Secret with the address of the API server, and no credentials."""

EXTENSIONS = "extensions.gardener.cloud/v1alpha1"
_MACHINE_TYPE = "local"
_AGENT_UNIT = """\
[Unit]
Requires=containerd.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/lib/machine/node-agent-simulator
Restart=on-failure
RestartSec=1
[Install]
WantedBy=multi-user.target
"""


# Words in capitals are replaced, and the versions of images are appended.
_CLUSTER = """
apiVersion: extensions.gardener.cloud/v1alpha1
kind: Cluster
metadata: {name: NAMESPACE}
spec:
  cloudProfile:
    apiVersion: core.gardener.cloud/v1beta1
    kind: CloudProfile
    metadata: {name: local}
    spec:
      type: local
      machineTypes: [{name: local, cpu: "1", gpu: "0", memory: 8Gi, architecture: ARCHITECTURE}]
      machineImages: [{name: local, versions: []}]
      providerConfig:
        apiVersion: local.provider.extensions.gardener.cloud/v1alpha1
        kind: CloudProfileConfig
        machineImages: [{name: local, versions: []}]
  seed: {apiVersion: core.gardener.cloud/v1beta1, kind: Seed, metadata: {name: sandbox}}
  shoot:
    apiVersion: core.gardener.cloud/v1beta1
    kind: Shoot
    metadata: {name: "NAME", namespace: garden-local}
    spec:
      credentialsBindingName: local
      kubernetes: {version: VERSION}
      networking: {type: none, ipFamilies: [IPv4], nodes: NODES, pods: PODS, services: SERVICES}
    status:
      technicalID: NAMESPACE
      lastOperation: {type: Reconcile, state: Processing, progress: 1}
"""


def namespace(shoot: Shoot) -> dict[str, Any]:
    """The namespace of the control plane."""
    labels = {
        "gardener.cloud/role": "shoot",
        "shoot.gardener.cloud/provider": shoot.cloud or "local",
        "networking.shoot.gardener.cloud/provider": "none",
    }
    metadata = {"name": shoot.technical_id, "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def cluster(shoot: Shoot, nodes: str, own: Ranges, images: Mapping[str, str]) -> dict[str, Any]:
    """The Cluster: `nodes` is the range of the machines, `images` the machine image by its versions."""
    text = _CLUSTER
    for word, value in {
        "NAMESPACE": shoot.technical_id, "NAME": shoot.name, "VERSION": PROGRAMS["kubelet"].version,
        "ARCHITECTURE": binaries.architecture(), "NODES": nodes, "PODS": str(own.pods),
        "SERVICES": str(own.services_v4),
    }.items():  # fmt: skip
        text = re.sub(rf"\b{word}\b", value, text)
    found: dict[str, Any] = yaml.safe_load(text)
    profile = found["spec"]["cloudProfile"]["spec"]
    for version, image in sorted(images.items()):
        offered = {"version": version, "classification": "supported", "cri": [{"name": "containerd"}]}
        profile["machineImages"][0]["versions"].append(
            {**offered, "architectures": [binaries.architecture()]}
        )
        known = {"version": version, "image": image}
        profile["providerConfig"]["machineImages"][0]["versions"].append(known)
    return found


def infrastructure(shoot: Shoot) -> dict[str, Any]:
    return _local(shoot, "Infrastructure", INFRASTRUCTURE, region="local", secretRef=credentials_ref(shoot))


def controlplane(shoot: Shoot) -> dict[str, Any]:
    """The ControlPlane: with it, windowbox serves the Shoot's cluster."""
    return _local(shoot, "ControlPlane", CONTROL_PLANE, region="local", secretRef=credentials_ref(shoot))


def system_config(shoot: Shoot, server: str, authority: str) -> dict[str, Any]:
    """The script of a new machine: the node agent, with its means to join. Machines fill placeholders."""
    texts = {
        "config": f"SERVER={server}\nSECRET={contents.SECRET}\n",
        "ca.crt": authority,
        "bootstrap-token": "<<BOOTSTRAP_TOKEN>>",
        "machine-name": "<<MACHINE_NAME>>",
    }
    unit = {"name": "node-agent-simulator.service", "enable": True, "command": "restart"}
    # Machines would not find placeholders in encoded files.
    files = [
        {
            "path": f"{contents.FOLDER}/{name}",
            "permissions": 0o600,
            "content": {"inline": {"encoding": "", "data": text}, "transmitUnencoded": True},
        }
        for name, text in texts.items()
    ]
    return _local(
        shoot, "OperatingSystemConfig", SYSTEM_CONFIG,
        purpose="provision",
        criConfig={"name": "containerd"},
        units=[{**unit, "content": _AGENT_UNIT}],
        files=files,
    )  # fmt: skip


def worker(shoot: Shoot, count: int, image_version: str, user_data: str) -> dict[str, Any]:
    """`user_data` is the Secret that came of the OperatingSystemConfig."""
    # As in Gardener, the name changes with everything that requires new machines.
    inputs = f"{PROGRAMS['kubelet'].version} {_MACHINE_TYPE} {image_version}"
    digest = hashlib.sha256(inputs.encode()).hexdigest()[:16]
    pool = {
        "name": POOL,
        "minimum": count,
        "maximum": count,
        "maxSurge": 1,
        "maxUnavailable": 0,
        "machineType": _MACHINE_TYPE,
        "machineImage": {"name": "local", "version": image_version},
        "architecture": binaries.architecture(),
        "nodeAgentSecretName": f"gardener-node-agent-{POOL}-{digest}",
        "userDataSecretRef": {"name": user_data, "key": "cloud_config"},
        "kubernetesVersion": PROGRAMS["kubelet"].version,
        "nodeTemplate": {"capacity": {"cpu": "1", "gpu": "0", "memory": "8Gi"}},
        "labels": {"node.kubernetes.io/role": "node", "worker.gardener.cloud/pool": POOL},
        "zones": ["local"],
    }
    return _local(shoot, "Worker", WORKER, region="local", secretRef=credentials_ref(shoot), pools=[pool])


def extension(shoot: Shoot, kind: str, name: str, **spec: Any) -> dict[str, Any]:
    """An extension object, annotated so that it is reconciled now, as after each change by a platform."""
    metadata = {"name": name, "namespace": shoot.technical_id, "annotations": {OPERATION: "reconcile"}}
    return {"apiVersion": EXTENSIONS, "kind": kind, "metadata": metadata, "spec": spec}


def _local(shoot: Shoot, kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return extension(shoot, kind, name, type="local", **spec)


def credentials_ref(shoot: Shoot) -> dict[str, str]:
    return {"name": CREDENTIALS, "namespace": shoot.technical_id}
