"""Hibernates a Shoot of the sandbox, and wakes it up, as a platform does: machines end first and start last.

Each step may be interrupted and repeated, by either command.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sandbox.shoots import creation, records, shootmanifests, waiting
from sandbox.shoots.creation import EXTENSIONS, Sandbox, Say
from sandbox.shoots.records import Shoot
from windowbox.errors import Missing
from windowbox.models.extensions import OPERATION, spelled

_NAMES = {"controlplanes": shootmanifests.CONTROL_PLANE, "workers": shootmanifests.WORKER}
"""The objects that depend on hibernation, in the order in which to wait for them."""


def hibernate(sandbox: Sandbox, name: str, say: Say) -> None:
    """End the machines of the Shoot `name`, then its control plane. Its data and addresses are kept."""
    began = time.monotonic()
    shoot = records.read(sandbox.folder, name)
    if not records.is_hibernated(sandbox.folder, name):
        _worker(sandbox, shoot)
        sandbox.notify()  # a wake-up may have been interrupted before it did
        creation.wait_started(sandbox, shoot)
        change(sandbox, shoot, {"spec": {"hibernation": {"enabled": True}}})
        reconcile(sandbox, shoot)
        say("its machines and nodes are gone", time.monotonic() - began)
        change(sandbox, shoot, {"status": {"isHibernated": True}})
        records.hibernate(sandbox.folder, name)
    sandbox.notify()
    creation.wait_ended(sandbox, shoot)
    say("its control plane has ended; its data and addresses are kept", time.monotonic() - began)


def wake(sandbox: Sandbox, name: str, say: Say) -> None:
    """Start the control plane of the Shoot `name`, then its machines, and wait until all are Ready nodes."""
    began = time.monotonic()

    def done(what: str) -> None:
        say(what, time.monotonic() - began)

    shoot = records.read(sandbox.folder, name)
    machines = sum(pool["minimum"] for pool in _worker(sandbox, shoot)["spec"]["pools"])
    wake_control_plane(sandbox, shoot)
    done("its control plane runs")
    asked = _ask(sandbox, shoot)
    # Not nodes: a Node may outlive its machine.
    creation.wait_machines(sandbox, shoot, machines, lambda machine: done(f"machine {machine} is Running"))
    _wait(sandbox, shoot, asked)
    done("Worker Succeeded")


def wake_control_plane(sandbox: Sandbox, shoot: Shoot) -> None:
    """Start the processes of the Shoot, and have windowbox serve it again."""
    records.wake(sandbox.folder, shoot.name)
    sandbox.notify()
    creation.wait_started(sandbox, shoot)
    awake = {"spec": {"hibernation": {"enabled": False}}, "status": {"isHibernated": False}}
    change(sandbox, shoot, awake)


def change(sandbox: Sandbox, shoot: Shoot, changes: dict[str, Any]) -> None:
    """Change the Shoot in its Cluster."""
    path = f"{EXTENSIONS}/clusters/{shoot.technical_id}"
    sandbox.api.merge(path, {"spec": {"shoot": changes}})


def reconcile(sandbox: Sandbox, shoot: Shoot) -> None:
    """Request a reconcile of what depends on hibernation, and wait until it has succeeded."""
    _wait(sandbox, shoot, _ask(sandbox, shoot))


def _worker(sandbox: Sandbox, shoot: Shoot) -> dict[str, Any]:
    """The Worker of the Shoot; Missing if its creation was interrupted."""
    if found := waiting.read(sandbox.api, _path(shoot, "workers")):
        return found
    raise Missing(
        f"the shoot {shoot.name!r} has no Worker: its creation was interrupted. "
        f"`windowbox shoot delete {shoot.name}`, then `windowbox shoot create {shoot.name}`"
    )


def _ask(sandbox: Sandbox, shoot: Shoot) -> dict[str, str]:
    """Request a reconcile of what depends on hibernation. Returns when each was last reported before."""
    before = {}
    for plural in _NAMES:
        status = sandbox.api.read(_path(shoot, plural)).get("status") or {}
        before[plural] = str((status.get("lastOperation") or {}).get("lastUpdateTime"))
    if spelled(datetime.now(UTC)) in before.values():
        time.sleep(1)  # reports of the same second look alike
    for plural in _NAMES:
        sandbox.api.merge(_path(shoot, plural), {"metadata": {"annotations": {OPERATION: "reconcile"}}})
    return before


def _wait(sandbox: Sandbox, shoot: Shoot, before: Mapping[str, str]) -> None:
    """Wait until each has succeeded since then."""
    for plural, name in _NAMES.items():

        def done(found: waiting.Object, last: str = before[plural]) -> bool:
            operation = (found.get("status") or {}).get("lastOperation") or {}
            asked = OPERATION in (found["metadata"].get("annotations") or {})
            return not asked and operation.get("lastUpdateTime") != last and waiting.succeeded(found)

        creation.wait_succeeded(sandbox.api, shoot, plural, name, done)


def _path(shoot: Shoot, plural: str) -> str:
    return f"{EXTENSIONS}/namespaces/{shoot.technical_id}/{plural}/{_NAMES[plural]}"
