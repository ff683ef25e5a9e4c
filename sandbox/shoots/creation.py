"""Creates a Shoot of the sandbox, as a platform does, and waits until its machines have joined as nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox import roles
from sandbox import state as states
from sandbox.machines import image
from sandbox.nodes import claims
from sandbox.nodes.claims import Claim
from sandbox.nodes.node import real_nodes
from sandbox.programs import obtain
from sandbox.progress import Progress
from sandbox.servers import kubeconfigs, manifests, ranges, resourcemanager
from sandbox.servers.apiserver import ApiServer, from_kubeconfig, is_ready
from sandbox.shoots import cloudmanifests, records, shootmanifests, waiting
from sandbox.shoots.records import Shoot
from sandbox.state import State
from windowbox.errors import Refused, Unreachable

_IMPORT_PATIENCE = 300
_NAMESPACE = "--namespace=k8s.io"
EXTENSIONS = "/apis/extensions.gardener.cloud/v1alpha1"
_PROCESSES = (
    "kube-apiserver", "kube-controller-manager", "kube-scheduler", "host-agent", resourcemanager.PROGRAM,
)  # fmt: skip
_LOOK_AGAIN = 0.05
_SERVERS_PATIENCE = 90.0
_PATIENCE = 120.0
_NODES_PATIENCE = 180.0

Say = Callable[[str, float], None]
"""A step that is done, and the seconds since the beginning."""


@dataclass(frozen=True)
class Sandbox:
    """A running sandbox, from outside of its supervisor."""

    folder: Path
    notify: Callable[[], None]
    """Have the supervisor read the records of Shoots again."""

    @property
    def state(self) -> State:
        found = states.read(self.folder)
        if found is None:
            raise Unreachable(f"{self.folder} has no state any more")
        return found

    @property
    def api(self) -> ApiServer:
        return from_kubeconfig(roles.kubeconfig(self.folder, "operator"))

    @property
    def claim(self) -> Claim:
        return claims.named(self.state.site)

    def sockets(self) -> list[Path]:
        """The sockets of the containerd of each node."""
        return [self.claim.folder / node / "containerd.sock" for node in real_nodes(self.state)]


def detached(folder: Path, state: State) -> Sandbox:
    """The sandbox that `windowbox up` started there."""

    def notify() -> None:
        # It may have ended meanwhile, and its pid been given to another process.
        now = states.read(folder)
        if now is None or now.pid != state.pid or not now.running():
            raise Unreachable(f"the sandbox {folder.name!r} has ended: `{states.command('up', folder)}`")
        os.kill(now.pid, signal.SIGHUP)

    return Sandbox(folder.absolute(), notify)


def create(
    sandbox: Sandbox, name: str, machines: int, progress: Progress, say: Say, cloud: str = ""
) -> Shoot:
    """Create the Shoot `name`, and wait until all its machines are Ready nodes. `cloud` is its type."""
    began = time.monotonic()

    def done(what: str) -> None:
        say(what, time.monotonic() - began)

    shoot = prepare(sandbox, name, progress, done, cloud)
    add_machines(sandbox, shoot, machines, done)
    return shoot


def prepare(
    sandbox: Sandbox, name: str, progress: Progress, done: Callable[[str], None], cloud: str = ""
) -> Shoot:
    """Create all of the Shoot `name` but its machines; `done` is called after each step."""
    records.check_new(sandbox.folder, name)
    obtain.obtain([resourcemanager.PROGRAM, image.PROVISIONER], progress)
    shoot = records.new(name, set(sandbox.state.ports.values()), cloud)
    records.write(sandbox.folder, shoot)
    sandbox.notify()

    def bring_image() -> dict[str, str]:
        archive, name = image.archive(progress)
        import_image(archive, name, sandbox.sockets())
        return {version: image.of_version(name, version) for version in image.VERSIONS}

    # The image takes longest: it is built and imported while the control plane starts.
    with ThreadPoolExecutor(1, "image") as pool:
        importing_image = pool.submit(bring_image)
        wait_started(sandbox, shoot)
        done(f"its control plane runs at {_api(sandbox, shoot).url}")
        images = importing_image.result()
    done("the nodes of the sandbox have the machine image")
    api, inside = sandbox.api, _api(sandbox, shoot)
    generic = kubeconfigs.without_credentials(records.kubeconfig(sandbox.folder, shoot.name))
    home = shoot.technical_id
    for manifest in (
        shootmanifests.namespace(shoot),
        manifests.secret(home, shootmanifests.GENERIC_KUBECONFIG, {"kubeconfig": generic}),
        *(_of_cloud(sandbox, shoot) if cloud else _local(sandbox, shoot, images)),
        shootmanifests.system_config(shoot, inside.url, inside.ca.certificate.read_text()),
    ):
        api.apply_object(manifest)
    made = wait_succeeded(api, shoot, "infrastructures", shootmanifests.INFRASTRUCTURE)
    if cloud:
        api.apply_object(cloudmanifests.controlplane(shoot, made["status"]["providerStatus"]))
    wait_succeeded(api, shoot, "controlplanes", shootmanifests.CONTROL_PLANE)
    wait_succeeded(api, shoot, "operatingsystemconfigs", shootmanifests.SYSTEM_CONFIG)
    done(f"Infrastructure Succeeded: machines live in {shoot.machines}")
    done("ControlPlane Succeeded: the Shoot is a served cluster, with a StorageClass")
    return shoot


def _local(sandbox: Sandbox, shoot: Shoot, images: Mapping[str, str]) -> list[dict[str, Any]]:
    """The objects of a Shoot of type local; its ControlPlane does not wait for the Infrastructure."""
    provider = {"kubeconfig": roles.provider_kubeconfig(sandbox.folder)}
    own = ranges.kept(records.folder(sandbox.folder, shoot.name), [])
    return [
        manifests.secret(shoot.technical_id, shootmanifests.CREDENTIALS, provider),
        shootmanifests.cluster(shoot, sandbox.state.options.ranges[0], own, images),
        shootmanifests.infrastructure(shoot),
        shootmanifests.controlplane(shoot),
    ]


def _of_cloud(sandbox: Sandbox, shoot: Shoot) -> list[dict[str, Any]]:
    """The objects of a Shoot of a cloud that come first."""
    own = ranges.kept(records.folder(sandbox.folder, shoot.name), [])
    return [
        cloudmanifests.provider_secret(roles.provider_kubeconfig(sandbox.folder)),
        cloudmanifests.credentials(shoot),
        cloudmanifests.cluster(shoot, str(own.pods), str(own.services_v4)),
        cloudmanifests.infrastructure(shoot),
    ]


def add_machines(sandbox: Sandbox, shoot: Shoot, machines: int, done: Callable[[str], None]) -> None:
    """Create its Worker, and wait until all its machines are Ready nodes."""
    write_worker(sandbox, shoot, machines, image.VERSIONS[0])
    done(f"Worker written: {machines} machines wanted")
    wait_nodes(sandbox, shoot, machines, lambda node: done(f"node {node} is Ready"))
    wait_succeeded(sandbox.api, shoot, "workers", shootmanifests.WORKER)
    done("Worker Succeeded")


def wait_started(sandbox: Sandbox, shoot: Shoot) -> None:
    """Wait until all processes of the control plane are ready."""
    limit = time.monotonic() + _SERVERS_PATIENCE
    wanted = [shoot.child(process) for process in _PROCESSES]
    while True:
        state = sandbox.state
        if not state.running():
            raise Unreachable(f"the sandbox {state.name!r} has ended")
        children = state.children
        late = [n for n in wanted if n not in children or children[n].condition != "ready"]
        if not late:
            return
        if time.monotonic() > limit:
            raise Unreachable(
                f"{', '.join(late)} not ready after {_SERVERS_PATIENCE:.0f} s: see `windowbox logs "
                f"{late[0] if late[0] in children else 'supervisor'}`"
            )
        time.sleep(_LOOK_AGAIN)


def wait_ended(sandbox: Sandbox, shoot: Shoot) -> None:
    """Wait until no process of the control plane is left."""
    limit = time.monotonic() + _SERVERS_PATIENCE
    while any(name.startswith(shoot.child("")) for name in sandbox.state.children):
        if time.monotonic() > limit:
            raise Unreachable(f"the processes of shoot {shoot.name} have not ended: see `windowbox status`")
        time.sleep(_LOOK_AGAIN)


def write_worker(sandbox: Sandbox, shoot: Shoot, machines: int, version: str) -> None:
    """Write the Worker, with an image of this version: another than before replaces all machines."""
    path = (
        f"{EXTENSIONS}/namespaces/{shoot.technical_id}/operatingsystemconfigs/{shootmanifests.SYSTEM_CONFIG}"
    )
    secret = sandbox.api.read(path)["status"]["cloudConfig"]["secretRef"]["name"]
    if shoot.cloud:
        network = sandbox.api.read(
            f"{EXTENSIONS}/namespaces/{shoot.technical_id}/infrastructures/{shootmanifests.INFRASTRUCTURE}"
        )["status"]["providerStatus"]
        wanted = cloudmanifests.worker(shoot, machines, secret, network)
    else:
        wanted = shootmanifests.worker(shoot, machines, version, secret)
    sandbox.api.apply_object(wanted)


def wait_nodes(
    sandbox: Sandbox, shoot: Shoot, count: int, say: Callable[[str], None] = lambda node: None
) -> list[str]:
    """The names of the Shoot's nodes, once so many are Ready; `say` is called for each."""
    ready = _wait_each(_api(sandbox, shoot), "/api/v1/nodes", is_ready, count, say)
    if len(ready) < count:
        raise Unreachable(_too_few(sandbox, shoot, f"{len(ready)} of {count} nodes are Ready"))
    return ready


