"""What is left of a Shoot in its sandbox."""

from __future__ import annotations

from sandbox.shoots import etcd, records, waiting
from sandbox.shoots.creation import Sandbox
from sandbox.shoots.records import Shoot

POOLS = "/apis/crd.projectcalico.org/v1/ippools"


def pool(shoot: Shoot) -> str:
    """The name of the address pool of its machines."""
    return f"shoot-machine-pods-{shoot.technical_id}-ipv4"


def of(sandbox: Sandbox, shoot: Shoot) -> list[str]:
    """Namespaces, address pools, processes and data; in words. Empty after a deletion."""
    paths = {
        f"namespace {name}": f"/api/v1/namespaces/{name}" for name in (shoot.technical_id, shoot.machines)
    }
    paths[f"IP pool {pool(shoot)}"] = f"{POOLS}/{pool(shoot)}"
    found = [what for what, path in paths.items() if waiting.read(sandbox.api, path)]
    found += [name for name in sandbox.state.children if name.startswith(shoot.child(""))]
    if keys := etcd.count(sandbox.state.ports["etcd"], shoot.etcd_prefix):
        found.append(f"{keys} objects of {shoot.name} in etcd")
    if records.folder(sandbox.folder, shoot.name).exists():
        found.append(f"data of {shoot.name}")
    return found
