"""Gardener's own controllers that install extensions, as a program, and the kinds that they work with."""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from sandbox.programs import binaries, obtain
from sandbox.progress import Progress
from sandbox.shipped import MODULES
from tools.chart.generated import CHART
from tools.release import building

PROGRAM = "gardener-installer"
MANIFESTS = CHART.parents[1] / "gardener"
CORE, OPERATOR = "core.gardener.cloud", "operator.gardener.cloud"
KINDS = (
    (CORE, "v1", "controllerdeployments", "ControllerDeployment", False, False),
    (CORE, "v1beta1", "controllerregistrations", "ControllerRegistration", False, False),
    (CORE, "v1beta1", "controllerinstallations", "ControllerInstallation", False, True),
    (CORE, "v1beta1", "seeds", "Seed", False, True),
    (OPERATOR, "v1alpha1", "extensions", "Extension", False, True),
    (OPERATOR, "v1alpha1", "gardens", "Garden", False, True),
)
"""As tests/support/standins.py defines them."""
CLASSES = ("gardener-garden-system-200", "gardener-garden-system-400")
"""Priority classes that gardener-operator makes; the next is one of gardenlet's."""
SYSTEM_CLASS = "gardener-system-900"
TOKEN_KUBECONFIG = "generic-token-kubeconfig"
GARDEN: dict[str, Any] = {
    "apiVersion": f"{OPERATOR}/v1alpha1",
    "kind": "Garden",
    "metadata": {
        "name": "local",
        "annotations": {"generic-token-kubeconfig.secret.gardener.cloud/name": TOKEN_KUBECONFIG},
    },
    "spec": {},
}
DONE = {
    "type": "Reconcile",
    "state": "Succeeded",
    "progress": 100,
    "description": "",
    "lastUpdateTime": "2026-01-01T00:00:00Z",
}
"""The last operation of a Garden that is there."""
_GARDENERS_CHARTS = {
    "extension": "provider-local",
    "runtime": "admission-local/charts/runtime",
    "application": "admission-local/charts/application",
}
"""By the end of their references in Gardener's Extension, the folders of their sources."""


def bring_charts(folder: Path) -> Path:
    """All charts, as a release has them."""
    for name in building.CHARTS:
        (folder / f"{name}-{building.consistent_version()}.tgz").write_bytes(building.chart(name, 0))
    return folder


def command(who: str, kubeconfig: Path, charts: Path, manifest: Path) -> list[str]:
    """Creates what the manifest holds, and runs the controllers of `gardenlet` or `operator`."""
    return [str(binaries.find(PROGRAM)), who, str(kubeconfig), str(charts), str(manifest)]


def bring_gardeners_charts(folder: Path) -> Path:
    """Those of Gardener's own extension, by the names in its Extension; gives the file with that Extension.

    They are in Gardener's sources, which are those that its programs here are built from.
    """
    sources = gardeners_sources()
    for name, path in _GARDENERS_CHARTS.items():
        with tarfile.open(folder / f"{name}-v0.0.0.tgz", "w:gz") as archive:
            archive.add(sources / "charts" / "gardener" / path, arcname=name)
    return sources / "dev-setup/extensions/provider-local/components/extension/extension.yaml"


def gardeners_sources() -> Path:
    go = obtain.find_go("Gardener", Progress(print, live=False))
    done = subprocess.run(
        [go, "mod", "download", "-json", "github.com/gardener/gardener"],
        cwd=MODULES / "programs", capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(json.loads(done.stdout)["Dir"])
