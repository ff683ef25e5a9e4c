"""A landscape: on a sandbox gardener-operator, the virtual garden, and a gardenlet that makes it a Seed."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

import yaml

from commands import sandbox as sandboxes
from sandbox import detached, roles
from sandbox import state as states
from sandbox.programs import binaries
from sandbox.progress import Progress
from sandbox.servers import kubeconfigs
from tools.gardener import base, extensions, garden, programs
from tools.gardener.base import Base
from tools.gardener.garden import NAMESPACE
from tools.gardener.kubectl import Kubectl, manifest, rendered
from windowbox.errors import Missing

NAMES = ("gardener", "gardener-2")
"""Of the sandboxes, one for each Seed; everything else is in the first."""
_SEEDS = ("local", "local2")
EXAMPLES = Path(__file__).parent / "examples"
_VPA = "pkg/component/autoscaling/vpa/templates/crd-autoscaling.k8s.io_*.yaml"
_OPERATOR = {
    # The version of etcd that the registry has.
    "controllers": {"garden": {"etcdConfig": {"featureGates": {"UpgradeEtcdVersion": True}}}},
    # On a busy machine it loses its place else, and applies all definitions again when it is back.
    "leaderElection": {"leaseDuration": "60s", "renewDeadline": "50s", "retryPeriod": "5s"},
}
_GARDEN_PATIENCE, _SEED_PATIENCE = 900, 600


def folder() -> Path:
    """The data of the landscape; of its second sandbox, the folder beside it has some, too."""
    return states.folder(NAMES[0])


def up(progress: Progress, seeds: int = 1) -> None:
    """Everything up to one or two Seeds that are ready. What is there already stays."""
    programs.build(progress)
    place, beside = folder(), states.folder(NAMES[1])
    first = _sandbox(place, None, progress)
    second = _sandbox(beside, first, progress) if seeds > 1 or _runs(beside) else None
    facts, runtime = _facts(first), Kubectl(first.kubeconfig)
    _install_operator(runtime, progress)
    other = {_SEEDS[1]: second.plan} if second else {}
    objects = extensions.operator_extensions(first.plan, first.state.ports["named"], other)
    runtime.apply(yaml.safe_dump_all(objects))
    virtual = _create_garden(runtime, facts, garden.kubeconfig(place), progress)
    for found in filter(None, (first, second)):
        _create_seed(virtual, facts, found, progress)


def access(namespace: str, shoot: str) -> Path:
    """A new kubeconfig of an administrator of a Shoot."""
    place = folder()
    if not (kubeconfig := garden.kubeconfig(place)).exists():
        raise Missing("there is no landscape: start it with `windowbox gardener up`")
    virtual, path = Kubectl(kubeconfig), place / f"{namespace}-{shoot}.kubeconfig"
    found = virtual.get("shoot", shoot, f"--namespace={namespace}")
    status = found.get("status") or {}
    if not {"seedName", "technicalID"} <= status.keys():
        raise Missing(f"the Shoot {namespace}/{shoot} is on no Seed yet: see `windowbox gardener status`")
    seed = states.folder(NAMES[_SEEDS.index(status["seedName"])])
    garden.shoot_access(Kubectl(roles.kubeconfig(seed, "operator")), virtual, found, path)
    return path


def down() -> list[str]:
    """End it, and remove its data; what that was."""
    return [one for name in reversed(NAMES) for one in detached.down(states.folder(name), wipe=True)]


def _runs(place: Path) -> bool:
    before = states.read(place)
    return before is not None and before.running() and before.ready


def _sandbox(place: Path, first: Base | None, progress: Progress) -> Base:
    """The sandbox in this folder, started if it does not run; `first` is the one beside which it is."""
    if not _runs(place):
        chosen = base.options_beside(first) if first else base.options()
        sandboxes.prepare(states.read(place), chosen, progress, download=True)
        with progress.job(f"sandbox {place.name}", "starting", "ready"):
            detached.up(place, chosen)
    with progress.job("DNS and volumes", "deploying", "ready"):
        found = base.prepare(place, first)
        vpa = sorted(programs.source("github.com/gardener/gardener", programs.GARDENER).glob(_VPA))
        Kubectl(found.kubeconfig).apply("".join(path.read_text() for path in vpa))
    return found


def _install_operator(runtime: Kubectl, progress: Progress) -> None:
    """gardener-operator, from the chart of its module."""
    with progress.job("gardener-operator", "starting", "available"):
        module = programs.source("github.com/gardener/gardener", programs.GARDENER)
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


def _create_seed(virtual: Kubectl, facts: Mapping[str, str], found: Base, progress: Progress) -> None:
    """A gardenlet, which registers the cluster of the sandbox as Seed."""
    name = _SEEDS[NAMES.index(found.folder.name)]
    with progress.job(f"Seed {name}", "reconciling", "ready") as job:
        virtual.apply(gardenlet({**facts, **_facts_of_seed(found), "seed": name}))
        virtual.wait(f"seed/{name}", "condition=GardenletReady", patience=_SEED_PATIENCE)
        virtual.reconciled(f"seed/{name}", job, patience=_SEED_PATIENCE)
        for condition in ("SeedSystemComponentsHealthy", "ExtensionsReady", "BackupBucketsReady"):
            virtual.wait(f"seed/{name}", f"condition={condition}", patience=_SEED_PATIENCE)


def gardenlet(facts: Mapping[str, str]) -> str:
    """The Gardenlet of a Seed, and the kubeconfigs for it."""
    secret, made = yaml.safe_load_all(manifest("gardenlet", facts))
    if facts["seed"] == _SEEDS[0]:
        return yaml.safe_dump_all([secret, made])
    # gardener-operator deletes the one that it is told of, once the Seed exists; tests read the other.
    told = {**secret, "metadata": {**secret["metadata"], "name": f"seed-{facts['seed']}-gardener-operator"}}
    # Only Shoots that ask for it get there.
    made["spec"]["config"]["seedConfig"]["spec"]["settings"]["scheduling"]["visible"] = False
    made["spec"]["kubeconfigSecretRef"] = {"name": told["metadata"]["name"]}
    return yaml.safe_dump_all([secret, told, made])


def _facts(first: Base) -> dict[str, str]:
    """What manifests say about the landscape, and about its first sandbox."""
    return {
        **_facts_of_seed(first),
        "cloud": _kubeconfig(first),
        "kubernetes": binaries.PROGRAMS["kube-apiserver"].version,
        "versions": "\n".join(f"    - version: {version}" for version in programs.kubernetes()),
        "gardener": programs.GARDENER,
    }


def _facts_of_seed(found: Base) -> dict[str, str]:
    """What manifests say about a Seed's sandbox."""
    return {
        "pods": str(found.plan.v4),
        "services": str(found.ranges.services_v4),
        "cluster": _kubeconfig(found),
    }


def _kubeconfig(found: Base) -> str:
    return base64.b64encode(kubeconfigs.inline(found.kubeconfig).encode()).decode()
