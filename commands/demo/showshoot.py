"""A Shoot with nodes of its own: a volume, a rotation of authorities, and machines replaced under traffic."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import click

from commands.demo import showbalancer, traffic
from commands.demo.stage import Scene, Stage, manifests, say_traces
from commands.shoots import say
from sandbox.machines import image
from sandbox.nodes.images import BUSYBOX
from sandbox.progress import Progress
from sandbox.servers.apiserver import from_kubeconfig
from sandbox.shoots import creation, deletion, records, shootmanifests, waiting
from sandbox.shoots.creation import EXTENSIONS, Sandbox
from sandbox.shoots.records import Shoot
from windowbox.errors import Unreachable
from windowbox.models.extensions import spelled

NAME = "demo"
WITHOUT_NODES = "a shoot with machines that are real nodes"
_MACHINES = 2
_RATE = 20
_SERVING_ON = 5
"""Seconds that a Pod serves after its termination has begun."""
_BUDGET: dict[str, Any] = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "echo", "namespace": "demo"},
    "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "echo"}}},
}
"""Without it, a drain evicts all Pods of a machine at once, perhaps before any other is ready."""
_AUTHORITY = "ca-provider-local-controlplane"
_PATIENCE = 120.0


def show(scene: Scene, sandbox: Sandbox | None = None, machines: int = _MACHINES) -> None:
    """All steps, one line each. Idempotent: deletes the Shoot at the end, and one left by an earlier demo."""
    sandbox = sandbox or creation.detached(scene.folder, scene.state)
    if NAME in records.all_names(sandbox.folder):
        deletion.delete(sandbox, NAME, lambda what, seconds: None)
    click.echo(f"\nA shoot {NAME!r} with {machines} machines, which are Pods of this sandbox and real nodes")
    shoot = creation.create(sandbox, NAME, machines, Progress(click.echo), say)
    show_control_plane(sandbox, shoot)

    async def use(demo: Stage) -> None:
        """A Deployment and a load balancer in the Shoot, and clients while its machines are replaced."""
        namespace, deployment, service = manifests(showbalancer.EXAMPLE)
        # Pods of drained machines serve on until load balancers and proxies have dropped them.
        pod = deployment["spec"]["template"]["spec"]
        pod["terminationGracePeriodSeconds"] = 2 * _SERVING_ON
        pod["containers"][0]["lifecycle"] = {"preStop": {"sleep": {"seconds": _SERVING_ON}}}
        address = await showbalancer.balance(demo, [namespace, deployment, _BUDGET, service])
        before = await asyncio.to_thread(creation.wait_nodes, sandbox, shoot, machines)
        click.echo("  Replacing all machines by those of another image, while clients connect")
        began = time.monotonic()
        async with traffic.steady(address, 80, rate=_RATE) as tally:
            await tally.until_more(_RATE)
            await asyncio.to_thread(creation.write_worker, sandbox, shoot, machines, image.VERSIONS[-1])
            await asyncio.to_thread(
                creation.wait_succeeded, sandbox.api, shoot, "workers", shootmanifests.WORKER
            )
            after = await asyncio.to_thread(creation.wait_nodes, sandbox, shoot, machines)
            await tally.until_more(_RATE)
        replaced = len(set(after) - set(before))
        say(f"{replaced} machines replaced by those of another image, one by one", time.monotonic() - began)
        showbalancer.say_tally(tally, "meanwhile")

    scene.play(use, records.kubeconfig(sandbox.folder, shoot.name))
    click.echo(f"  Deleting the shoot {NAME!r}")
    deletion.delete(sandbox, NAME, say)
    say_traces(", ".join(deletion.remains(sandbox, shoot)))


def show_control_plane(sandbox: Sandbox, shoot: Shoot) -> None:
    """A volume that a Pod writes, and a rotation of the certificate authorities."""
    click.echo("  Writing to a PersistentVolume from a Pod, then rotating the certificate authorities")
    began = time.monotonic()
    container = {
        "name": "writer",
        "image": BUSYBOX,
        "command": ["sh", "-c", f"date > /{NAME}/file"],
        "volumeMounts": [{"name": NAME, "mountPath": f"/{NAME}"}],
    }
    volume = {"name": NAME, "persistentVolumeClaim": {"claimName": NAME}}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    api, base = from_kubeconfig(records.kubeconfig(sandbox.folder, shoot.name)), "/api/v1/namespaces/default"
    for kind, plural, spec in (
        ("PersistentVolumeClaim", "persistentvolumeclaims", claim),
        ("Pod", "pods", pod),
    ):
        metadata = {"name": NAME, "namespace": "default"}
        made = {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}
        api.apply(f"{base}/{plural}/{NAME}", made)

    def ended(pod: dict[str, Any]) -> bool:
        return bool((pod.get("status") or {}).get("phase") == "Succeeded")

    waiting.until(api, f"{base}/pods", NAME, ended, f"Pod default/{NAME} has not written", patience=_PATIENCE)
    say("a PersistentVolumeClaim is bound, and a Pod has written to it", time.monotonic() - began)
    began, initiated = time.monotonic(), spelled(datetime.now(UTC))
    _rotate(sandbox, shoot, initiated, "Preparing", 2)
    say("rotation prepared: the new authority is trusted beside the old one", time.monotonic() - began)
    _rotate(sandbox, shoot, initiated, "Completing", 1)
    say("rotation completed: the old authority is gone", time.monotonic() - began)


def _rotate(sandbox: Sandbox, shoot: Shoot, initiated: str, phase: str, authorities: int) -> None:
    """Bring the Shoot into a phase of a rotation, as gardenlet does, and wait for so many authorities."""
    found = sandbox.api.read(f"{EXTENSIONS}/clusters/{shoot.technical_id}")
    found["metadata"] = {"name": shoot.technical_id}
    rotation = {"certificateAuthorities": {"lastInitiationTime": initiated, "phase": phase}}
    found["spec"]["shoot"]["status"]["credentials"] = {"rotation": rotation}
    sandbox.api.apply_object(found)
    # Applied again, it requests a reconcile.
    sandbox.api.apply_object(shootmanifests.controlplane(shoot))
    path = f"/api/v1/namespaces/{shoot.technical_id}/secrets?labelSelector=name%3D{_AUTHORITY}"
    limit = time.monotonic() + _PATIENCE
    while len(sandbox.api.read(path)["items"]) != authorities:
        if time.monotonic() > limit:
            raise Unreachable(
                f"there are not {authorities} authorities after {_PATIENCE:.0f} s: "
                f"`windowbox trace controlplane {shoot.technical_id}/{shootmanifests.CONTROL_PLANE}`"
            )
        time.sleep(0.1)  # this client has no watch of a selector
