"""A Shoot with nodes of its own: a volume, a rotation of authorities, and machines replaced under traffic."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import click

from commands.demo import showbalancer, traffic
from commands.demo.stage import Scene, Stage, manifests, say_traces
from commands.shoots import say, step
from sandbox.machines import image
from sandbox.nodes.images import BUSYBOX
from sandbox.progress import Progress
from sandbox.servers import resourcemanager
from sandbox.servers.apiserver import from_kubeconfig
from sandbox.shoots import creation, deletion, records, shootmanifests, waiting
from sandbox.shoots.creation import EXTENSIONS, Sandbox
from sandbox.shoots.records import Shoot
from windowbox.errors import Unreachable
from windowbox.models.extensions import spelled

NAME = "demo"
PROGRAMS = (*image.PROGRAMS, resourcemanager.PROGRAM)
WITHOUT_NODES = "a shoot with machines that are real nodes"
_MACHINES = 2
_RATE = 20
_SERVING_ON = 2
"""Seconds that a Pod serves after its termination has begun: gone when a drain looks again after four."""
_BUDGET: dict[str, Any] = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "echo", "namespace": "demo"},
    "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "echo"}}},
}
"""Without it, a drain evicts all Pods of a machine at once, perhaps before any other is ready."""
_AUTHORITY = "ca-provider-local-controlplane"
_PATIENCE = 120.0


class Making:
    """A Shoot that is made while other parts of the demo are shown; what it says waits for its own part."""

    def __init__(self, sandbox: Sandbox, machines: int = _MACHINES) -> None:
        self.sandbox, self.machines = sandbox, machines
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._has_image, self._may_boot, self._cancelled = (threading.Event() for _ in range(3))
        self._thread = threading.Thread(target=self._make, name="shoot")
        self._shoot: Shoot | None = None
        self._error: BaseException | None = None

    def begin(self) -> None:
        """Begin with its control plane, and the image of its machines."""
        if not self._thread.ident:
            self._thread.start()

    def boot(self) -> None:
        """Go on with its machines: from now on, no node loses its power."""
        self._may_boot.set()

    def wait_for_image(self) -> None:
        """Wait until all nodes have the image, if that has begun: a node without power could not take it."""
        if self._thread.ident:
            self._has_image.wait()

    def cancel(self) -> None:
        """Make no further step, and do not wait for the present one."""
        self._cancelled.set()
        self._may_boot.set()

    def made(self) -> Shoot:
        """Print what has happened so far, then what happens, until all machines are nodes."""
        self.begin()
        self.boot()
        while (line := self._lines.get()) is not None:
            click.echo(line)
        if self._error:
            raise self._error
        assert self._shoot
        return self._shoot

    def _make(self) -> None:
        try:
            if NAME in records.all_names(self.sandbox.folder):
                # An earlier demo was interrupted.
                deletion.delete(self.sandbox, NAME, lambda what, seconds: None)
            progress = Progress(self._lines.put, live=False)
            self._shoot = creation.prepare(self.sandbox, NAME, progress, self._steps())
            self._has_image.set()
            rotate(self.sandbox, self._shoot, self._steps())
            self._may_boot.wait()
            if not self._cancelled.is_set():
                creation.add_machines(self.sandbox, self._shoot, self.machines, self._steps())
                write_volume(self.sandbox, self._shoot, self._steps())
        except BaseException as error:  # whatever it is: `made` raises it where the Shoot is shown
            self._error = error
        finally:
            self._has_image.set()
            self._lines.put(None)

    def _steps(self) -> Callable[[str], None]:
        began = time.monotonic()

        def done(what: str) -> None:
            if self._cancelled.is_set():
                raise SystemExit
            self._lines.put(step(what, time.monotonic() - began))

        return done


@contextlib.contextmanager
def making(sandbox: Sandbox, machines: int = _MACHINES) -> Iterator[Making]:
    """The Shoot of the demo, which is made at most until the block ends."""
    shoot = Making(sandbox, machines)
    try:
        yield shoot
    finally:
        shoot.cancel()


def show(scene: Scene, making: Making) -> None:
    """All steps, one line each. Idempotent: deletes the Shoot at the end, and one left by an earlier demo."""
    sandbox, machines = making.sandbox, making.machines
    click.echo(f"\nA shoot {NAME!r} with {machines} machines, which are Pods of this sandbox and real nodes")
    click.echo("  (it was begun while the former parts were shown)")
    shoot = making.made()

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


def write_volume(sandbox: Sandbox, shoot: Shoot, done: Callable[[str], None], size: str = "1Mi") -> None:
    """Have a Pod write to a PersistentVolume; `done` is called then."""
    container = {
        "name": "writer",
        "image": BUSYBOX,
        "command": ["sh", "-c", f"date > /{NAME}/file"],
        "volumeMounts": [{"name": NAME, "mountPath": f"/{NAME}"}],
    }
    volume = {"name": NAME, "persistentVolumeClaim": {"claimName": NAME}}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
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
    done("a PersistentVolumeClaim is bound, and a Pod has written to it")


def rotate(sandbox: Sandbox, shoot: Shoot, done: Callable[[str], None]) -> None:
    """Rotate the certificate authorities of its control plane; `done` is called after each phase."""
    initiated = spelled(datetime.now(UTC))
    _rotate(sandbox, shoot, initiated, "Preparing", 2)
    done("rotation of authorities prepared: the new one is trusted beside the old one")
    _rotate(sandbox, shoot, initiated, "Completing", 1)
    done("rotation of authorities completed: the old one is gone")


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