def wait_machines(sandbox: Sandbox, shoot: Shoot, count: int, say: Callable[[str], None]) -> None:
    """Wait until so many machines run as nodes; `say` is called for each."""
    running = _wait_each(sandbox.api, machines_path(shoot), is_running, count, say)
    if len(running) < count:
        raise Unreachable(_too_few(sandbox, shoot, f"{len(running)} of {count} machines are Running"))


def _wait_each(
    api: ApiServer, path: str, holds: Callable[[dict[str, Any]], bool], count: int, say: Callable[[str], None]
) -> list[str]:
    """The names of the objects that meet the condition, once so many do, or fewer when time is over."""
    limit = time.monotonic() + _NODES_PATIENCE
    met: set[str] = set()
    while len(met) < count and time.monotonic() < limit:
        for event in api.events(path, seconds=5):
            if event["type"] == "ERROR":
                break
            name = event["object"]["metadata"]["name"]
            if event["type"] == "DELETED" or not holds(event["object"]):
                met.discard(name)
            elif name not in met:
                met.add(name)
                say(name)
            if len(met) >= count:
                break
    return sorted(met)


def _too_few(sandbox: Sandbox, shoot: Shoot, what: str) -> str:
    troubles = [
        f"{machine['metadata']['name']} is {_phase(machine)}: {waiting.described(machine)}"
        for machine in sandbox.api.read(machines_path(shoot))["items"]
        if not is_running(machine)
    ]
    text = "; ".join([*troubles, "see `windowbox machine logs`"])
    return f"{what} after {_NODES_PATIENCE:.0f} s: {text}"


