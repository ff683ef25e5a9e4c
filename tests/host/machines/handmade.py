"""Machines made by hand, with user data of the test's own: a Pod as the driver makes it, or a Machine."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterable
from typing import Any

from sandbox.shoots import waiting
from tests.host.machines.conftest import ShootWorld
from windowbox.errors import Refused

_API = "machine.sapcloud.io/v1alpha1"


def make(world: ShootWorld, machine: str, data: str) -> None:
    namespace = world.shoot.machines
    image = _image(world)
    for manifest in (_secret(namespace, f"machine-{machine}", data), _pod(namespace, machine, image)):
        world.sandbox.api.apply_object(manifest)


def remove(world: ShootWorld, machine: str) -> None:
    path = f"/api/v1/namespaces/{world.shoot.machines}"
    world.sandbox.api.request("DELETE", f"{path}/pods/machine-{machine}").close()


def of_own_class(world: ShootWorld, name: str, change: Callable[[bytes], bytes], **spec: Any) -> None:
    """Have windowbox make a Machine whose class has the user data of the Worker's, changed."""
    namespace, api = world.shoot.technical_id, world.sandbox.api
    classes = api.read(namespaced(world, "machineclasses"))["items"]
    [first] = [one for one in classes if one["metadata"]["name"].startswith(namespace)]
    data = api.read(namespaced(world, "secrets", first["secretRef"]["name"]))["data"]
    changed = base64.b64encode(change(base64.b64decode(data["userData"]))).decode()
    metadata = {"name": name, "namespace": namespace}
    content = {**data, "userData": changed}
    api.apply_object({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": content})
    kept = {key: first[key] for key in ("provider", "providerSpec", "nodeTemplate", "credentialsSecretRef")}
    made = {"apiVersion": _API, "kind": "MachineClass", "metadata": metadata, "secretRef": metadata, **kept}
    # Its plural is not its kind with an s.
    api.apply(namespaced(world, "machineclasses", name), made)
    wanted = {"class": {"kind": "MachineClass", "name": name}, **spec}
    api.apply_object({"apiVersion": _API, "kind": "Machine", "metadata": metadata, "spec": wanted})


def forget(world: ShootWorld, names: Iterable[str]) -> None:
    """Delete Machines with classes of their own, and wait until they are gone."""
    api, made = world.sandbox.api, list(names)
    for plural in ("machines", "machineclasses", "secrets"):
        for name in made:
            with contextlib.suppress(Refused):
                api.request("DELETE", namespaced(world, plural, name)).close()
        for name in made:
            waiting.until_gone(api, namespaced(world, plural), name, "it is still there", patience=120)


def namespaced(world: ShootWorld, plural: str, name: str = "") -> str:
    base = "/api/v1" if plural == "secrets" else f"/apis/{_API}"
    return f"{base}/namespaces/{world.shoot.technical_id}/{plural}" + (f"/{name}" if name else "")


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
