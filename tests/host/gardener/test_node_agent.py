"""Machines run Gardener's real node agent: it makes nodes of them, and updates them in place.

gardenlet's own code makes the OperatingSystemConfigs. What gardener-resource-manager does for the nodes of a
Shoot is played here: it approves certificates, and takes away the taint of nodes without critical components.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from sandbox import detached, roles
from sandbox import state as states
from sandbox.machines import image
from sandbox.nodes import joining
from sandbox.programs import binaries, obtain
from sandbox.progress import Progress
from sandbox.servers import manifests
from sandbox.servers.apiserver import ApiServer, from_kubeconfig, is_ready
from sandbox.shoots import creation, records, shootmanifests, waiting
from sandbox.shoots.creation import Sandbox
from sandbox.shoots.records import Shoot
from tests.support import worldwithnodes
from tools.gardener import base, programs, registry
from tools.gardener.machines import network, systemdimage
from windowbox.errors import Missing, Refused, Unreachable

# It assembles some images, and boots a machine that pulls them.
pytestmark = [pytest.mark.long, pytest.mark.slow]

FIRST, SECOND = image.VERSIONS
GARDENLET = "gardenlet-machines"
PROGRAMS = ("gardener-node-agent", "coredns")
POOL = "pool"
_REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_CONFIGURED = "checksum/cloud-config-data"
"""The annotation of a node whose node agent has applied all."""
_TAINT = "node.gardener.cloud/critical-components-not-ready"


@dataclass(frozen=True)
class World:
    """A Shoot without machines, in a sandbox with a registry."""

    sandbox: Sandbox
    shoot: Shoot

    @property
    def api(self) -> ApiServer:
        """The API server of the Shoot."""
        return from_kubeconfig(records.kubeconfig(self.sandbox.folder, self.shoot.name))

    @property
    def home(self) -> str:
        return f"{creation.EXTENSIONS}/namespaces/{self.shoot.technical_id}"

    def configure(self, version: str) -> dict[str, Any]:
        """Have gardenlet configure a pool of machines with this image: the Worker that it would write."""
        machine = {
            "type": "local",
            "image": {"name": "local", "version": version},
            "architecture": binaries.architecture(),
        }
        worker = {
            "name": POOL, "minimum": 1, "maximum": 1, "machine": machine, "cri": {"name": "containerd"},
            "updateStrategy": "AutoInPlaceUpdate",
        }  # fmt: skip
        kubernetes = binaries.PROGRAMS["kubelet"].version
        values = {"server": self.api.url, "kubernetesVersion": kubernetes, "dns": ["240.1.0.10"]}
        operator = roles.kubeconfig(self.sandbox.folder, "operator")
        done = subprocess.run(
            [binaries.find(GARDENLET), operator, self.shoot.technical_id],
            input=json.dumps(values | {"worker": worker}), capture_output=True, text=True,
            timeout=150, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        made = json.loads(done.stdout)
        for object in made["objects"]:
            self.api.apply_object(object)
        agent = made["objects"][0]["metadata"]["name"]
        wanted = shootmanifests.worker(self.shoot, 1, version, made["userData"])
        wanted["spec"]["pools"][0] |= {
            "name": POOL, "nodeAgentSecretName": agent, "updateStrategy": worker["updateStrategy"],
            "maxSurge": 0, "maxUnavailable": 1,
            "labels": {
                "worker.gardener.cloud/pool": POOL,
                "worker.gardener.cloud/gardener-node-agent-secret-name": agent,
            },
        }  # fmt: skip
        return wanted

    def wait_node(self, version: str) -> dict[str, Any]:
        """The only node, once its node agent has made a Ready node with this image of it."""

        def is_configured(node: dict[str, Any]) -> bool:
            names = node["metadata"].get("annotations", {})
            said = node["status"]["nodeInfo"]["osImage"]
            return is_ready(node) and _CONFIGURED in names and f"Machine Image Version {version} " in said

        [node] = self.api.read("/api/v1/nodes")["items"]
        name = node["metadata"]["name"]
        return waiting.until(self.api, "/api/v1/nodes", name, is_configured, f"no {version}", patience=240)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    worldwithnodes.need()
    if reason := image.impossible():
        pytest.skip(f"no machines: {reason}")
    try:
        systemdimage.image("machine:1")
    except Missing as error:
        pytest.skip(str(error))
    obtain.obtain([GARDENLET], Progress(print))
    obtain.compile_missing([programs.PROGRAMS[name] for name in PROGRAMS], Progress(print))
    folder = tmp_path_factory.mktemp("home") / "agent"
    options = base.options(nodes=1, played=1)
    del options["kinds"]  # this windowbox serves machines, too
    try:
        state = detached.up(folder, options)
        base.prepare(folder)
        sandbox = creation.detached(folder, state)
        shoot = creation.prepare(sandbox, "one", Progress(print), print)
        made = World(sandbox, shoot)
        _prepare(made)
        with _played(made.api):
            yield made
    finally:
        if states.read(folder):
            detached.down(folder, wipe=True)


def test_a_machine_joins_and_is_updated_in_place(world: World) -> None:
    world.sandbox.api.apply_object(world.configure(FIRST))

    creation.wait_machines(world.sandbox, world.shoot, 1, print)
    [machine] = world.sandbox.api.read(creation.machines_path(world.shoot))["items"]
    node = world.wait_node(FIRST)
    assert node["metadata"]["labels"]["node-role.kubernetes.io/worker"] == ""

    world.sandbox.api.apply_object(world.configure(SECOND))

    assert world.wait_node(SECOND)["metadata"]["uid"] == node["metadata"]["uid"]
    [after] = world.sandbox.api.read(creation.machines_path(world.shoot))["items"]
    assert after["metadata"]["uid"] == machine["metadata"]["uid"]


def _prepare(world: World) -> None:
    """What the other parts of Gardener would bring."""
    api, inside = world.sandbox.api, world.api
    authority = inside.ca.certificate.read_text()
    for name in ("ca", "ca-kubelet"):
        api.apply_object(manifests.secret(world.shoot.technical_id, name, {"bundle.crt": authority}))
    path = f"{creation.EXTENSIONS}/clusters/{world.shoot.technical_id}"
    config = api.read(path)["spec"]["cloudProfile"]["spec"]["providerConfig"]
    for version in config["machineImages"][0]["versions"]:
        version["image"] = f"registry.local.gardener.cloud:{registry.PORT}/{systemdimage.REPOSITORY}:v1"
    api.merge(path, {"spec": {"cloudProfile": {"spec": {"providerConfig": config}}}})
    host, _, port = inside.url.removeprefix("https://").partition(":")
    for manifest in yaml.safe_load_all(network.MANIFESTS.read_text()):
        if manifest["kind"] == "DaemonSet":
            [container] = manifest["spec"]["template"]["spec"]["containers"]
            server = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
            container["env"] += [{"name": name, "value": value} for name, value in server.items()]
        inside.apply_object(manifest)
    # In place of the authorizer of node agents.
    role = {"apiGroup": joining.RBAC, "kind": "ClusterRole", "name": "cluster-admin"}
    agents = {"apiGroup": joining.RBAC, "kind": "Group", "name": "gardener.cloud:node-agents"}
    binding = {"apiVersion": f"{joining.RBAC}/v1", "kind": "ClusterRoleBinding"}
    inside.apply_object({**binding, "metadata": {"name": "agents"}, "roleRef": role, "subjects": [agents]})


@contextlib.contextmanager
def _played(api: ApiServer) -> Iterator[None]:
    """gardener-resource-manager, as far as nodes need it."""
    over = threading.Event()

    def watch(path: str, answer: Any) -> None:
        while not over.is_set():
            with contextlib.suppress(Unreachable):
                for event in api.events(path, seconds=5):
                    with contextlib.suppress(Refused):  # it has changed meanwhile, and comes again
                        answer(event["object"])

    def approve(found: dict[str, Any]) -> None:
        if not found["status"].get("conditions"):
            approved = {"type": "Approved", "status": "True", "reason": "Played", "message": "by a test"}
            found["status"]["conditions"] = [approved]
            api.request("PUT", f"{_REQUESTS}/{found['metadata']['name']}/approval", body=found).close()

    def untaint(found: dict[str, Any]) -> None:
        taints = found["spec"].get("taints") or []
        kept = [one for one in taints if one["key"] != _TAINT]
        if is_ready(found) and len(kept) < len(taints):
            api.merge(f"/api/v1/nodes/{found['metadata']['name']}", {"spec": {"taints": kept}})

    running = [
        threading.Thread(target=watch, args=pair, daemon=True)
        for pair in ((_REQUESTS, approve), ("/api/v1/nodes", untaint))
    ]
    for thread in running:
        thread.start()
    yield
    over.set()
    for thread in running:
        thread.join(20)
