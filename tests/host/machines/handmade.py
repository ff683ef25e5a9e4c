"""Machines made by hand, as the driver makes them: what their image does is tested without the driver."""

from __future__ import annotations

import base64
from typing import Any

from tests.host.machines.conftest import Prepared
from windowbox.sandbox.nodes import joining
from windowbox.sandbox.shoots import creation, objects


def user_data(prepared: Prepared, machine: str) -> str:
    """What the OperatingSystemConfig of the Shoot became, with its placeholders filled."""
    api, namespace = prepared.sandbox.api, prepared.shoot.technical_id
    configs = f"{creation.EXTENSIONS}/namespaces/{namespace}/operatingsystemconfigs"
    reference = api.read(f"{configs}/{objects.SYSTEM_CONFIG}")["status"]["cloudConfig"]["secretRef"]
    secret = api.read(f"/api/v1/namespaces/{namespace}/secrets/{reference['name']}")
    token = joining.token()
    joining.admit(prepared.api, token)
    text = base64.b64decode(secret["data"]["cloud_config"]).decode()
    return text.replace("<<BOOTSTRAP_TOKEN>>", token.text()).replace("<<MACHINE_NAME>>", machine)


def make(prepared: Prepared, machine: str, data: str) -> None:
    namespace = prepared.shoot.machines
    pod = f"machine-{machine}"
    for manifest in (_secret(namespace, pod, data), _pod(namespace, machine, _image(prepared))):
        creation.apply(prepared.sandbox.api, manifest)


def remove(prepared: Prepared, machine: str) -> None:
    path = f"/api/v1/namespaces/{prepared.shoot.machines}"
    prepared.sandbox.api.request("DELETE", f"{path}/pods/machine-{machine}").close()


def _image(prepared: Prepared) -> str:
    return next(iter(prepared.images.by_version.values()))


def _secret(namespace: str, pod: str, data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"{pod}-userdata", "namespace": namespace},
        "data": {"userdata": base64.b64encode(data.encode()).decode()},
    }


def _pod(namespace: str, machine: str, image: str) -> dict[str, Any]:
    probe = "/usr/bin/kubectl --kubeconfig /var/lib/kubelet/kubeconfig-real get no $NODE_NAME"
    mounts = {"userdata": "/etc/machine", "containerd": "/var/lib/containerd", "run": "/run"}
    node = {
        "name": "node",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"privileged": True},
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "readinessProbe": {"exec": {"command": ["sh", "-c", probe]}, "periodSeconds": 1},
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"machine-{machine}",
            "namespace": namespace,
            "labels": {"app": "machine", "machine-provider": "local", "machine": machine},
        },
        "spec": {
            "containers": [node],
            "dnsPolicy": "Default",
            "volumes": [
                {
                    "name": "userdata",
                    "secret": {"secretName": f"machine-{machine}-userdata", "defaultMode": 0o777},
                },
                {"name": "containerd", "emptyDir": {}},
                {"name": "run", "emptyDir": {"medium": "Memory"}},
            ],
        },
    }
