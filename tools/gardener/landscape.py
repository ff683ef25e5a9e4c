"""A landscape: on a sandbox gardener-operator, the virtual garden, and a gardenlet that makes it a Seed."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

import yaml

from commands import sandbox as sandboxes
from sandbox import detached
from sandbox import state as states
from sandbox.programs import binaries
from sandbox.progress import Progress
from sandbox.servers import kubeconfigs
from tools.gardener import base, extensions, garden, programs
from tools.gardener.base import Base
from tools.gardener.garden import NAMESPACE
from tools.gardener.kubectl import Kubectl, manifest, rendered

NAME = "gardener"
"""Of the sandbox."""
EXAMPLES = Path(__file__).parent / "examples"
_VPA = "pkg/component/autoscaling/vpa/templates/crd-autoscaling.k8s.io_*.yaml"
_OPERATOR = {
    # The version of etcd that the registry has.
    "controllers": {"garden": {"etcdConfig": {"featureGates": {"UpgradeEtcdVersion": True}}}}
}
_GARDEN_PATIENCE, _SEED_PATIENCE = 900, 600


def folder() -> Path:
    """The data of the landscape."""
    return states.folder(NAME)


def up(progress: Progress) -> None:
    """Everything up to a Seed that is ready. What is there already stays."""
    programs.build(progress)
    place = folder()
    _start_sandbox(place, progress)
    with progress.job("registry, DNS and volumes", "deploying", "ready"):
        found = base.prepare(place)
    facts, runtime = _facts(found), Kubectl(found.kubeconfig)
    _install_operator(runtime, progress)
    objects = extensions.operator_extensions(found.plan, found.state.ports["named"])
    runtime.apply(yaml.safe_dump_all(objects))
    virtual = _create_garden(runtime, facts, garden.kubeconfig(place), progress)
    _create_seed(virtual, facts, progress)


def down() -> list[str]:
    """End it, and remove its data; what that was."""
    return detached.down(folder(), wipe=True)


def _start_sandbox(place: Path, progress: Progress) -> None:
    before, chosen = states.read(place), base.options()
    if before and before.running() and before.ready:
        return
    sandboxes.prepare(before, chosen, progress, download=True)
    with progress.job("sandbox", "starting", "ready"):
        detached.up(place, chosen)


def _install_operator(runtime: Kubectl, progress: Progress) -> None:
    """gardener-operator, from the chart of its module."""
    with progress.job("gardener-operator", "starting", "available"):
        module = programs.source("github.com/gardener/gardener", programs.GARDENER)
        runtime.apply("".join(path.read_text() for path in sorted(module.glob(_VPA))))
        runtime.apply(manifest("namespace", {}))
        values = yaml.safe_dump({"image": {"tag": f"v{programs.GARDENER}"}, "config": _OPERATOR})
        runtime.apply(rendered(module / "charts" / "gardener" / "operator", NAMESPACE, values))
        runtime.wait("deployment/gardener-operator", "condition=Available", namespace=NAMESPACE)


def _create_garden(
    runtime: Kubectl, facts: Mapping[str, str], kubeconfig: Path, progress: Progress
) -> Kubectl:
    """The virtual garden, with what operators of Gardener create in it."""
    with progress.job("Garden", "reconciling", "reconciled") as job:
        runtime.apply(manifest("garden", facts))
        runtime.reconciled("garden/local", job, patience=_GARDEN_PATIENCE)
        virtual = garden.access(runtime, kubeconfig)
        virtual.apply(manifest("gardenconfig", facts))
    return virtual


def _create_seed(virtual: Kubectl, facts: Mapping[str, str], progress: Progress) -> None:
    """A gardenlet, which registers the cluster of the sandbox as Seed."""
    with progress.job("Seed", "reconciling", "ready") as job:
        virtual.apply(manifest("gardenlet", facts))
        virtual.wait("seed/local", "condition=GardenletReady", patience=_SEED_PATIENCE)
        virtual.reconciled("seed/local", job, patience=_SEED_PATIENCE)
        for condition in ("SeedSystemComponentsHealthy", "ExtensionsReady", "BackupBucketsReady"):
            virtual.wait("seed/local", f"condition={condition}", patience=_SEED_PATIENCE)


def _facts(found: Base) -> dict[str, str]:
    """What manifests say about this sandbox."""
    return {
        "pods": str(found.plan.v4),
        "services": str(found.ranges.services_v4),
        "kubernetes": binaries.PROGRAMS["kube-apiserver"].version,
        "versions": "\n".join(f"    - version: {version}" for version in programs.kubernetes()),
        "gardener": programs.GARDENER,
        "cloud": base64.b64encode(kubeconfigs.inline(found.kubeconfig).encode()).decode(),
    }
