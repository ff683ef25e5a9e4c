"""Deletes a Shoot of the sandbox, as a platform does, and then its control plane, without a trace."""

from __future__ import annotations

import base64
import contextlib
import json
import time
import urllib.error
import urllib.request
from typing import Any

from sandbox.nodes import network, routes
from sandbox.servers import ranges
from sandbox.shoots import creation, hibernation, records, shootmanifests, waiting
from sandbox.shoots.creation import EXTENSIONS, Sandbox, Say
from sandbox.shoots.records import Shoot
from windowbox.errors import Refused, Unreachable
from windowbox.models.addresses import Network

_WITHOUT_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_ETCD_PATIENCE = 30
POOLS = "/apis/crd.projectcalico.org/v1/ippools"
_PATIENCE = 180.0


def delete(sandbox: Sandbox, name: str, say: Say) -> None:
    """Delete the Shoot `name`. Idempotent, also after a deletion or a creation that was interrupted."""
    began = time.monotonic()
    shoot = records.read(sandbox.folder, name)
    home = f"{EXTENSIONS}/namespaces/{shoot.technical_id}"
    _delete(sandbox, f"{home}/workers", shootmanifests.WORKER)
    say("its machines are gone", time.monotonic() - began)
    if records.is_hibernated(sandbox.folder, name):
        # The ControlPlane waits until its objects in the Shoot are gone.
        hibernation.wake_control_plane(sandbox, shoot)
        say("its control plane runs again", time.monotonic() - began)
    _delete(sandbox, f"{home}/controlplanes", shootmanifests.CONTROL_PLANE)
    _delete(sandbox, f"{home}/operatingsystemconfigs", shootmanifests.SYSTEM_CONFIG)
    _delete(sandbox, f"{home}/infrastructures", shootmanifests.INFRASTRUCTURE)
    _delete(sandbox, f"{EXTENSIONS}/clusters", shoot.technical_id)
    _begin(sandbox, "/api/v1/namespaces", shoot.technical_id)
    remove_control_plane(sandbox, shoot)
    say("its control plane has ended", time.monotonic() - began)
    for namespace in (shoot.technical_id, shoot.machines):
        _wait_gone(sandbox, "/api/v1/namespaces", namespace)
    for pool in _pools(sandbox, shoot):  # they belong to the namespace of the machines
        _wait_gone(sandbox, POOLS, pool)
    say("its namespaces are gone", time.monotonic() - began)
    records.remove(sandbox.folder, name)


def remove_control_plane(sandbox: Sandbox, shoot: Shoot) -> None:
    """End its processes; remove its data, in etcd too, and the routes."""
    # The record is kept under another name until all is removed, so that a deletion can be repeated.
    records.forget(sandbox.folder, shoot.name)
    sandbox.notify()
    creation.wait_ended(sandbox, shoot)
    wipe(sandbox.state.ports["etcd"], shoot.etcd_prefix)
    own = ranges.kept(records.folder(sandbox.folder, shoot.name), [])
    inside: list[Network] = [own.services_v4, own.services_v6, own.pods]
    routes.reopen(sandbox.claim, inside)
    for namespace in network.namespaces(sandbox.claim):
        routes.lead(sandbox.claim, namespace, {}, inside)


def _delete(sandbox: Sandbox, path: str, name: str) -> None:
    """Delete an object, and wait until it is gone."""
    _begin(sandbox, path, name)
    _wait_gone(sandbox, path, name)


def _begin(sandbox: Sandbox, path: str, name: str) -> None:
    if waiting.read(sandbox.api, f"{path}/{name}"):
        with contextlib.suppress(Refused):  # gone meanwhile
            sandbox.api.request("DELETE", f"{path}/{name}").close()


def _wait_gone(sandbox: Sandbox, path: str, name: str) -> None:
    what = f"{path.rpartition('/')[2]} {name} is not gone"
    waiting.until_gone(sandbox.api, path, name, what, patience=_PATIENCE)


def wipe(port: int, prefix: str) -> None:
    """Remove all keys."""
    _ask(port, "deleterange", _keys(prefix))


def count(port: int, prefix: str) -> int:
    return int(_ask(port, "range", {**_keys(prefix), "count_only": True}).get("count", 0))


def _keys(prefix: str) -> dict[str, Any]:
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    return {
        "key": base64.b64encode(prefix.encode()).decode(),
        "range_end": base64.b64encode(end.encode()).decode(),
    }


def _ask(port: int, what: str, body: dict[str, Any]) -> dict[str, Any]:
    """A request to the gateway: https://etcd.io/docs/v3.5/dev-guide/api_grpc_gateway/."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v3/kv/{what}", data=json.dumps(body).encode(), method="POST"
    )
    try:
        with _WITHOUT_PROXY.open(request, timeout=_ETCD_PATIENCE) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except (OSError, urllib.error.URLError, ValueError) as error:
        raise Unreachable(f"etcd, {what}: {error}") from error


def _pools(sandbox: Sandbox, shoot: Shoot) -> list[str]:
    """The names of the address pools of its machines."""
    found = [one["metadata"]["name"] for one in sandbox.api.read(POOLS)["items"]]
    mine = f"shoot-machine-pods-{shoot.technical_id}"
    return [name for name in found if name.startswith((f"{mine}-ipv", f"{mine}."))]


def remains(sandbox: Sandbox, shoot: Shoot) -> list[str]:
    """Namespaces, address pools, processes and data; in words. Empty after a deletion."""
    paths = {
        f"namespace {name}": f"/api/v1/namespaces/{name}" for name in (shoot.technical_id, shoot.machines)
    }
    found = [f"IP pool {name}" for name in _pools(sandbox, shoot)]
    found += [what for what, path in paths.items() if waiting.read(sandbox.api, path)]
    found += [name for name in sandbox.state.children if name.startswith(shoot.child(""))]
    if keys := count(sandbox.state.ports["etcd"], shoot.etcd_prefix):
        found.append(f"{keys} objects of {shoot.name} in etcd")
    if records.folder(sandbox.folder, shoot.name).exists():
        found.append(f"data of {shoot.name}")
    return found
