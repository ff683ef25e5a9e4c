"""Machines made by hand, as the driver makes them, with user data of the test's own."""

from __future__ import annotations

import base64
from typing import Any

from tests.host.machines.conftest import ShootWorld
from windowbox.sandbox.shoots import creation


def make(world: ShootWorld, machine: str, data: str) -> None:
    namespace = world.shoot.machines
    image = _image(world)
    for manifest in (_secret(namespace, f"machine-{machine}", data), _pod(namespace, machine, image)):
        creation.apply(world.sandbox.api, manifest)


def remove(world: ShootWorld, machine: str) -> None:
    path = f"/api/v1/namespaces/{world.shoot.machines}"
    world.sandbox.api.request("DELETE", f"{path}/pods/machine-{machine}").close()


def _image(world: ShootWorld) -> str:
    """That of another machine."""
    pods = world.sandbox.api.read(f"/api/v1/namespaces/{world.shoot.machines}/pods")["items"]
    return str(pods[0]["spec"]["containers"][0]["image"])


def _secret(namespace: str, pod: str, data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"{pod}-userdata", "namespace": namespace},
        "data": {"userdata": base64.b64encode(data.encode()).decode()},
    }


def _pod(namespace: str, machine: str, image: str) -> dict[str, Any]:
    mounts = {"userdata": "/etc/machine", "containerd": "/var/lib/containerd", "run": "/run"}
    node = {
        "name": "node",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"machine-{machine}",
            "namespace": namespace,
            # Not machine-provider: a Pod with that label and without a Machine is removed.
            "labels": {"app": "machine", "machine": machine},
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
