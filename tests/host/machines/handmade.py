"""Machines made by hand, with user data of the test's own: a Pod as the driver makes it, or a Machine."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterable
from typing import Any

from sandbox.shoots import waiting
from tests.host.machines.conftest import ShootWorld
from windowbox.errors import Refused
from workers.machines.machine import machinemanifests as manifests
from workers.machines.machine.machinespecs import MachinePlan, ProviderSpec, SecretName

_API = "machine.sapcloud.io/v1alpha1"


def make(world: ShootWorld, machine: str, data: str, image: str = "") -> None:
    """A Pod as the driver makes it. `image` is that of all machines unless given."""
    if not image:
        image = world.sandbox.api.read(world.pods())["items"][0]["spec"]["containers"][0]["image"]
    home = world.shoot.technical_id
    nowhere = SecretName(home, "none")
    plan = MachinePlan(home, machine, world.shoot.machines, ProviderSpec(image), nowhere, nowhere, "")
    secret, pod = (
        manifests.user_data_secret(plan, "", data.encode()),
        manifests.pod(plan, docker_socket=False),
    )
    del secret["metadata"]["ownerReferences"]
    del pod["metadata"]["labels"]["machine-provider"]  # with it, a Pod without a Machine is removed
    for manifest in (secret, pod):
        world.sandbox.api.apply_object(manifest)


def remove(world: ShootWorld, machine: str) -> None:
    world.sandbox.api.request("DELETE", f"{world.pods()}/machine-{machine}").close()


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
