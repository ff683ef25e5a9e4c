"""A Shoot with a machine, on real servers: its node, its control plane, its moves and its end."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from commands.demo import showshoot
from sandbox.machines import image
from sandbox.nodes import iproute, routes
from sandbox.nodes.images import BUSYBOX
from sandbox.progress import Progress
from sandbox.servers import ranges
from sandbox.servers.apiserver import ApiServer
from sandbox.shoots import creation, deletion, hibernation, records, shootmanifests, waiting
from tests.host.machines.conftest import NAME, ShootWorld
from tests.host.machines.moving import Move
from tests.host.traffic.steady import steady
from tests.support import echoclient
from tests.support.rules import rule
from windowbox.errors import Missing, Refused


@pytest.mark.long  # test_managedseed.py
def test_a_volume_keeps_its_data_for_the_next_pod(world: ShootWorld) -> None:
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    head = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "kept"}}
    world.api.create(claims, {**head, "spec": spec})
    assert _run(world, "writer", "echo something > /kept/file") == ""
    assert _run(world, "reader", "cat /kept/file") == "something\n"
    found = world.api.read(f"{claims}/kept")
    assert found["spec"]["storageClassName"] == "default"
    assert found["status"]["phase"] == "Bound"


def _run(world: ShootWorld, name: str, script: str) -> str:
    """What a Pod of the Shoot prints that has the volume."""
    volume = {"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}}
    mounts = [{"name": "kept", "mountPath": "/kept"}]
    container = {"name": name, "image": BUSYBOX, "command": ["sh", "-c", script], "volumeMounts": mounts}
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    pods = "/api/v1/namespaces/default/pods"
    world.api.create(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    waiting.until(
        world.api, pods, name, lambda pod: pod["status"]["phase"] in ("Succeeded", "Failed"),
        f"Pod {name} has not ended", patience=90,
    )  # fmt: skip
    said = world.kubectl("logs", name)
    world.kubectl("delete", "pod", name)
    return said


def test_the_picture_shows_each_link_of_the_chain(world: ShootWorld) -> None:
    said = world.said("shoot", "status", NAME, "--wait", "60")
    for link in ("ControlPlane", "takes part", "nodes", "Worker", "EveryNodeReady"):
        assert f"✓ {link}" in said


def test_windowbox_reaches_the_shoot_by_its_own_account(world: ShootWorld) -> None:
    asked = world.kubectl("get", "clusterrolebinding", "system:windowbox", "-o", "jsonpath={.subjects}")
    assert [one["name"] for one in json.loads(asked)] == ["windowbox"]


def test_the_demo_writes_a_volume_and_rotates_authorities(world: ShootWorld) -> None:
    steps: list[str] = []
    showshoot.write_volume(world.sandbox, world.shoot, steps.append)
    showshoot.rotate(world.sandbox, world.shoot, steps.append)
    assert steps == [
        "a PersistentVolumeClaim is bound, and a Pod has written to it",
        "rotation of authorities prepared: the new one is trusted beside the old one",
        "rotation of authorities completed: the old one is gone",
    ]


@pytest.mark.long  # hibernation, and that it is woken: the last test here; machines: tests/api/machine
@pytest.mark.slow
@rule("C-7", "B12-R1")
def test_load_balancers_serve_again_after_waking(world: ShootWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    # The fixture's sandbox runs in this process, where a signal would end it.
    monkeypatch.setattr("sandbox.shoots.creation.detached", lambda folder, state: world.sandbox)
    address = world.expose("sleepy")
    echoclient.until(lambda: echoclient.tcp(address, 80, b"hello"))
    former = world.node()["metadata"]["name"]
    for _ in range(2):  # the second time there is nothing to do
        assert f"windowbox shoot wake {NAME}" in world.said("shoot", "hibernate", NAME)
    assert world.sandbox.api.read(world.pods())["items"] == []
    assert not [name for name in world.sandbox.state.children if name.startswith(world.shoot.child(""))]
    assert "hibernated" in world.said("shoot", "list")
    assert "✓ API server" in world.said("shoot", "status", NAME)
    for _ in range(2):
        assert "is Running" in world.said("shoot", "wake", NAME)
    assert echoclient.until(lambda: echoclient.tcp(address, 80, b"hello")).said == b"hello"
    assert world.node()["metadata"]["name"] != former
    assert world.until_address("sleepy") == address
    world.kubectl("delete", "service,deployment", "sleepy")


def test_a_shoot_without_a_worker_is_not_hibernated(world: ShootWorld) -> None:
    broken = records.new("broken", ())
    records.write(world.sandbox.folder, broken)
    try:
        with pytest.raises(Missing, match="windowbox shoot delete broken"):
            hibernation.hibernate(world.sandbox, "broken", lambda what, seconds: None)
        assert not records.is_hibernated(world.sandbox.folder, "broken")
    finally:
        records.remove(world.sandbox.folder, "broken")


SERVICES = "/api/v1/namespaces/default/services"


@rule("B4-R4", "B8-R5", "X-11")
def test_a_machine_joins_by_its_user_data(world: ShootWorld) -> None:
    node = world.node()
    name = node["metadata"]["name"]
    pod = world.sandbox.api.read(f"{world.pods()}/{name}")
    assert node["status"]["addresses"][0] == {"type": "InternalIP", "address": pod["status"]["podIP"]}
    assert world.api.read("/apis/certificates.k8s.io/v1/certificatesigningrequests")["items"]
    machines = creation.machines_path(world.shoot)
    found = world.sandbox.api.read(f"{machines}/{name.removeprefix('machine-')}")
    assert found["status"]["currentStatus"]["phase"] == "Running"
    assert found["metadata"]["labels"]["node"] == name


@rule("B4")
def test_a_machine_pod_becomes_ready_with_its_node(world: ShootWorld) -> None:
    waiting.until(
        world.sandbox.api, world.pods(), world.node()["metadata"]["name"],
        lambda pod: bool(pod["status"]["containerStatuses"][0]["ready"]), "it is not ready", patience=60,
    )  # fmt: skip


def test_pods_of_a_shoot_are_reached_through_a_load_balancer(world: ShootWorld) -> None:
    address = world.expose("web", "--http=10200")
    world.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    assert echoclient.until(lambda: echoclient.tcp(address, 80, b"hello")).said == b"hello"


def test_this_host_reaches_pods_of_a_shoot(world: ShootWorld) -> None:
    """By the route to their node: API servers on it dial them, for webhooks."""
    [pod] = world.api.read("/api/v1/namespaces/default/pods?labelSelector=app=web")["items"]
    assert echoclient.until(lambda: echoclient.tcp(pod["status"]["podIP"], 8080, b"hello")).said == b"hello"
    assert world.kubectl("logs", pod["metadata"]["name"]) == ""  # by the API server, from the kubelet


def test_this_host_reaches_services_of_a_shoot(world: ShootWorld) -> None:
    address = world.api.read(f"{SERVICES}/web")["spec"]["clusterIP"]
    assert echoclient.until(lambda: echoclient.tcp(address, 80, b"hello")).said == b"hello"


@rule("A15-R6", "B7-R5")
def test_a_shoot_moves_to_another_seed_with_its_nodes_and_under_traffic(world: ShootWorld) -> None:
    before, move = _alive(world), Move(world)
    with steady(world.until_address("web"), rate=30, lasting=2) as client:
        move.arrive(move.leave())
        client.enough(20)
    client.unharmed()
    assert _alive(world) == before


def _alive(world: ShootWorld) -> dict[str, Any]:
    """What must not change: machines, their Pods and nodes, and the containers that serve on these."""
    machines = creation.machines_path(world.shoot)
    pods = world.api.read("/api/v1/namespaces/default/pods?labelSelector=app=web")["items"]
    return {
        "machines": [one["metadata"]["name"] for one in world.sandbox.api.read(machines)["items"]],
        "their Pods": _uids(world.sandbox.api, world.pods()),
        "nodes": _uids(world.api, "/api/v1/nodes"),
        "containers": {
            f"{pod['metadata']['name']} {one['name']}": (one["containerID"], one["restartCount"])
            for pod in pods
            for one in pod["status"]["containerStatuses"]
        },
    }


def _uids(api: ApiServer, path: str) -> dict[str, str]:
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in api.read(path)["items"]}


@pytest.mark.parametrize("class_", ["", pytest.param("seed", marks=pytest.mark.long)], ids=["shoot", "seed"])
def test_managed_resources_are_applied_by_their_class(world: ShootWorld, class_: str) -> None:
    """By Gardener's own resource manager: in the Shoot, or in the cluster of the sandbox."""
    api, namespace, name = world.sandbox.api, world.shoot.technical_id, f"managed{class_}"
    about = {"name": name, "namespace": "default"}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about}
    data = {"data.yaml": base64.b64encode(json.dumps(account).encode()).decode()}
    metadata = {"name": name, "namespace": namespace}
    api.apply_object({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    spec = {"secretRefs": [{"name": name}]} | ({"class": class_} if class_ else {})
    group = "resources.gardener.cloud/v1alpha1"
    api.apply_object({"apiVersion": group, "kind": "ManagedResource", "metadata": metadata, "spec": spec})
    there = api if class_ else world.api
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    waiting.until(there, accounts, name, lambda one: True, f"{name} is not applied", patience=60)
    bundles = f"/apis/{group}/namespaces/{namespace}/managedresources"
    # It deletes what it has noted: before, it would leave the account behind.
    waiting.until(api, bundles, name, _has_noted, f"{name} notes nothing", patience=60)
    api.request("DELETE", f"{bundles}/{name}")
    waiting.until_gone(api, bundles, name, f"{name} is not gone", patience=60)
    assert not waiting.read(there, f"{accounts}/{name}")


def _has_noted(bundle: dict[str, Any]) -> bool:
    return bool(bundle.get("status", {}).get("resources"))


def test_a_name_is_taken_once(world: ShootWorld) -> None:
    with pytest.raises(Refused, match="windowbox shoot delete one"):
        creation.create(world.sandbox, NAME, 1, Progress(print), lambda what, seconds: None)


def test_commands_show_shoots_and_consoles(world: ShootWorld) -> None:
    assert "1 of 1" in world.said("shoot", "list")
    path = world.said("shoot", "kubeconfig", NAME).strip()
    assert path == str(records.kubeconfig(world.sandbox.folder, NAME))
    machine = world.node()["metadata"]["name"].removeprefix("machine-")
    # Those of machines that have ended are kept, too.
    [machine] = [one for one in world.said("machine", "logs").split() if one.endswith(machine)]
    assert "node-agent-simulator: Pods get addresses" in world.said("machine", "logs", machine)


def test_another_image_replaces_machines(world: ShootWorld) -> None:
    former = world.node()
    echoclient.until(_that(lambda: former["spec"]["podCIDR"] in _routes()))
    creation.write_worker(world.sandbox, world.shoot, 1, image.VERSIONS[-1])
    creation.wait_succeeded(world.sandbox.api, world.shoot, "workers", shootmanifests.WORKER)
    latter = world.node()
    assert latter["metadata"]["name"] != former["metadata"]["name"]
    echoclient.until(_that(lambda: latter["spec"]["podCIDR"] in _routes()))
    assert former["spec"]["podCIDR"] not in _routes()


@pytest.mark.long  # api/machine/test_deletion.py shows how it wakes up
@pytest.mark.slow
def test_a_shoot_deleted_in_hibernation_leaves_no_trace(world: ShootWorld) -> None:
    """Of one that is deleted while it is awake, the demo shows the same."""
    port, prefix = world.sandbox.state.ports["etcd"], world.shoot.etcd_prefix
    own = ranges.kept(records.folder(world.sandbox.folder, NAME), [])
    hibernation.hibernate(world.sandbox, NAME, lambda what, seconds: None)
    assert deletion.count(port, prefix)
    assert own.pods in routes.known()
    deletion.delete(world.sandbox, NAME, lambda what, seconds: None)
    assert deletion.remains(world.sandbox, world.shoot) == []
    assert not {str(own.pods), str(own.services_v4), str(own.services_v6)} & _routes()


def _routes() -> set[str]:
    return {str(route["dst"]) for route in iproute.asked("-4", "route", "show", "proto", "142")}


def _that(holds: Callable[[], bool]) -> Callable[[], None]:
    """For what no event announces."""

    def check() -> None:
        if not holds():
            raise OSError("not yet")

    return check
