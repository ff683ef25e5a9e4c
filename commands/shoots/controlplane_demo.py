"""The demo's part about a control plane: a volume that a Pod writes, and a rotation of authorities."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from sandbox.nodes.images import BUSYBOX
from sandbox.servers.apiserver import ApiServer, from_kubeconfig
from sandbox.shoots import creation, objects, records, waiting
from sandbox.shoots.creation import EXTENSIONS, Sandbox
from sandbox.shoots.records import Shoot
from windowbox.errors import Unreachable
from windowbox.models.extensions import spelled

Say = Callable[[str, float], None]

_NAME = "demo"
_AUTHORITY = "ca-provider-local-controlplane"
_LOOK_AGAIN = 0.1
_PATIENCE = 120.0


def show(sandbox: Sandbox, shoot: Shoot, say: Say) -> None:
    """Both, with the time that each takes."""
    click.echo("  Writing to a PersistentVolume from a Pod, then rotating the certificate authorities")
    began = time.monotonic()
    _write(from_kubeconfig(records.kubeconfig(sandbox.folder, shoot.name)))
    say("a PersistentVolumeClaim is bound, and a Pod has written to it", time.monotonic() - began)
    began = time.monotonic()
    initiated = spelled(datetime.now(UTC))
    _rotate(sandbox.api, shoot, initiated, "Preparing")
    _wait_authorities(sandbox.api, shoot, 2)
    say("rotation prepared: the new authority is trusted beside the old one", time.monotonic() - began)
    _rotate(sandbox.api, shoot, initiated, "Completing")
    _wait_authorities(sandbox.api, shoot, 1)
    say("rotation completed: the old authority is gone", time.monotonic() - began)


def _write(api: ApiServer) -> None:
    """Have a Pod write a file in a volume."""
    metadata = {"name": _NAME, "namespace": "default"}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    volume = {"name": _NAME, "persistentVolumeClaim": {"claimName": _NAME}}
    container = {
        "name": "writer",
        "image": BUSYBOX,
        "command": ["sh", "-c", f"date > /{_NAME}/file"],
        "volumeMounts": [{"name": _NAME, "mountPath": f"/{_NAME}"}],
    }
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    base = "/api/v1/namespaces/default"
    for kind, plural, spec in (
        ("PersistentVolumeClaim", "persistentvolumeclaims", claim),
        ("Pod", "pods", pod),
    ):
        made = {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}
        api.apply(f"{base}/{plural}/{_NAME}", made)
    what = f"Pod default/{_NAME} has not written"
    waiting.until(api, f"{base}/pods", _NAME, _has_ended, what, patience=_PATIENCE)


def _has_ended(pod: dict[str, Any]) -> bool:
    return bool((pod.get("status") or {}).get("phase") == "Succeeded")


def _rotate(api: ApiServer, shoot: Shoot, initiated: str, phase: str) -> None:
    """The Shoot comes into a phase of a rotation, and the platform asks for a run."""
    found = api.read(f"{EXTENSIONS}/clusters/{shoot.technical_id}")
    found["metadata"] = {"name": shoot.technical_id}
    rotation = {"certificateAuthorities": {"lastInitiationTime": initiated, "phase": phase}}
    found["spec"]["shoot"]["status"]["credentials"] = {"rotation": rotation}
    creation.apply(api, found)
    creation.apply(api, objects.controlplane(shoot))


def _wait_authorities(api: ApiServer, shoot: Shoot, count: int) -> None:
    path = f"/api/v1/namespaces/{shoot.technical_id}/secrets?labelSelector=name%3D{_AUTHORITY}"
    limit = time.monotonic() + _PATIENCE
    while len(api.read(path)["items"]) != count:
        if time.monotonic() > limit:
            raise Unreachable(
                f"there are not {count} authorities after {_PATIENCE:.0f} s: "
                f"`windowbox trace controlplane {shoot.technical_id}/{objects.CONTROL_PLANE}`"
            )
        time.sleep(_LOOK_AGAIN)