def machines_path(shoot: Shoot) -> str:
    return f"/apis/machine.sapcloud.io/v1alpha1/namespaces/{shoot.technical_id}/machines"


def is_running(machine: dict[str, Any]) -> bool:
    return bool(_phase(machine) == "Running")


def _phase(machine: dict[str, Any]) -> Any:
    return machine.get("status", {}).get("currentStatus", {}).get("phase", "new")


def nodes(sandbox: Sandbox, shoot: Shoot) -> tuple[str, str]:
    """The URL of its API server, and how many of its nodes are Ready."""
    api = _api(sandbox, shoot)
    if records.is_hibernated(sandbox.folder, shoot.name):
        return api.url, "hibernated"
    found = api.find("/api/v1/nodes")
    if found is None:
        return api.url, "unknown"
    return api.url, f"{sum(map(is_ready, found['items']))} of {len(found['items'])}"


def wait_succeeded(
    api: ApiServer,
    shoot: Shoot,
    plural: str,
    name: str,
    holds: Callable[[dict[str, Any]], bool] = waiting.succeeded,
) -> dict[str, Any]:
    path = f"{EXTENSIONS}/namespaces/{shoot.technical_id}/{plural}"
    kind = plural.removesuffix("s")
    what = f"{kind} {shoot.technical_id}/{name} has not succeeded (see `windowbox trace {kind} …`)"
    return waiting.until(api, path, name, holds, what, patience=_PATIENCE)


def _api(sandbox: Sandbox, shoot: Shoot) -> ApiServer:
    return from_kubeconfig(records.kubeconfig(sandbox.folder, shoot.name))


def import_image(archive: Path, image: str, sockets: Sequence[Path]) -> None:
    """Have each containerd know the image in the archive. Idempotent."""

    def bring(socket: Path) -> None:
        if image not in _ctr(socket, "images", "list", "--quiet").splitlines():
            _ctr(socket, "images", "import", str(archive))

    with ThreadPoolExecutor(max(len(sockets), 1), "images") as pool:
        list(pool.map(bring, sockets))


def _ctr(socket: Path, *arguments: str) -> str:
    node = socket.parent.name
    try:
        done = subprocess.run(
            ["ctr", f"--address={socket}", "--connect-timeout=5s", _NAMESPACE, *arguments],
            capture_output=True, text=True, timeout=_IMPORT_PATIENCE, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise Unreachable(
            f"{node} has not taken the machine image within {_IMPORT_PATIENCE} s: end what else uses the CPUs"
            " or the disk of this machine, and try again"
        ) from error
    if done.returncode:
        raise Refused(f"{node} does not take the machine image: {done.stderr.strip()}")
    return done.stdout
