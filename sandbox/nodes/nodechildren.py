"""The processes of a node, as children of the sandbox.

A node has process numbers and mounts of its own. So the kernel ends every container and removes every mount
when the first process of the node ends, and that ends with the supervisor.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from sandbox.children import Child
from sandbox.nodes import cgroups, network
from sandbox.nodes.nodefiles import Place
from sandbox.servers import controlplane
from sandbox.servers.apiserver import ApiServer, is_ready
from windowbox.errors import Refused, Unreachable

_SYSTEM_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""Kernel settings that a kubelet would change. It finds them changed, while this machine keeps its own."""

_READY_PATIENCE = 10
_IMPORT_PATIENCE = 300
"""The machine's disk may be busy. An interrupted import resumes from what containerd already has."""

_EDGE = "/var/lib/windowbox/edge"
"""The folder of Envoys, by default: nodes share the disk of this machine, and each may have an edge."""
_PRIVATE = ("/run/containerd", "/var/lib/cni", "/var/log/containers")
_FIRST = """
set -e
data=$1
read -r stat </proc/self/stat
set -- $stat
pid=$1
set -- ${{stat##*) }}
started=${{20}}
mount -t proc proc /proc
mount --bind "$data" "$0/kubelet"
mkdir -p "${{data%/*}}/edge" {edge}
mount --bind "${{data%/*}}/edge" {edge}
while read -r target source; do
    [ "$source" ] || continue
    mkdir -p "$source" "$target"
    mount --bind "$source" "$target"
done <<END
{shared}
END
for folder in {private}; do
    mkdir -p "$folder"
    mount -t tmpfs tmpfs "$folder"
done
while read -r name value; do
    mkdir -p "$(dirname "$0/sys/$name")"
    echo "$value" > "$0/sys/$name"
    mount --bind "$0/sys/$name" "/proc/sys/$name"
done <<END
{settings}
END
echo "$pid $started" > "$0/init"
# The kernel reaps the orphans of a node whose first process ignores their end; dash cannot.
exec env --ignore-signal=CHLD sleep infinity
"""


def first(place: Place, shared: Mapping[Path, str]) -> Child:
    """The first process of the node: its PID namespace ends with it.

    `shared`: folders of this host, and where the node has them.
    """

    def forget() -> None:
        """Remove the state of containers that a former start left, as a reboot does."""
        place.init_file.unlink(missing_ok=True)
        cgroups.remove(place.containers, last=False)
        for folder in (place.run / "containerd", place.run / "ipam"):
            shutil.rmtree(folder, ignore_errors=True)

    script = _FIRST.format(
        private=" ".join(_PRIVATE),
        edge=_EDGE,
        shared="\n".join(f"{target} {source}" for source, target in shared.items()),
        settings="\n".join(f"{name} {value}" for name, value in _SYSTEM_SETTINGS.items()),
    )
    return Child(
        f"{place.node.name}/init",
        [
            "nsenter", f"--net={network.namespace_path(place.namespace)}",
            "unshare", "--pid", "--mount", "--propagation=slave", "--fork", "--kill-child=SIGKILL",
            "sh", "-c", script, str(place.run),
            str(place.data / "kubelet"),
        ],
        ready=place.init_file.exists,
        before=forget,
        held=place.off_file.exists,
        stop_signal=signal.SIGKILL,
    )  # fmt: skip


def containerd(place: Place, archives: Callable[[], list[Path]]) -> Child:
    program = shutil.which("containerd") or "containerd"

    def bring_images() -> None:
        for archive in archives():
            done = _ctr(
                place, "--namespace=k8s.io", "images", "import", str(archive), patience=_IMPORT_PATIENCE
            )
            if done.returncode:
                raise Refused(f"{place.node.name} does not take {archive.name}: {done.stderr.strip()}")

    return Child(
        f"{place.node.name}/containerd",
        _inside(place, program, "--config", str(place.data / "containerd.toml"), "--log-level=warn"),
        ready=lambda: _answers(place),
        before=cgroups.weigh,
        then=bring_images,
        held=lambda: not place.is_up(),
        inner=True,
    )


def kubelet(place: Place, api: ApiServer, program: Path) -> Child:
    node = place.node
    health = f"http://{node.v4}:10248/healthz"
    return Child(
        f"{node.name}/kubelet",
        _inside(
            place, str(program), f"--config={place.data / 'kubelet.yaml'}",
            f"--kubeconfig={place.data / 'kubelet.kubeconfig'}",
            f"--bootstrap-kubeconfig={place.data / 'bootstrap.kubeconfig'}",
            f"--cert-dir={place.credentials}", f"--hostname-override={node.name}",
            f"--node-ip={node.v4},{node.v6}", f"--root-dir={place.kubelet}",
        ),
        ready=lambda: controlplane.healthy(health) and is_ready(api.find(f"/api/v1/nodes/{node.name}")),
        held=lambda: not (place.is_up() and _answers(place)),
        inner=True,
    )  # fmt: skip


def kube_proxy(place: Place, program: Path) -> Child:
    return Child(
        f"{place.node.name}/kube-proxy",
        _inside(place, str(program), f"--config={place.data / 'kube-proxy.yaml'}"),
        ready=lambda: controlplane.healthy(f"http://{place.node.v4}:10256/healthz"),
        held=lambda: not place.is_up(),
        inner=True,
    )


def _inside(place: Place, *argv: str) -> list[str]:
    # nsenter stays outside as the parent of the program, which has to end with it.
    script = (
        'read -r pid started < "$0";'
        'exec nsenter --target "$pid" --net --mount --pid setpriv --pdeathsig KILL "$@"'
    )
    return ["sh", "-c", script, str(place.init_file), *argv]


def _answers(place: Place) -> bool:
    try:
        return _ctr(place, "version", patience=_READY_PATIENCE).returncode == 0
    except Unreachable:
        return False


def _ctr(place: Place, *arguments: str, patience: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["ctr", f"--address={place.socket}", "--connect-timeout=1s", *arguments],
            capture_output=True, text=True, timeout=patience, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise Unreachable(
            f"`ctr {' '.join(arguments)}` has not ended within {patience:.0f} s; trying again. If that goes"
            " on, end what else uses the CPUs and the disk of this machine, or start with fewer nodes"
        ) from error
