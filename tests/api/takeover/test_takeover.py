"""windowbox takes the place of Gardener's own provider-local, and gives it back."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.api.takeover import gostate
from tests.support.kindworld import Client, KindWorld, kind_world
from tests.support.natsserver import NatsServer
from tests.support.servers import ControlPlane
from windowbox.clients import kube
from windowbox.clients.kube import Kube
from windowbox.models.kindsettings import KindSettings
from windowbox.models.objects import Object
from windowbox.models.refs import (
    EXTENSIONS,
    HEARTBEATS,
    INFRASTRUCTURES,
    IP_POOLS,
    MANAGED_RESOURCES,
    NAMESPACES,
    NETWORK_POLICIES,
    SECRETS,
)
from windowbox.settings import WorkSettings

SERVED = ("infrastructure", "local-ext-shoot")
MARK = "windowbox/made-for"
ADDED = "allow-load-balancers"
"""A NetworkPolicy of ours beside those of the Go program; it goes with the provider namespace."""
EVERYTHING = (
    EXTENSIONS, INFRASTRUCTURES, IP_POOLS, MANAGED_RESOURCES, NAMESPACES, NETWORK_POLICIES, SECRETS,
    HEARTBEATS._replace(named="", selector=""),
)  # fmt: skip


class Seen(NamedTuple):
    """An object: which it is, and what the Go program would read of it."""

    uid: str
    content: Mapping[str, Any]


async def test_a_running_provider_is_replaced_and_comes_back(plane: ControlPlane, nats: NatsServer) -> None:
    async with kube.from_file(plane.kubeconfig) as api:
        shoot = await KindWorld(plane, nats, api, KindSettings(), WorkSettings()).shoot()
        release = f"extension-{uuid.uuid4().hex[:8]}"
        await gostate.leave(shoot, release)
        left = await _seen(api, shoot, release)
        assert len(left) > 8
        added = ("NetworkPolicy", f"infra-{shoot.namespace}/{ADDED}")

        async with kind_world(plane, nats, *SERVED) as world:
            await world.quiet()
            # Nothing changes because another program serves it now, but for marks and one NetworkPolicy in
            # the provider cluster.
            begun = await _seen(api, shoot, release)
            assert [name for name, one in begun.items() if one != left.get(name)] in ([], [added])
            assert left.keys() <= begun.keys()

            # What gardenlet asks for once a day.
            for resource, name in ((INFRASTRUCTURES, "local"), (EXTENSIONS, "local-ext-shoot")):
                await shoot.ask(resource, name)
                await shoot.until_ready(resource, name)
            await world.quiet()
        taken = {name: one for name, one in (await _seen(api, shoot, release)).items() if name != added}
        assert {name: one.uid for name, one in taken.items()} == {name: one.uid for name, one in left.items()}
        changed = {name for name, one in taken.items() if one != left[name]}
        assert {kind for kind, _ in changed} == {"Infrastructure", "Extension"}

        # The way back: finalizers, names and states are those that the Go program left, plus our mark.
        for resource, name, finalizer in (
            (INFRASTRUCTURES, "local", "infrastructure"),
            (EXTENSIONS, "local-ext-shoot", "local-ext-shoot"),
        ):
            found = await shoot.get(resource, name)
            assert found
            assert [*found.finalizers] == [f"extensions.gardener.cloud/{finalizer}"]
            assert found.annotations.keys() == gostate.STAMP.keys()
            assert found.last_operation["state"] == "Succeeded"
        await _check_marks(api, shoot)
        await _go_applies_again(api, shoot)


async def _check_marks(api: Kube, shoot: Client) -> None:
    """A mark in the provider cluster is all that is new: nothing that the Go program would look at."""
    found = await api.get(NAMESPACES, "", f"infra-{shoot.namespace}")
    assert {*found.annotations} <= {MARK}
    assert found.labels["gardener.cloud/role"] == "infra"


async def _go_applies_again(api: Kube, shoot: Client) -> None:
    """The next reconcile of the Go program, by the field owner that both have, removes the mark alone."""
    name = f"infra-{shoot.namespace}"
    before = await api.get(NAMESPACES, "", name)
    body = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"gardener.cloud/role": "infra"}},
    }
    after = await api.apply(NAMESPACES, "", name, body, owner=gostate.MANAGER)
    assert after.uid == before.uid
    assert MARK not in after.annotations


async def _seen(api: Kube, shoot: Client, release: str) -> Mapping[tuple[str, str], Seen]:
    """All objects of the Shoot, of its provider namespace and of the release."""
    mine: dict[tuple[str, str], Seen] = {}
    for resource in EVERYTHING:
        everyone = resource._replace(selector="", named="", within="")
        for raw in (await api.page(everyone, limit=5000)).items:
            one: Any = Object(raw)
            if one.namespace in (shoot.namespace, f"infra-{shoot.namespace}", release) or (
                not resource.namespaced and shoot.namespace in one.name
            ):
                place = f"{one.namespace}/{one.name}".strip("/")
                mine[resource.kind, place] = Seen(one.uid, _content(raw))
    return mine


def _content(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without what the API server adds, and without the mark."""
    counted = ("resourceVersion", "managedFields")
    head = {name: value for name, value in raw["metadata"].items() if name not in counted}
    annotations = {name: value for name, value in head.pop("annotations", {}).items() if name != MARK}
    return {**raw, "metadata": head | {"annotations": annotations}}
