"""The objects of a Shoot as a platform like Gardener writes them, of which windowbox makes its machines."""

from __future__ import annotations

import base64
import hashlib
import platform
from dataclasses import dataclass
from typing import Any

from sandbox.nodes.images import ARCHITECTURES
from sandbox.programs.binaries import PROGRAMS
from sandbox.shoots import contents
from sandbox.shoots.records import Shoot

POOL = "small"
WORKER = "workers"
INFRASTRUCTURE = "infrastructure"
SYSTEM_CONFIG = "machine-init"
CONTROL_PLANE = "control-plane"
GENERIC_KUBECONFIG = "generic-token-kubeconfig"
"""The Secret with the address of the API server, and no credentials."""

_EXTENSIONS = "extensions.gardener.cloud/v1alpha1"
_CORE = "core.gardener.cloud/v1beta1"
_LOCAL = "local.provider.extensions.gardener.cloud/v1alpha1"
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


@dataclass(frozen=True)
class Ranges:
    """Where addresses of the Shoot's Pods, Services and nodes come from."""

    pods: str
    services: str
    nodes: str


@dataclass(frozen=True)
class Images:
    """The machine image, by the versions that the CloudProfile offers."""

    by_version: dict[str, str]

    @property
    def newest(self) -> str:
        return max(self.by_version)


def namespace(shoot: Shoot) -> dict[str, Any]:
    """Of the control plane."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": shoot.technical_id,
            "labels": {
                "gardener.cloud/role": "shoot",
                "shoot.gardener.cloud/provider": "local",
                "networking.shoot.gardener.cloud/provider": "none",
            },
        },
    }


def secret(shoot: Shoot, name: str, kubeconfig: str) -> dict[str, Any]:
    """A Secret with a kubeconfig."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": shoot.technical_id},
        "data": {"kubeconfig": base64.b64encode(kubeconfig.encode()).decode()},
    }


def cluster(shoot: Shoot, ranges: Ranges, images: Images) -> dict[str, Any]:
    offered = [
        {
            "version": version,
            "classification": "supported",
            "architectures": [_architecture()],
            "cri": [{"name": "containerd"}],
        }
        for version in sorted(images.by_version)
    ]
    known = [{"version": version, "image": image} for version, image in sorted(images.by_version.items())]
    size = {"cpu": "1", "gpu": "0", "memory": "8Gi", "architecture": _architecture()}
    return {
        "apiVersion": _EXTENSIONS,
        "kind": "Cluster",
        "metadata": {"name": shoot.technical_id},
        "spec": {
            "cloudProfile": {
                "apiVersion": _CORE,
                "kind": "CloudProfile",
                "metadata": {"name": "local"},
                "spec": {
                    "type": "local",
                    "machineTypes": [{"name": _MACHINE_TYPE, **size}],
                    "machineImages": [{"name": "local", "versions": offered}],
                    "providerConfig": {
                        "apiVersion": _LOCAL,
                        "kind": "CloudProfileConfig",
                        "machineImages": [{"name": "local", "versions": known}],
                    },
                },
            },
            "seed": {"apiVersion": _CORE, "kind": "Seed", "metadata": {"name": "sandbox"}},
            "shoot": _shoot(shoot, ranges),
        },
    }


def infrastructure(shoot: Shoot) -> dict[str, Any]:
    return _extension(shoot, "Infrastructure", INFRASTRUCTURE, region="local", secretRef=_provider(shoot))


def controlplane(shoot: Shoot) -> dict[str, Any]:
    """It has windowbox serve the Shoot's cluster."""
    return _extension(shoot, "ControlPlane", CONTROL_PLANE, region="local", secretRef=_provider(shoot))


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
    return _extension(
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
        "architecture": _architecture(),
        "nodeAgentSecretName": f"gardener-node-agent-{POOL}-{digest}",
        "userDataSecretRef": {"name": user_data, "key": "cloud_config"},
        "kubernetesVersion": PROGRAMS["kubelet"].version,
        "nodeTemplate": {"capacity": {"cpu": "1", "gpu": "0", "memory": "8Gi"}},
        "labels": {"node.kubernetes.io/role": "node", "worker.gardener.cloud/pool": POOL},
        "zones": ["local"],
    }
    return _extension(
        shoot, "Worker", WORKER, region="local", secretRef=_provider(shoot), pools=[pool]
    )  # fmt: skip


def _extension(shoot: Shoot, kind: str, name: str, **spec: Any) -> dict[str, Any]:
    """Annotated so that it is reconciled now, as after each change that a platform makes."""
    return {
        "apiVersion": _EXTENSIONS,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": shoot.technical_id,
            "annotations": {"gardener.cloud/operation": "reconcile"},
        },
        "spec": {"type": "local", **spec},
    }


def _provider(shoot: Shoot) -> dict[str, str]:
    return {"name": "cloudprovider", "namespace": shoot.technical_id}


def _shoot(shoot: Shoot, ranges: Ranges) -> dict[str, Any]:
    return {
        "apiVersion": _CORE,
        "kind": "Shoot",
        "metadata": {"name": shoot.name, "namespace": "garden-local"},
        "spec": {
            "credentialsBindingName": "local",
            "kubernetes": {"version": PROGRAMS["kubelet"].version},
            "networking": {
                "type": "none",
                "ipFamilies": ["IPv4"],
                "nodes": ranges.nodes,
                "pods": ranges.pods,
                "services": ranges.services,
            },
        },
        "status": {
            "technicalID": shoot.technical_id,
            "lastOperation": {"type": "Reconcile", "state": "Processing", "progress": 1},
        },
    }


def _architecture() -> str:
    return ARCHITECTURES.get(platform.machine(), platform.machine())
