"""Gardener's programs, and those that it deploys: main packages of Go modules, compiled into the cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from sandbox.programs import binaries, obtain
from sandbox.programs.binaries import Program
from sandbox.progress import Progress
from windowbox.errors import Missing

_MODULES = Path(__file__).parent / "modules"
GARDENER = "1.150.0"
KUBERNETES = {
    binaries.PROGRAMS["kube-apiserver"].version: "",
    "1.35.4": "-1.35",
    "1.34.3": "-1.34",
    "1.33.13": "-1.33",
}
"""The versions for Shoots, and what the names of their programs end with. Shoots of Gardener's own tests
have 1.35; some are updated to it from 1.34, and their workers from 1.33."""

_VERSION = "k8s.io/component-base/version"
_STAMPS = tuple(f"{_VERSION}.git{part}" for part in ("Version=v{version}", "Major={major}", "Minor={minor}"))
"""gardenlet compares its version with the Garden's, and is v0.0.0-master without a stamp: refused."""


def _programs() -> Iterator[Program]:
    gardener, vpa = "github.com/gardener/gardener/cmd", "k8s.io/autoscaler/vertical-pod-autoscaler/pkg"
    for name in (
        "gardener-operator", "gardenlet", "gardener-apiserver", "gardener-controller-manager",
        "gardener-scheduler", "gardener-admission-controller",
    ):  # fmt: skip
        yield _program(name, GARDENER, f"{gardener}/{name}", _STAMPS)
    # The sandbox has a smaller one of this name.
    yield _program(
        "gardener-resource-manager-whole", GARDENER, f"{gardener}/gardener-resource-manager", _STAMPS
    )
    yield _program("gardener-node-agent", GARDENER, f"{gardener}/gardener-node-agent", _STAMPS)
    druid = "github.com/gardener/etcd-druid"
    yield _program(
        "etcd-druid", "0.38.1", f"{druid}/cmd", (f"{druid}/internal/version.gitVersion=v{{version}}",)
    )
    brctl = "github.com/gardener/etcd-backup-restore"
    yield _program(
        "etcdbrctl", "0.44.1", brctl, (f"{brctl}/pkg/version.Version=v{{version}}",), "etcd-backup-restore"
    )
    yield _program("etcd-wrapper", "1.0.0", "windowbox/gardener/etcd-wrapper", (), "etcd-wrapper")
    yield _program("coredns", "1.14.7", "windowbox/gardener/coredns", (), "coredns")
    yield _program("dependency-watchdog", "1.8.0", "github.com/gardener/dependency-watchdog")
    yield _program(
        "metrics-server", "0.9.0", "sigs.k8s.io/metrics-server/cmd/metrics-server",
        ("k8s.io/client-go/pkg/version.gitVersion=v{version}",),
    )  # fmt: skip
    prometheus, stamp = "github.com/prometheus", ("github.com/prometheus/common/version.Version={version}",)
    yield _program("node_exporter", "1.12.1", f"{prometheus}/node_exporter", stamp, "node-exporter")
    yield _program("blackbox_exporter", "0.28.0", f"{prometheus}/blackbox_exporter", stamp)
    # Of the master of April 2026: no release can be had as a module.
    istio, stamp = "istio.io/istio", ("istio.io/istio/pkg/version.buildVersion={version}",)
    for name in ("pilot-discovery", "pilot-agent"):
        yield _program(name, "1.30.0", f"{istio}/pilot/cmd/{name}", stamp, "istio")
    for name in ("vpn-server", "vpn-client", "apiserver-proxy"):
        yield _program(name, "1.0.1", f"./{name}", (), "networking")
    yield _program("ext-authz-server", "1.0.0", "windowbox/gardener/ext-authz-server", (), "ext-authz-server")
    for name in ("admission-controller", "recommender", "updater"):
        yield _program(f"vpa-{name}", "1.7.1", f"{vpa}/{name}")


def _tests() -> Iterator[Program]:
    yield _program("gardener-e2e", GARDENER, "windowbox/gardener/e2e")
    for version, suffix in KUBERNETES.items():
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"):
            if suffix:
                package = f"k8s.io/kubernetes/cmd/{name}"
                yield _program(name + suffix, version, package, _STAMPS, f"kubernetes{suffix}")


_EFFORTS = {
    "gardener-operator": 150, "gardenlet": 40, "gardener-apiserver": 45, "etcd-backup-restore": 150,
    "coredns": 35, "pilot-agent": 100, "pilot-discovery": 200, "e2e": 30,
    "kube-apiserver": 300, "kube-controller-manager": 90,
}  # fmt: skip
"""CPU seconds of compiling, by package, after the programs of the sandbox. Others take about 10."""


def _program(
    name: str, version: str, package: str, stamps: tuple[str, ...] = (), module: str = "gardener"
) -> Program:
    output = package.rpartition("/")[2]
    return Program(
        name, version, (), module=str(_MODULES / module), package=package, stamps=stamps, output=output,
        effort=_EFFORTS.get(output, 10),
    )  # fmt: skip


# In the order in which the landscape needs them: so they are compiled.
PROGRAMS: dict[str, Program] = {program.name: program for program in _programs()}
TESTS: dict[str, Program] = {program.name: program for program in _tests()}
"""Gardener's own end-to-end tests, and what only they need."""

SANDBOX = (
    "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl",
    "machine-controller-manager", "local-path-provisioner",
)  # fmt: skip
"""Programs of the sandbox that are in images, too."""


def build(progress: Progress, *, tests: bool = False) -> None:
    """Compile all that are missing, those of the tests only if asked for."""
    obtain.obtain(SANDBOX, progress, download=False)
    obtain.compile_missing([*PROGRAMS.values(), *(TESTS.values() if tests else ())], progress)


def kubernetes() -> list[str]:
    """The versions for Shoots that are compiled."""
    return [
        version
        for version, suffix in KUBERNETES.items()
        if not suffix or binaries.cached(TESTS[f"kubelet{suffix}"]).exists()
    ]


def path(name: str) -> Path:
    """The program `name`, of Gardener or of the sandbox; Missing if it is not built."""
    program = PROGRAMS.get(name) or TESTS.get(name)
    if program is None:
        return binaries.find(name)
    found = binaries.cached(program)
    if not found.exists():
        tests = " --tests" if name in TESTS else ""
        raise Missing(f"{program.title} is not built: run `windowbox gardener build{tests}`")
    return found


def source(module: str, version: str) -> Path:
    """The folder of a module in Go's cache, with its charts and manifests. `build` fetches it."""
    cache = (
        os.environ.get("GOMODCACHE") or Path(os.environ.get("GOPATH") or Path.home() / "go") / "pkg" / "mod"
    )
    return Path(cache) / f"{module}@v{version}"
