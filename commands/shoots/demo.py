"""The demo's last part: a Shoot with nodes of its own, whose machines are replaced while clients go on."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import click
import yaml

from commands.balancers import demo as balancers
from commands.balancers import traffic
from commands.shoots import controlplane_demo
from commands.shoots.command import say
from sandbox.machines import image
from sandbox.progress import Progress
from sandbox.shoots import creation, deletion, objects, records, traces
from sandbox.shoots.creation import Sandbox
from sandbox.shoots.records import Shoot
from windowbox.clients.kubernetes import kube

NAME = "demo"
_MACHINES = 2
_RATE = 20
_SERVING_ON = 5
"""Seconds that a Pod serves after its end has begun."""
_BUDGET: dict[str, Any] = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "echo", "namespace": "demo"},
    "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "echo"}}},
}
"""Without it a drain evicts all Pods of a machine at once, perhaps before any other is ready."""


def show(sandbox: Sandbox, machines: int = _MACHINES) -> None:
    """All steps, one line each. Idempotent: the Shoot is deleted at the end, and one that is left before."""
    if NAME in records.all_names(sandbox.folder):
        deletion.delete(sandbox, NAME, lambda what, seconds: None)
    click.echo(f"\nA shoot {NAME!r} with {machines} machines, which are Pods of this sandbox and real nodes")
    shoot = creation.create(sandbox, NAME, machines, Progress(click.echo), say)
    controlplane_demo.show(sandbox, shoot, say)
    asyncio.run(_use(sandbox, shoot, machines))
    click.echo(f"  Deleting the shoot {NAME!r}")
    deletion.delete(sandbox, NAME, say)
    left = traces.of(sandbox, shoot)
    said = click.style(f"left behind: {', '.join(left)}", fg="red") if left else "nothing of it is left"
    click.echo(f"      {said}")


def left_out(reason: str) -> None:
    """Print what is not shown, and why."""
    click.echo(f"\nLeft out: a shoot with machines that are real nodes. {reason}")


async def _use(sandbox: Sandbox, shoot: Shoot, machines: int) -> None:
    """A Deployment and a load balancer in the Shoot, and clients while its machines are replaced."""
    manifests = _graceful(list(yaml.safe_load_all(balancers.EXAMPLE.read_text())))
    async with kube.from_file(records.kubeconfig(sandbox.folder, shoot.name)) as cluster:
        part = balancers.Demo(cluster, sandbox.state)
        await balancers.deploy(part, manifests)
        address = await balancers.balance(part, manifests[-1])
        before = await asyncio.to_thread(creation.wait_nodes, sandbox, shoot, machines)
        click.echo("  Replacing all machines by those of another image, while clients connect")
        began = time.monotonic()
        async with traffic.steady(address, 80, rate=_RATE) as tally:
            await tally.until_more(_RATE)
            await asyncio.to_thread(_roll, sandbox, shoot, machines)
            after = await asyncio.to_thread(creation.wait_nodes, sandbox, shoot, machines)
            await tally.until_more(_RATE)
        replaced = len(set(after) - set(before))
        say(f"{replaced} machines replaced by those of another image, one by one", time.monotonic() - began)
        balancers.count(tally, "meanwhile")


def _graceful(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The manifests for Pods that survive drains: a budget, and time to serve on while they end."""
    [deployment] = [one for one in manifests if one["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = 2 * _SERVING_ON
    pod["containers"][0]["lifecycle"] = {"preStop": {"sleep": {"seconds": _SERVING_ON}}}
    return [*manifests[:-1], _BUDGET, manifests[-1]]


def _roll(sandbox: Sandbox, shoot: Shoot, machines: int) -> None:
    creation.write_worker(sandbox, shoot, machines, image.VERSIONS[-1])
    creation.wait_succeeded(sandbox.api, shoot, "workers", objects.WORKER)
