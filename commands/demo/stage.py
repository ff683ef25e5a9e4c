"""Shared by all parts of the demo: apply an example, wait by watching, and print how long it took."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import click
import yaml

from commands.demo import traffic
from sandbox import shipped, stages
from sandbox.state import State
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Missing, Unreachable
from windowbox.models.objects import Object
from windowbox.models.refs import (
    BASTIONS,
    CLUSTERS,
    DEPLOYMENTS,
    DNSRECORDS,
    INFRASTRUCTURES,
    NAMESPACES,
    SECRETS,
    SERVICES,
    Resource,
)

_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
_KINDS = {
    one.kind: one
    for one in (
        NAMESPACES, SECRETS, SERVICES, DEPLOYMENTS, _BUDGETS, DNSRECORDS, CLUSTERS, INFRASTRUCTURES, BASTIONS,
    )
}  # fmt: skip
_OWNER = "windowbox-demo"
PATIENCE = 60.0
_ATTEMPT = 5.0


@dataclass(frozen=True)
class Scene:
    """The sandbox in which the demo runs."""

    folder: Path
    state: State

    def play(self, part: Callable[[Stage], Awaitable[None]], kubeconfig: Path | None = None) -> None:
        """Show a part in the sandbox's cluster, or in another one."""

        async def play() -> None:
            own = Path(stages.variables(self.folder, self.state)["KUBECONFIG"])
            async with kube.from_file(kubeconfig or own) as cluster:
                await part(Stage(cluster, self))

        asyncio.run(play())


class Applied(NamedTuple):
    """An object that was applied, and then met a condition."""

    made: Object
    created: float
    """Seconds until it was stored."""
    found: Object
    """The object as it met the condition."""
    took: float
    """Seconds until then."""


@dataclass(frozen=True)
class Stage:
    """A cluster, in which examples are applied."""

    cluster: Kube
    scene: Scene

    async def apply(self, manifest: dict[str, Any], holds: Callable[[Object], bool] | None = None) -> Applied:
        """Apply the manifest, and wait until the object meets the condition.

        First waits for the end of an object that an earlier demo has deleted.
        """
        resource, metadata = _KINDS[manifest["kind"]], manifest["metadata"]
        place = metadata.get("namespace", ""), metadata["name"]
        with contextlib.suppress(Missing):
            if (await self.cluster.get(resource, *place)).deleting:
                await self.until(resource, *place, lambda found: found is None)
        began = time.perf_counter()
        made = await self.cluster.apply(resource, *place, manifest, owner=_OWNER)
        created = time.perf_counter() - began
        # The status of the answer counts: an object that is unchanged gets no watch event.
        found = await self.until(resource, *place, lambda one: not holds or (one and holds(one)), made)
        return Applied(made, created, found or made, time.perf_counter() - began)

    async def until(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        holds: Callable[[Object | None], object],
        seen: Object | None = None,
    ) -> Object | None:
        """The object (None if it does not exist), once it meets this condition; `seen` saves the listing."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                async for found in self._versions(resource, namespace, name, seen):
                    if holds(found):
                        return found
        hint = "windowbox lb list" if resource == SERVICES else f"windowbox trace {resource.kind.lower()} …"
        raise Unreachable(
            f"{resource.kind} {namespace}/{name} is not what it should be after {PATIENCE:g} s: "
            f"`windowbox doctor` and `{hint}` tell more"
        )

    async def _versions(
        self, resource: Resource, namespace: str, name: str, seen: Object | None
    ) -> AsyncIterator[Object | None]:
        if seen:
            yield seen
            version = seen.resource_version
        else:
            # A listing, since a watch does not say that an object is absent.
            page = await self.cluster.page(resource, limit=5000)
            known = (Object(raw) for raw in page.items)
            yield next((one for one in known if (one.namespace, one.name) == (namespace, name)), None)
            version = page.resource_version
        async for events in self.cluster.watch(resource, version, only=name):
            for event in events:
                found = Object(event.object)
                if event.type != "BOOKMARK" and found.namespace == namespace:
                    yield None if event.type == "DELETED" else found

    async def delete(self, resource: Resource, namespace: str, name: str, remark: str) -> None:
        """Delete an object, and show when it is gone."""
        click.echo(f"  Deleting {resource.kind} {namespace}/{name}")
        began = time.perf_counter()
        await self.cluster.delete(resource, namespace, name)
        await self.until(resource, namespace, name, lambda found: found is None)
        say("    gone after", time.perf_counter() - began, f" ({remark})")

    async def delete_by_hand(self, resource: Resource, namespace: str, name: str) -> None:
        """Delete an owned object, and show when it is recreated."""
        former = (await self.cluster.get(resource, namespace, name)).uid
        began = time.perf_counter()
        await self.cluster.delete(resource, namespace, name)
        await self.until(resource, namespace, name, lambda found: found and found.uid != former)
        say(f"{resource.kind} {name} deleted by hand: back after", time.perf_counter() - began)


def manifests(example: str, shoot: str = "") -> list[dict[str, Any]]:
    """The manifests of a file of examples/; with `shoot`, for another Shoot."""
    text = (shipped.EXAMPLES / example).read_text()
    return list(yaml.safe_load_all(text.replace("shoot--demo--one", shoot) if shoot else text))


def succeeded(found: Object | None) -> bool:
    """Whether the object reports success for its latest generation."""
    return (
        found is not None
        and found.last_operation.get("state") == "Succeeded"
        and found.status.get("observedGeneration") == found.generation
    )


async def first_line(address: str, port: int) -> str:
    """The first line of a server. Retries: nodes learn of ports and Pods a moment after the status."""
    limit = time.monotonic() + PATIENCE
    while True:
        try:
            return await traffic.first_line(address, port, _ATTEMPT)
        except OSError as error:
            if time.monotonic() > limit:
                raise Unreachable(f"{address} does not answer: {error}; see `windowbox lb list`") from error
        await asyncio.sleep(0.02)


def say(what: str, seconds: float, remark: str = "") -> None:
    """A line about a step and its time."""
    click.echo(f"  {what} {click.style(span(seconds), fg='green')}{remark}")


def say_traces(left: str) -> None:
    """The last line about objects that were deleted."""
    click.echo(
        "      " + (click.style(f"left behind: {left}", fg="red") if left else "nothing of it is left")
    )


def span(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
