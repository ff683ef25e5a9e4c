"""Deletes a Shoot of the sandbox, as a platform does, and then its control plane, without a trace."""

from __future__ import annotations

import contextlib
import time

from sandbox.nodes import network, routes
from sandbox.nodes.addresses import Network
from sandbox.servers import ranges
from sandbox.shoots import creation, etcd, hibernation, objects, records, traces, waiting
from sandbox.shoots.creation import EXTENSIONS, Sandbox, Say
from sandbox.shoots.records import Shoot
from windowbox.errors import Refused

_PATIENCE = 180.0


def delete(sandbox: Sandbox, name: str, say: Say) -> None:
    """Delete the Shoot `name`. Idempotent, also after a deletion or a creation that was interrupted."""
    began = time.monotonic()
    shoot = records.read(sandbox.folder, name)
    home = f"{EXTENSIONS}/namespaces/{shoot.technical_id}"
    _delete(sandbox, f"{home}/workers", objects.WORKER)
    say("its machines are gone", time.monotonic() - began)
    if records.is_hibernated(sandbox.folder, name):
        # The ControlPlane waits until its objects in the Shoot are gone.
        hibernation.wake_control_plane(sandbox, shoot)
        say("its control plane runs again", time.monotonic() - began)
    _delete(sandbox, f"{home}/controlplanes", objects.CONTROL_PLANE)
    _delete(sandbox, f"{home}/operatingsystemconfigs", objects.SYSTEM_CONFIG)
    _delete(sandbox, f"{home}/infrastructures", objects.INFRASTRUCTURE)
    _delete(sandbox, f"{EXTENSIONS}/clusters", shoot.technical_id)
    _begin(sandbox, "/api/v1/namespaces", shoot.technical_id)
    remove_control_plane(sandbox, shoot)
    say("its control plane has ended", time.monotonic() - began)
    for namespace in (shoot.technical_id, shoot.machines):
        _wait_gone(sandbox, "/api/v1/namespaces", namespace)
    _wait_gone(sandbox, traces.POOLS, traces.pool(shoot))  # it belongs to the namespace of the machines
    say("its namespaces are gone", time.monotonic() - began)
    records.remove(sandbox.folder, name)


def remove_control_plane(sandbox: Sandbox, shoot: Shoot) -> None:
    """End its processes; remove its data, in etcd too, and the routes."""
    records.forget(sandbox.folder, shoot.name)
    sandbox.notify()
    creation.wait_ended(sandbox, shoot)
    etcd.wipe(sandbox.state.ports["etcd"], shoot.etcd_prefix)
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
