"""The demo of kinds that make objects: create them, repair drift, and delete them completely."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import yaml

from sandbox import shipped
from sandbox.servers import kubeconfigs
from sandbox.state import State
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Missing, Unreachable
from windowbox.models.objects import Object
from windowbox.models.refs import (
    BASTIONS,
    CLUSTERS,
    INFRASTRUCTURES,
    IP_POOLS,
    NAMESPACES,
    NETWORK_POLICIES,
    PODS,
    SECRETS,
    SERVICES,
    Resource,
)

SHOOT = "shoot--demo--show"
"""A Shoot of the demo's own, so that one made by hand from the examples is left alone."""

_HOME = f"infra-{SHOOT}"
_NAME = "one"
_KINDS = {r.kind: r for r in (NAMESPACES, CLUSTERS, SECRETS, INFRASTRUCTURES, BASTIONS)}
_OWNER = "windowbox-demo"
_PATIENCE = 60.0
_DENY = "provider-local-deny-all"


@dataclass(frozen=True)
class Demo:
    """The cluster, and what can be done there."""

    cluster: Kube

    async def apply(self, manifest: dict[str, Any]) -> Object:
        """Apply the manifest; first wait for an object of an earlier run that is being deleted."""
        resource, metadata = _KINDS[manifest["kind"]], manifest["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        with contextlib.suppress(Missing):
            if (await self.cluster.get(resource, namespace, name)).deleting:
                await self.until(resource, namespace, name, lambda found: found is None)
        return await self.cluster.apply(resource, namespace, name, manifest, owner=_OWNER)

    async def until(
        self, resource: Resource, namespace: str, name: str, holds: Callable[[Object | None], bool]
    ) -> Object | None:
        """The object (None if it does not exist), once it meets this condition."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                async for found in self._versions(resource, namespace, name):
                    if holds(found):
                        return found
        raise Unreachable(
            f"{resource.kind} {namespace}/{name} is not what it should be after {_PATIENCE:g} s: "
            f"`windowbox doctor` and `windowbox trace {resource.kind.lower()} …` tell more"
        )

    async def _versions(self, resource: Resource, namespace: str, name: str) -> AsyncIterator[Object | None]:
        page = await self.cluster.page(resource, limit=5000)
        known = (Object(raw) for raw in page.items)
        yield next((one for one in known if (one.namespace, one.name) == (namespace, name)), None)
        async for events in self.cluster.watch(resource, page.resource_version, only=name):
            for event in events:
                seen = Object(event.object)
                if event.type != "BOOKMARK" and seen.namespace == namespace:
                    yield None if event.type == "DELETED" else seen


async def show(kubeconfig: Path, folder: Path, state: State) -> None:
    """All steps, one line each. Idempotent: all objects are deleted at the end."""
    lacking = _lacking(state)
    click.echo(f"\nA Shoot {SHOOT}, as in examples/shoot.yaml, whose machines live in this sandbox")
    async with kube.from_file(kubeconfig) as cluster:
        demo = Demo(cluster)
        await _infrastructure(demo, kubeconfigs.provider(folder))
        await _bring_back(demo, NETWORK_POLICIES, _DENY)
        if not lacking:
            await _bastion(demo)
            await _bring_back(demo, SERVICES, f"bastion-{_NAME}")
            await _gone(demo, BASTIONS, "its Pod, Service, Secret and policy with it")
        else:
            click.echo(f"  left out, as {lacking}: a Bastion")
        await _gone(demo, INFRASTRUCTURES, "Kubernetes removes what was made")
        await _removed(demo)
        await _look_for_traces(demo)


def _lacking(state: State) -> str:
    """What this machine lacks for a Bastion; empty if nothing."""
    from sandbox.nodes import sshimage

    if state.options.nodes and not sshimage.found():
        return "this machine has no OpenSSH server (sshd) that could run in its Pod"
    if state.options.nodes or state.options.simulated_nodes:
        return ""
    return "there are no nodes that could run its Pod"


async def _infrastructure(demo: Demo, kubeconfig: str) -> None:
    [infrastructure] = manifests("infrastructure.yaml")
    for manifest in (*manifests("shoot.yaml"), yaml.safe_load(kubeconfigs.secret(SHOOT, kubeconfig))):
        await demo.apply(manifest)
    began = time.perf_counter()
    await demo.apply(infrastructure)
    await demo.until(INFRASTRUCTURES, SHOOT, _NAME, succeeded)
    _say(f"Infrastructure {SHOOT}/{_NAME}: Succeeded after", time.perf_counter() - began)
    click.echo("      made: " + _summed(await _made(demo)))


async def _bastion(demo: Demo) -> None:
    [bastion] = manifests("bastion.yaml")
    began = time.perf_counter()
    await demo.apply(bastion)
    found = await demo.until(BASTIONS, SHOOT, _NAME, succeeded)
    took = time.perf_counter() - began
    assert found
    pod = await demo.cluster.get(PODS, _HOME, f"bastion-{_NAME}")
    ingress = found.status.get("ingress") or {}
    _say(f"Bastion {SHOOT}/{_NAME}: Succeeded, at {ingress.get('ip')}, after", took)
    click.echo(
        f"      made: Pod {pod.name} on {pod.spec.get('nodeName')}, its load balancer, Secret and policy"
    )
    greeting = await _greeting(str(ingress.get("ip")), 22)
    _say(f"    its SSH server answers {greeting} after", time.perf_counter() - began)


async def _greeting(address: str, port: int) -> str:
    """The server's first line; retries until all proxies have the route."""
    error: Exception | None = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            while True:
                try:
                    reader, writer = await asyncio.open_connection(address, port)
                    with contextlib.closing(writer):
                        if line := await reader.readline():
                            return line.decode(errors="replace").strip()
                except OSError as found:
                    error = found
                await asyncio.sleep(0.05)
    raise Unreachable(f"{address} does not answer: {error}; see `windowbox lb list`")


async def _bring_back(demo: Demo, resource: Resource, name: str) -> None:
    """Delete an owned object, and wait for its replacement."""
    former = (await demo.cluster.get(resource, _HOME, name)).uid
    began = time.perf_counter()
    await demo.cluster.delete(resource, _HOME, name)
    await demo.until(resource, _HOME, name, lambda found: found is not None and found.uid != former)
    _say(f"{resource.kind} {name} deleted by hand: back after", time.perf_counter() - began)


async def _gone(demo: Demo, resource: Resource, remark: str) -> None:
    click.echo(f"  Deleting {resource.kind} {SHOOT}/{_NAME}")
    began = time.perf_counter()
    await demo.cluster.delete(resource, SHOOT, _NAME)
    await demo.until(resource, SHOOT, _NAME, lambda found: found is None)
    _say("    gone after", time.perf_counter() - began, f" ({remark})")


async def _removed(demo: Demo) -> None:
    """Wait for the namespace controller and the garbage collector."""
    click.echo(f"      waiting until Kubernetes has removed {_HOME}")
    began = time.perf_counter()
    await demo.until(NAMESPACES, "", _HOME, lambda found: found is None)
    for name in (await _made(demo)).get(IP_POOLS.kind, ()):
        await demo.until(IP_POOLS, "", name, lambda found: found is None)
    _say("    gone after", time.perf_counter() - began, " (its controller begins after 5 s)")


async def _look_for_traces(demo: Demo) -> None:
    left = await _made(demo)
    verdict = click.style(f"left behind: {_summed(left)}", fg="red") if left else "nothing of it is left"
    click.echo(f"      {verdict}")


async def _made(demo: Demo) -> dict[str, list[str]]:
    """The objects of our Shoot in the cluster of its machines, by kind."""
    found: dict[str, list[str]] = {}
    for resource in (NAMESPACES, IP_POOLS, NETWORK_POLICIES, PODS, SERVICES):
        page = await demo.cluster.page(resource, limit=5000, metadata_only=True)
        for one in map(Object, page.items):
            if _HOME in (one.name, one.namespace) or SHOOT in one.name.removeprefix(SHOOT):
                found.setdefault(resource.kind, []).append(one.name)
    return found


def _summed(made: dict[str, list[str]]) -> str:
    return ", ".join(f"{kind} {' and '.join(names)}" for kind, names in made.items())


def manifests(example: str, shoot: str = SHOOT) -> list[dict[str, Any]]:
    """The manifests of an example, for another Shoot."""
    text = (shipped.EXAMPLES / example).read_text().replace("shoot--demo--one", shoot)
    return list(yaml.safe_load_all(text))


def succeeded(found: Object | None) -> bool:
    """Whether the object says that what it asks for is there."""
    return (
        found is not None
        and found.last_operation.get("state") == "Succeeded"
        and found.status.get("observedGeneration") == found.generation
    )


def _say(what: str, seconds: float, remark: str = "") -> None:
    span = f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
    click.echo(f"  {what} {click.style(span, fg='green')}{remark}")
