"""In which order Extensions write: nothing is forgotten, wherever one is interrupted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.api.extension.extending import known
from tests.support.kindworld import Client, KindWorld
from tests.support.resourcemanager import ResourceManager
from tests.support.rules import rule
from tests.support.running import eventually
from windowbox.models.objects import Object
from windowbox.models.refs import EXTENSIONS, MANAGED_RESOURCES, SECRETS

SHOOT = "local-ext-shoot"
OLD = f"managedresource-{SHOOT}-00000000"

pytestmark = pytest.mark.serves(SHOOT)
_WRITES = ("create", "patch", "delete")


@dataclass
class Writes:
    """What workers have written in one namespace, from the API server's audit log."""

    log: Path
    namespace: str
    read: int = 0

    def new(self) -> list[tuple[str, str, str]]:
        """Since the last look: verb, kind, name; without the Extensions themselves."""
        lines = self.log.read_bytes().splitlines()
        events = [json.loads(line) for line in lines[self.read :]]
        self.read = len(lines)
        ours = [one for one in events if one["user"]["username"] == "system:windowbox:worker"]
        return [
            (one["verb"], about["resource"], about.get("name", ""))
            for one in ours
            if (about := one.get("objectRef", {})).get("namespace") == self.namespace
            and one["verb"] in _WRITES
            and one["stage"] == "ResponseComplete"
            and about["resource"] != "extensions"
        ]


async def collectable(shoot: Client) -> list[str]:
    """The Secrets that Gardener's garbage collector removes: those that nobody refers to."""
    bundles = await shoot.kube.page(MANAGED_RESOURCES._replace(within=shoot.namespace))
    used = {value for raw in bundles.items for value in Object(raw).annotations.values()}
    marked = SECRETS._replace(
        within=shoot.namespace, selector="resources.gardener.cloud/garbage-collectable-reference=true"
    )
    names = [Object(raw).name for raw in (await shoot.kube.page(marked)).items]
    return [name for name in names if name not in used]


@rule("M-3", "M-4", "M-5")
async def test_secrets_exist_before_use_and_are_marked_after(world: KindWorld) -> None:
    shoot = await world.shoot()
    writes = Writes(world.plane.kubeconfig.parent / "audit.log", shoot.namespace)
    await shoot.secret(OLD, **{"data.yaml.br": b"old"})
    annotations = {"reference.resources.gardener.cloud/secret-0": OLD, "kept": "by somebody"}
    old = {
        "apiVersion": "resources.gardener.cloud/v1alpha1",
        "kind": "ManagedResource",
        "metadata": {"name": SHOOT, "annotations": annotations},
        "spec": {"secretRefs": [{"name": OLD}]},
    }
    await shoot.kube.create(MANAGED_RESOURCES, shoot.namespace, old)
    await eventually(lambda: known(world, shoot.namespace, SHOOT))
    await shoot.create(EXTENSIONS, SHOOT, {"type": SHOOT})
    await shoot.until_ready(EXTENSIONS, SHOOT)
    found = await shoot.get(MANAGED_RESOURCES, SHOOT)
    assert found
    new = found.spec["secretRefs"][0]["name"]
    assert writes.new() == [
        ("patch", "secrets", new),
        ("patch", "secrets", OLD),
        ("patch", "managedresources", SHOOT),
        ("patch", "managedresources", SHOOT),  # what another program's annotation says
    ]
    assert sorted(found.annotations.values()) == ["by somebody", new]
    assert await collectable(shoot) == [OLD]
    async with ResourceManager(shoot).at_work():
        await shoot.until(MANAGED_RESOURCES, SHOOT, lambda found: bool(found and found.finalizers))
        await world.quiet()
        writes.new()
        await shoot.delete(EXTENSIONS, SHOOT)
        await shoot.until_gone(EXTENSIONS, SHOOT)
    assert writes.new()[:3] == [
        ("delete", "secrets", new),
        ("delete", "secrets", f"managedresource-{SHOOT}"),
        ("delete", "managedresources", SHOOT),
    ]
