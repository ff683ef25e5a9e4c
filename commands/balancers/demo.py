"""The demo's second part: a Service gets its address, and keeps serving while things break and change."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import yaml

from commands.balancers import traffic
from sandbox import shipped
from sandbox.nodes import power
from sandbox.state import State
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Unreachable
from windowbox.models.objects import Object
from windowbox.models.refs import NAMESPACES, SERVICES, Resource
from workers.loadbalancer.service import statuses

EXAMPLE = shipped.EXAMPLES / "loadbalancer.yaml"

_DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
_KINDS = {one.kind: one for one in (NAMESPACES, _DEPLOYMENTS, _BUDGETS, SERVICES)}
_OWNER = "windowbox-demo"
_PATIENCE, _ATTEMPT = 60.0, 5.0
_RATE = 100
_GREETINGS, _PODS, _GRACE = 12, 3, 10.0
"""So many connections, or more until all Pods have answered, but not for longer than so many seconds."""
_LASTING = 10
_DARK = 3.0
"""Seconds that a node is without power."""
_NEW_PORT = 81
_NEW = {"name": "more", "protocol": "TCP", "port": _NEW_PORT, "targetPort": 8081}


@dataclass(frozen=True)
class Demo:
    """The cluster, the sandbox, and the demo's objects."""

    cluster: Kube
    state: State
    namespace: str = "demo"
    name: str = "echo"

    async def apply(self, manifest: dict[str, Any]) -> Object:
        resource, metadata = _KINDS[manifest["kind"]], manifest["metadata"]
        namespace = metadata.get("namespace", "")
        return await self.cluster.apply(resource, namespace, metadata["name"], manifest, owner=_OWNER)

    async def until(self, resource: Resource, holds: Callable[[Object], bool]) -> Object:
        """Our object of this kind, once it meets this condition."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                async for found in self._seen(resource):
                    if holds(found):
                        return found
        raise Unreachable(
            f"{resource.kind} {self.namespace}/{self.name} is not what it should be after {_PATIENCE:g} s: "
            "`windowbox doctor` and `windowbox lb list` tell more"
        )

    async def _seen(self, resource: Resource) -> AsyncIterator[Object]:
        found = await self.cluster.get(resource, self.namespace, self.name)
        yield found
        async for events in self.cluster.watch(resource, found.resource_version, only=self.name):
            for event in events:
                seen = Object(event.object)
                if (seen.namespace, seen.name) == (self.namespace, self.name):
                    yield seen


async def show(kubeconfig: Path, state: State) -> None:
    """All steps, one line each. Idempotent: each run repairs and removes what it breaks and adds."""
    manifests = list(yaml.safe_load_all(EXAMPLE.read_text()))
    nodes = power.nodes(state)
    async with kube.from_file(kubeconfig) as cluster:
        demo = Demo(cluster, state)
        click.echo(f"\nApplying {EXAMPLE.relative_to(EXAMPLE.parents[1])}, on {' and '.join(nodes)}")
        await deploy(demo, manifests)
        address = await balance(demo, manifests[-1])
        await _greet(address)
        if len(nodes) > 1:
            await _break(demo, nodes[-1], address)
        else:
            click.echo("  left out, as there is only one node: a node that loses its power")
        await _change(demo, address)


def left_out(reason: str) -> None:
    """Print what is not shown, and why."""
    click.echo(
        "\nLeft out: load balancers in front of real Pods, a node that loses its power, a port added under "
        f"traffic. {reason}"
    )


async def deploy(demo: Demo, manifests: list[dict[str, Any]]) -> None:
    began = time.perf_counter()
    for manifest in manifests[:-1]:
        await demo.apply(manifest)
    found = await demo.until(_DEPLOYMENTS, _is_ready)
    _say(f"Deployment demo/echo: {found.status['readyReplicas']} Pods ready", time.perf_counter() - began)


async def balance(demo: Demo, manifest: dict[str, Any]) -> str:
    began = time.perf_counter()
    made = await demo.apply(manifest)
    new = not statuses.addresses(made)
    found = await demo.until(SERVICES, lambda service: bool(statuses.addresses(service)))
    address = statuses.addresses(found)[0]
    what = "in its status after" if new else "had its address already, looked at in"
    _say(f"Service demo/echo: {address} {what}", time.perf_counter() - began)
    await _answer(address, 80)
    _say("      answered the first client after", time.perf_counter() - began)
    return address


async def _answer(address: str, port: int) -> traffic.Greeting:
    """Retry: nodes learn of a port, and that they have Pods of the Service, a moment after its status."""
    limit = time.monotonic() + _PATIENCE
    while True:
        try:
            return await traffic.greeted(address, port, patience=_ATTEMPT)
        except OSError as error:
            if time.monotonic() > limit:
                raise Unreachable(f"{address} does not answer: {error}; see `windowbox lb list`") from error
        await asyncio.sleep(0.02)


async def _greet(address: str) -> None:
    began = time.perf_counter()
    answers: Counter[tuple[str, str]] = Counter()
    # A kube-proxy may add the last Pods a moment after the first.
    while answers.total() < _GREETINGS or (len(answers) < _PODS and time.perf_counter() - began < _GRACE):
        one = await _answer(address, 80)
        answers[one.pod, one.node] += 1
    _say(f"{answers.total()} connections to {address}:80 in", time.perf_counter() - began)
    for (pod, node), count in sorted(answers.items()):
        click.echo(f"      {count} answered by {pod} on {node}")


async def _break(demo: Demo, node: str, address: str) -> None:
    """Simulate a power loss of a node under traffic."""
    async with traffic.steady(address, 80, rate=_RATE) as tally:
        await tally.until_greeted_by(node, 0)
        click.echo(f"  Cutting the power of {node} for {_DARK:g} s, while clients connect")
        await asyncio.to_thread(power.off, demo.state, node)
        try:
            before = len(tally.greetings)
            await asyncio.sleep(_DARK)
            elsewhere = len(tally.greetings) - before
        finally:
            await asyncio.to_thread(power.on, demo.state, node)
        began, before = time.perf_counter(), len(tally.greetings)
        _say(f"{node} without power: {elsewhere} connections served by the others in", _DARK)
        await tally.until_greeted_by(node, before)
        _say(f"{node} is back: its Pods answer again after", time.perf_counter() - began)
    slowest = max(one.seconds for one in tally.greetings)
    count(tally, f"meanwhile; the slowest took {_span(slowest)}")


async def _change(demo: Demo, address: str) -> None:
    """Add and remove a port under traffic."""
    await demo.until(_DEPLOYMENTS, _is_ready)
    async with traffic.steady(address, 80, rate=_RATE, lasting=_LASTING) as tally:
        await tally.until_more(_RATE)
        began = time.perf_counter()
        await _ports(demo, [_NEW])
        await _answer(address, _NEW_PORT)
        _say(f"port {_NEW_PORT} added under traffic: served after", time.perf_counter() - began)
        await tally.until_more(_RATE)
        began = time.perf_counter()
        await _ports(demo, [])
        _say(f"port {_NEW_PORT} removed again after", time.perf_counter() - began)
        await tally.until_more(_RATE)
    count(tally, f"meanwhile; of {_LASTING} connections that stayed open, {tally.broken} broke")


async def _ports(demo: Demo, more: list[dict[str, Any]]) -> None:
    """Set the additional ports, and wait until the status shows them all."""
    found = await demo.cluster.get(SERVICES, demo.namespace, demo.name)
    ports = [one for one in found.spec["ports"] if one["port"] != _NEW_PORT] + more
    await demo.cluster.merge(SERVICES, demo.namespace, demo.name, {"spec": {"ports": ports}})
    wanted = {one["port"] for one in ports}
    await demo.until(SERVICES, lambda service: _shown(service) == wanted)


def _shown(service: Object) -> set[int]:
    ingress = service.status.get("loadBalancer", {}).get("ingress") or []
    return {port["port"] for entry in ingress for port in entry.get("ports", ())}


def _is_ready(deployment: Object) -> bool:
    status = deployment.status
    return status.get("observedGeneration") == deployment.generation and status.get(
        "readyReplicas", 0
    ) == deployment.spec["replicas"] == status.get("updatedReplicas")


def count(tally: traffic.Tally, more: str) -> None:
    text = f"{len(tally.greetings)} connections made, {len(tally.failed)} failed {more}"
    click.echo("      " + click.style(text, fg="yellow" if tally.failed or tally.broken else "green"))


def _say(what: str, seconds: float) -> None:
    click.echo(f"  {what} " + click.style(_span(seconds), fg="green"))


def _span(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
