"""A load balancer in front of real Pods: it serves while a node loses its power and its ports change."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import click

from commands.demo import stage, traffic
from commands.demo.stage import Scene, Stage, first_line, manifests, say, span
from sandbox.nodes.node import power_off, power_on, real_nodes
from windowbox.models.objects import Object
from windowbox.models.refs import DEPLOYMENTS, SERVICES
from workers.loadbalancer.service import servicestatus

EXAMPLE = "loadbalancer.yaml"
WITHOUT_NODES = (
    "load balancers in front of real Pods, a port added under traffic, a node that loses its power"
)

_ECHO = ("demo", "echo")
"""The Deployment, and the Service."""
_RATE = 100
_GREETINGS, _PODS, _GRACE = 12, 3, 10.0
"""Open this many connections, and more until all Pods have answered; but for no longer than the grace."""
_LASTING = 10
_DARK = 2.0
"""Seconds that a node is without power."""
_NEW_PORT = 81
_NEW = {"name": "more", "protocol": "TCP", "port": _NEW_PORT, "targetPort": 8081}


def show(scene: Scene, before_cut: Callable[[], None] = lambda: None) -> None:
    """All steps, one line each. Idempotent: each demo repairs and removes what it breaks and adds.

    `before_cut` returns when a node may lose its power.
    """
    nodes = real_nodes(scene.state)
    click.echo(f"\nApplying examples/{EXAMPLE}, on {' and '.join(nodes)}")

    async def steps(demo: Stage) -> None:
        address = await balance(demo, manifests(EXAMPLE))
        began = time.perf_counter()
        answers: Counter[tuple[str, str]] = Counter()
        # A kube-proxy may add the last Pods a moment after the first.
        while answers.total() < _GREETINGS or (len(answers) < _PODS and time.perf_counter() - began < _GRACE):
            answers[traffic.parsed(await first_line(address, 80))] += 1
        say(f"{answers.total()} connections to {address}:80 in", time.perf_counter() - began)
        for (pod, node), count in sorted(answers.items()):
            click.echo(f"      {count} answered by {pod} on {node}")
        await _change_ports(demo, address)
        if len(nodes) > 1:
            await asyncio.to_thread(before_cut)
            await _cut_power(demo, nodes[-1], address)
        else:
            click.echo("  left out, as there is only one node: a node that loses its power")

    scene.play(steps)


async def balance(demo: Stage, manifests: list[dict[str, Any]]) -> str:
    """Apply a Deployment and its Service, which is last, and wait for an answer. Returns the address."""
    began = time.perf_counter()
    *others, service = manifests
    for manifest in others:
        await demo.apply(manifest)
    ready = await demo.until(DEPLOYMENTS, *_ECHO, _is_ready)
    assert ready
    say(f"Deployment demo/echo: {ready.status['readyReplicas']} Pods ready", time.perf_counter() - began)
    began = time.perf_counter()
    applied = await demo.apply(service, lambda one: bool(servicestatus.addresses(one)))
    address = servicestatus.addresses(applied.found)[0]
    known = (
        "had its address already, read in" if servicestatus.addresses(applied.made) else "in its status after"
    )
    say(f"Service demo/echo: {address} {known}", applied.took)
    await first_line(address, 80)
    say("      answered the first client after", time.perf_counter() - began)
    return address


async def _cut_power(demo: Stage, node: str, address: str) -> None:
    """Simulate a power loss of a node under traffic."""
    state = demo.scene.state
    async with traffic.steady(address, 80, rate=_RATE) as tally:
        await tally.until_greeted_by(node, 0)
        click.echo(f"  Cutting the power of {node} for {_DARK:g} s, while clients connect")
        await asyncio.to_thread(power_off, state, node)
        cut = time.perf_counter()
        try:
            before = len(tally.greetings)
            await asyncio.sleep(_DARK)
            elsewhere = len(tally.greetings) - before
        finally:
            await asyncio.to_thread(power_on, state, node)
        began, before = time.perf_counter(), len(tally.greetings)
        say(f"{node} without power: {elsewhere} connections served by the others in", _DARK)
        await tally.until_greeted_by(node, before)
        say(f"{node} is back: its Pods answer again after", time.perf_counter() - began)
    slowest = max(one.seconds for one in tally.greetings)
    # A connection that was open then may be with a Pod of the node: nothing can move it elsewhere.
    lost = sum(one.began < cut < one.ended for one in tally.failed)
    open_then = f"{lost} that were open at the cut broke; " if lost else ""
    say_tally(tally, f"meanwhile; {open_then}the slowest took {span(slowest)}", lost)


async def _change_ports(demo: Stage, address: str) -> None:
    """Add and remove a port under traffic."""

    async def set_ports(more: list[dict[str, Any]]) -> None:
        """Set the additional ports, and wait until the status shows them all."""
        found = await demo.cluster.get(SERVICES, *_ECHO)
        ports = [one for one in found.spec["ports"] if one["port"] != _NEW_PORT] + more
        patched = await demo.cluster.merge(SERVICES, *_ECHO, {"spec": {"ports": ports}})
        wanted = {one["port"] for one in ports}

        def shown(service: Object | None) -> bool:
            ingress = (service.status.get("loadBalancer", {}).get("ingress") or []) if service else []
            return {port["port"] for entry in ingress for port in entry.get("ports", ())} == wanted

        await demo.until(SERVICES, *_ECHO, shown, patched)

    # The Pods of the node that lost its power may still be starting.
    async with traffic.steady(address, 80, rate=_RATE, lasting=_LASTING) as tally:
        await tally.until_more(_RATE)
        began = time.perf_counter()
        await set_ports([_NEW])
        await stage.first_line(address, _NEW_PORT)
        say(f"port {_NEW_PORT} added under traffic: served after", time.perf_counter() - began)
        await tally.until_more(_RATE)
        began = time.perf_counter()
        await set_ports([])
        say(f"port {_NEW_PORT} removed again after", time.perf_counter() - began)
        await tally.until_more(_RATE)
    say_tally(tally, f"meanwhile; of {_LASTING} connections that stayed open, {tally.broken} broke")


def say_tally(tally: traffic.Tally, more: str, lost: int = 0) -> None:
    """A line about the connections of a client; `lost` are failures that nothing can prevent."""
    failed = len(tally.failed) - lost
    text = f"{len(tally.greetings)} connections made, {failed} failed {more}"
    click.echo("      " + click.style(text, fg="yellow" if failed or tally.broken else "green"))


def _is_ready(deployment: Object | None) -> bool:
    status = deployment.status if deployment else {}
    return (
        deployment is not None
        and status.get("observedGeneration") == deployment.generation
        and status.get("readyReplicas", 0) == status.get("updatedReplicas") == deployment.spec["replicas"]
    )
