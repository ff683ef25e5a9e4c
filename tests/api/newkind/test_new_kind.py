"""All that a new kind takes: a package, a model, and a row in the table of kinds. Shown with `pond.diff`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from sandbox import processes, stages
from sandbox.servers import manifests
from tests.support import servers
from tests.support.cases import cases
from tests.support.commandline import ROOT, CommandLine
from tests.support.natsserver import NatsServer
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.models.objects import Object
from windowbox.models.refs import Resource

DIFF = Path(__file__).parent / "pond.diff"
PARTS = (
    "bus", "clouds", "commands", "deploy", "docs", "patchers", "sandbox", "ui", "watchers", "webhooks",
    "windowbox",
    "workers",
)  # fmt: skip
PONDS = Resource("extensions.gardener.cloud", "v1alpha1", "ponds", "Pond")
CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
FROGS = Resource("", "v1", "configmaps", "ConfigMap")
GENERATED = {
    "windowbox.models.crds": None,
    "commands.pages": None,
    "windowbox.rights.rbac": "deploy/rbac.yaml",
    "bus.permissions": "deploy/nats/roles.conf",
}
"""As `make generate` runs them, each with the file that takes its output."""


@pytest.fixture(scope="module")
def windowbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """The commands of a copy of the code that knows Ponds."""
    copy = tmp_path_factory.mktemp("copy")
    for part in PARTS:
        # With what is compiled already: it is valid, as times are copied, too.
        shutil.copytree(ROOT / part, copy / part, symlinks=True)
    subprocess.run(["git", "apply", str(DIFF)], cwd=copy, check=True, env={"GIT_CEILING_DIRECTORIES": "/"})
    home = tmp_path_factory.mktemp("home")
    made = CommandLine(home, copy, variables={"PYTHONPATH": str(copy)})
    for module, file in GENERATED.items():
        command = [sys.executable, "-m", module]
        said = subprocess.run(
            command, cwd=copy, env=made.environment(), check=True, stdout=subprocess.PIPE, text=True
        )
        if file:
            (copy / file).write_text(said.stdout)
    with made.ended():
        yield made


def test_the_diff_is_a_package_a_model_and_a_row() -> None:
    changed = [
        line.split()[3].removeprefix("b/") for line in DIFF.read_text().splitlines() if "diff --git" in line
    ]
    assert changed == [
        "windowbox/kinds.py",
        "windowbox/models/gardener/pond.py",
        "workers/kinds/pond/__init__.py",
        "workers/kinds/pond/pondactuator.py",
        "workers/kinds/pond/pondpool.py",
    ]


@cases(
    "file said",
    ("page", "docs/kinds.md", "| `Pond` | `local` | `pond` | its frogs, in a ConfigMap |"),
    ("watched-owned-kind", "docs/settings.md", "configmaps, "),
    ("watched-kind", "docs/settings.md", "ponds.extensions.gardener.cloud"),
    ("wishes", "deploy/nats/roles.conf", '"trigger.pond.>"'),
    ("routing", "deploy/nats/roles.conf", "CONSUMER.CREATE.OBJECTS.route-pond"),
    ("definition", "deploy/crds/ponds.yaml", "kind: Pond"),
)
def test_generated_files_know_the_new_kind(windowbox: CommandLine, file: str, said: str) -> None:
    assert said in (windowbox.cwd / file).read_text()


@pytest.mark.parametrize(
    ("role", "resource", "verbs"),
    [
        ("watcher", "ponds", {"list", "watch"}),
        ("watcher", "configmaps", {"list", "watch"}),
        ("worker", "ponds", {"get", "patch"}),
        ("worker", "configmaps", {"get", "create", "patch", "delete"}),
        ("patcher", "ponds/status", {"patch"}),
        ("patcher", "configmaps", set()),
        ("provider", "configmaps", set()),
    ],
)
def test_each_role_has_its_rights(windowbox: CommandLine, role: str, resource: str, verbs: set[str]) -> None:
    found = yaml.safe_load_all((windowbox.cwd / "deploy" / "rbac.yaml").read_text())
    rules = [
        rule
        for one in found
        if (one["kind"], one["metadata"]["name"]) == ("ClusterRole", f"system:windowbox:{role}")
        for rule in one["rules"]
    ]
    assert {verb for rule in rules if resource in rule["resources"] for verb in rule["verbs"]} == verbs


async def test_a_process_serves_it(
    windowbox: CommandLine, plane: ControlPlane, nats: NatsServer, tmp_path: Path
) -> None:
    with (windowbox.cwd / "deploy" / "crds" / "ponds.yaml").open() as definition:
        manifests.define(plane.api, yaml.safe_load(definition))
    settings = {"nats": {"url": nats.url}, "cluster": {"kubeconfig": str(plane.kubeconfig)}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    # Python takes the modules of the folder where it starts.
    there = ("sh", "-c", 'cd "$0" && exec "$@"', str(windowbox.cwd))
    command = [*there, *windowbox.program, "run", "--settings", str(tmp_path / "run.yaml")]
    running = processes.start(command, tmp_path / "log", env={"PYTHONPATH": str(windowbox.cwd)})
    try:
        async with kube.from_file(plane.kubeconfig) as api:
            await _live(api, str(uuid.uuid4()))
        assert running.poll() is None
    finally:
        servers.end(running)
        plane.api.request("DELETE", CRDS.path(name=PONDS.id)).close()


async def _live(api: Kube, name: str, traced: Callable[[], None] = lambda: None) -> None:
    """A Pond becomes ready, gets back the frogs that it was given, and leaves none behind."""

    async def frogs() -> str | None:
        made = await api.find(FROGS, "default", name)
        return made.raw["data"]["frogs"] if made else None

    async def has(number: str | None) -> bool:
        return await frogs() == number

    async def state() -> str:
        pond = await api.find(PONDS, "default", name)
        return str((pond or Object({})).last_operation.get("state"))

    async def succeeded() -> bool:
        return await state() == "Succeeded"

    async def gone() -> bool:
        return await api.find(PONDS, "default", name) is None

    await api.create(PONDS, "default", pond(name, frogs=3))
    await eventually(succeeded)
    assert await frogs() == "3"
    await api.merge(FROGS, "default", name, {"data": {"frogs": "4"}})
    await eventually(lambda: has("3"))
    traced()
    await api.delete(PONDS, "default", name)
    await eventually(gone)
    assert await frogs() is None


@pytest.mark.long  # its rights are shown above, and how one process serves it
async def test_a_sandbox_serves_it(windowbox: CommandLine) -> None:
    servers.need(*stages.PROGRAMS)
    windowbox("up", "--watchers=1", "--workers=1", "--patchers=1", "--nodes=0")
    found = {one["what"]: one for one in json.loads(windowbox("doctor", "-o", "json", expect=None))}
    assert found["pool pond"]["said"] == "Pond of type local: 1 process"
    assert {found[f"rights of the {role}"]["verdict"] for role in ("watcher", "worker", "patcher")} == {"ok"}

    def traced() -> None:
        for name in ("pond", "pd", "puddle"):
            assert "succeeded" in windowbox("trace", name, "default/small")

    async with kube.from_file(windowbox.folder / "operator.kubeconfig") as api:
        await _live(api, "small", traced)


def pond(name: str, frogs: int) -> dict[str, object]:
    return {
        "apiVersion": "extensions.gardener.cloud/v1alpha1",
        "kind": "Pond",
        "metadata": {"name": name, "annotations": {"gardener.cloud/operation": "reconcile"}},
        "spec": {"type": "local", "frogs": frogs},
    }
