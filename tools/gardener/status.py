"""What `windowbox gardener status` shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tools.gardener import garden, landscape
from tools.gardener.kubectl import Kubectl
from windowbox.errors import Missing


def lines() -> Iterator[str]:
    """A line for each object of Gardener with an operation, and one for each condition that is not True."""
    place = landscape.folder()
    runtime, path = place / "operator.kubeconfig", garden.kubeconfig(place)
    if not runtime.exists():
        raise Missing("there is no landscape: start it with `windowbox gardener up`")
    yield from _objects(
        Kubectl(runtime), "gardens.operator.gardener.cloud", "extensions.operator.gardener.cloud"
    )
    if path.exists():
        yield from _objects(Kubectl(path), "seeds.core.gardener.cloud", "shoots.core.gardener.cloud")


def _objects(kubectl: Kubectl, *kinds: str) -> Iterator[str]:
    for found in kubectl.get(",".join(kinds), "--all-namespaces")["items"]:
        yield from described(found)


def described(found: dict[str, Any]) -> Iterator[str]:
    """The object, what Gardener does with it, and what is wrong with it."""
    meta, status = found["metadata"], found.get("status") or {}
    name = "/".join(filter(None, (meta.get("namespace"), meta["name"])))
    operation = status.get("lastOperation") or {}
    doing = f"{operation['type']} {operation['state']} {operation['progress']} %" if operation else ""
    yield f"{found['kind']:<10} {name:<36} {doing}".rstrip()
    if operation and operation["state"] != "Succeeded":
        yield f"    {operation['description']}"
    for error in status.get("lastErrors") or []:
        yield f"    {error['description'][:300]}"
    for condition in [*status.get("conditions", ()), *status.get("constraints", ())]:
        if condition["status"] != "True":
            yield f"    {condition['type']} {condition['status']}: {condition['message'][:300]}"
