"""Gardener's own provider-local is replaced by windowbox and comes back, by the commands of docs/install.md.

Gardener's controllers of version 1.150 install both, from Gardener's charts and from ours. Pods are made, but
nobody runs them; tests/api/takeover has objects that the programs serve.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from tests.conformance import gardens
from tests.support import installing, worldwithnodes
from tests.support.installing import CLASSES, MANIFESTS, SYSTEM_CLASS
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from tools.release.building import ROOT
from windowbox.clients.kubernetes.kube import Kube
from windowbox.models.objects import Object
from windowbox.models.refs import DEPLOYMENTS, HEARTBEATS, MANAGED_RESOURCES, NAMESPACES, SECRETS, SERVICES

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

INSTALLATION = "provider-local-7kxqz"
NAMESPACE = f"extension-{INSTALLATION}"
RUNTIME, RUNTIME_NAMESPACE = "extension-provider-local-garden", "runtime-extension-provider-local"
KEPT = (NAMESPACES, SERVICES, SECRETS, HEARTBEATS._replace(named="", selector=""), MANAGED_RESOURCES)
OF_GARDENER = {
    (NAMESPACE, "gardener-extension-provider-local"),
    (RUNTIME_NAMESPACE, "gardener-extension-provider-local-runtime"),
    ("garden", "gardener-extension-admission-local"),
}
LEASES = (
    (NAMESPACE, "gardener-extension-heartbeat"),
    (NAMESPACE, "provider-local-leader-election"),
    ("garden", "gardener-extension-admission-local"),
)
"""Those of the Go programs."""
PATIENCE = 240.0


class Landscape:
    """A garden with gardener-operator, whose cluster is a seed, too."""

    def __init__(self, cluster: ControlPlane, api: Kube, folder: Path) -> None:
        self._cluster, self.api, self._charts = cluster, api, folder
        self._nothing = folder / "nothing.yaml"
        self._nothing.write_text("")

    async def walk(self, *commands: str) -> None:
        """Do what the page says."""
        for command in commands:
            words = command.replace("INSTALLATION", INSTALLATION).replace("NAMESPACE", NAMESPACE).split()
            words = [str(ROOT / one) if one.startswith("deploy/") else one for one in words]
            await asyncio.to_thread(
                worldwithnodes.kubectl, self._cluster.kubeconfig, *words[1:], patience=PATIENCE
            )

    async def gardenlet(self) -> None:
        """gardenlet looks at all ControllerInstallations."""
        await gardens.gardenlet(self._cluster, self._charts, self._nothing)

    async def secrets(self, name: str) -> Any:
        return (await self.api.get(MANAGED_RESOURCES, "garden", name)).spec["secretRefs"]

    async def until_another(self, name: str, before: Any) -> None:
        """Until the ManagedResource names another Secret, as the page has its reader wait."""

        async def named() -> bool:
            return bool(await self.secrets(name) != before)

        await eventually(named, PATIENCE)

    async def until_healthy(self) -> None:
        await eventually(lambda: gardens.healthy(self.api, INSTALLATION), PATIENCE)

    async def deployments(self) -> Mapping[tuple[str, str], int]:
        """How many Pods each is to have."""
        found = [Object(one) for one in (await self.api.page(DEPLOYMENTS)).items]
        return {(one.namespace, one.name): one.spec["replicas"] for one in found}

    async def admission(self) -> bool:
        """Whether the admission of windowbox has been made."""
        return (await self.deployments()).get(("garden", "windowbox-admission"), 0) > 0

    async def has_gardeners_alone(self) -> bool:
        return (await self.deployments()).keys() == OF_GARDENER

    async def identities(self) -> Mapping[tuple[str, str, str], str]:
        """The uids of what both programs have, or Gardener has for either."""
        places, found = ("", "garden", NAMESPACE, RUNTIME_NAMESPACE), {}
        for resource in (*KEPT, *gardens.RESOURCES.values()):
            everyone = resource._replace(selector="", named="", within="")
            for one in [Object(raw) for raw in (await self.api.page(everyone, limit=5000)).items]:
                # Each rendering has a Secret of its own.
                if one.namespace in places and not one.name.startswith("managedresource-"):
                    found[resource.kind, one.namespace, one.name] = one.uid
        return found


def commands() -> dict[str, list[str]]:
    """The commands of the page by their step: 1 to 4, and those of the rollback."""
    page = (ROOT / "docs" / "install.md").read_text()
    text = page.partition("### Migration")[2].partition("## Troubleshooting")[0]
    steps = re.split(r"^(?:([1-5])\. |\*\*(Rollback))", text, flags=re.MULTILINE)
    found = {}
    for i in range(1, len(steps) - 2, 3):
        found[steps[i] or steps[i + 1]] = re.findall(r"^ *\$ (kubectl .*)$", steps[i + 2], re.MULTILINE)
    return found


@pytest_asyncio.fixture
async def landscape(cluster: ControlPlane, api: Kube, tmp_path: Path) -> AsyncIterator[Landscape]:
    """Gardener's own provider-local is installed."""
    charts = installing.bring_charts(tmp_path)
    made = Landscape(cluster, api, charts)
    await gardens.priorities(api, *CLASSES, SYSTEM_CLASS)
    await gardens.garden(api)
    await gardens.seed(api)
    command = installing.command("operator", cluster.kubeconfig, charts, gardeners(tmp_path))
    with (tmp_path / "operator.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, stderr=log)
    try:
        await eventually(lambda: gardens.installed(api), PATIENCE)
        await gardens.installation(api, INSTALLATION)
        await made.gardenlet()
        await made.until_healthy()
        for place, name in LEASES:
            body = {"metadata": {"name": name}, "spec": {"holderIdentity": "go"}}
            await api.create(HEARTBEATS, place, body)
        yield made
    finally:
        process.terminate()
        await process.wait()


def gardeners(folder: Path) -> Path:
    """Gardener's own Extension, with the values of its local set-up."""
    extension = yaml.safe_load(installing.bring_gardeners_charts(folder).read_text())
    ours = yaml.safe_load((MANIFESTS / "extension.yaml").read_text())
    deployment = extension["spec"]["deployment"]
    images = [{"name": "cloud-controller-manager-local", "ref": "local-skaffold/ccm"}]
    deployment["extension"]["values"] = {"logLevel": "debug", "imageVectorOverwrite": {"images": images}}
    for part, values in (("extension", "runtimeClusterValues"), ("admission", "values")):
        deployment[part][values] = {"logLevel": "debug"}
    extension["metadata"] = ours["metadata"]
    extension["spec"]["resources"] = ours["spec"]["resources"]
    file = folder / "gardeners.yaml"
    file.write_text(yaml.safe_dump(extension))
    return file


async def test_the_page_leads_from_gardeners_provider_to_windowbox_and_back(
    landscape: Landscape, tmp_path: Path
) -> None:
    steps, before = commands(), await landscape.identities()
    assert await landscape.has_gardeners_alone()
    await landscape.walk(*steps["1"])
    await replace(landscape, steps, steps["2"], steps["3"])
    found = await landscape.deployments()
    assert not OF_GARDENER & found.keys()
    assert found[NAMESPACE, "provider-local-windowbox-work-all"] > 0
    # The admission has a ManagedResource of its own, which no step waits for.
    await eventually(landscape.admission, PATIENCE)
    after = await landscape.identities()
    assert {name: after.get(name) for name in before} == before

    stopped = [one for one in steps["2"] if "scale" not in one] + steps["Rollback"][:2]
    back = [steps["3"][0].replace("deploy/gardener/extension.yaml", str(gardeners(tmp_path)))]
    await replace(landscape, steps, stopped, back)
    await eventually(landscape.has_gardeners_alone, PATIENCE)
    again = await landscape.identities()
    assert {name: again.get(name) for name in before} == before


async def replace(
    landscape: Landscape, steps: dict[str, list[str]], stopping: list[str], putting: list[str]
) -> None:
    """Steps 2 to 4. Nothing that is stopped runs again, and nothing runs beside it."""
    await landscape.walk(*stopping)
    stopped = await landscape.deployments()
    assert {count for (place, _), count in stopped.items() if place != "garden"} == {0}
    seed, runtime = [await landscape.secrets(name) for name in (INSTALLATION, RUNTIME)]
    await landscape.walk(*putting)
    await landscape.until_another(RUNTIME, runtime)
    of_extension = (NAMESPACE, RUNTIME_NAMESPACE)
    assert within(await landscape.deployments(), *of_extension) == within(stopped, *of_extension)
    await landscape.walk(*steps["4"][:1])

    async def rendered() -> bool:
        # gardenlet would look when the ControllerDeployment changes, as it looks at all once in a while.
        await landscape.gardenlet()
        return bool(await landscape.secrets(INSTALLATION) != seed)

    await eventually(rendered, PATIENCE)
    assert within(await landscape.deployments(), NAMESPACE) == within(stopped, NAMESPACE)
    await landscape.walk(*steps["4"][1:])
    await landscape.until_healthy()

    async def all_gone() -> bool:
        return not within(stopped, NAMESPACE).keys() & (await landscape.deployments()).keys()

    await eventually(all_gone, PATIENCE)


def within(found: Mapping[tuple[str, str], int], *namespaces: str) -> Mapping[tuple[str, str], int]:
    return {place: count for place, count in found.items() if place[0] in namespaces}
