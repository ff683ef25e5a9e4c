"""From a Worker to nodes that have really joined, and back: the whole way, on real servers."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from commands.cli import cli
from sandbox.machines import image
from sandbox.nodes import iproute, routes
from sandbox.nodes.images import ECHO
from sandbox.progress import Progress
from sandbox.servers import ranges
from sandbox.servers.apiserver import ApiServer
from sandbox.shoots import creation, deletion, hibernation, objects, records, waiting
from tests.host.machines.conftest import NAME, ShootWorld
from tests.host.machines.moving import Move, Traffic
from tests.support import echoclient
from tests.support.rules import rule
from windowbox.errors import Refused

SERVICES = "/api/v1/namespaces/default/services"


@rule("B4-R4", "B8-R5", "X-11")
def test_a_machine_joins_by_its_user_data(world: ShootWorld) -> None:
    [node] = world.api.read("/api/v1/nodes")["items"]
    name, namespace = node["metadata"]["name"], world.shoot.machines
    pod = world.sandbox.api.read(f"/api/v1/namespaces/{namespace}/pods/{name}")
    assert node["status"]["addresses"][0] == {"type": "InternalIP", "address": pod["status"]["podIP"]}
    assert world.api.read("/apis/certificates.k8s.io/v1/certificatesigningrequests")["items"]
    machine = name.removeprefix("machine-")
    machines = creation.machines_path(world.shoot)
    found = world.sandbox.api.read(f"{machines}/{machine}")
    assert found["status"]["currentStatus"]["phase"] == "Running"
    assert found["metadata"]["labels"]["node"] == name


@rule("B4")
def test_a_machine_pod_becomes_ready_with_its_node(world: ShootWorld) -> None:
    [node] = world.api.read("/api/v1/nodes")["items"]
    pods = f"/api/v1/namespaces/{world.shoot.machines}/pods"
    waiting.until(
        world.sandbox.api, pods, node["metadata"]["name"],
        lambda pod: bool(pod["status"]["containerStatuses"][0]["ready"]), "it is not ready", patience=60,
    )  # fmt: skip


def test_pods_of_a_shoot_are_reached_through_a_load_balancer(world: ShootWorld) -> None:
    world.kubectl(
        "create", "deployment", "web", f"--image={ECHO}", "--", "/echo", "--tcp=8080", "--http=10200"
    )
    world.kubectl("expose", "deployment", "web", "--type=LoadBalancer", "--port=80", "--target-port=8080")
    world.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    service = waiting.until(
        world.api, SERVICES, "web", lambda one: bool(_address_of(one)), "web has no address", patience=60
    )
    answer = echoclient.until(lambda: echoclient.tcp(_address_of(service), 80, b"hello"))
    assert answer.said == b"hello"


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
    traffic = Traffic(_address_of(world.api.read(f"{SERVICES}/web")))
    before = _alive(world)
    with traffic.flowing():
        move = Move(world)
        move.arrive(move.leave())
        moved = traffic.answers
        echoclient.until(_that(lambda: traffic.answers >= moved + 20))
    assert traffic.failures == []
    assert _alive(world) == before


def _alive(world: ShootWorld) -> dict[str, Any]:
    """What must not change: machines, their Pods and nodes, and the containers that serve on these."""
    machines = creation.machines_path(world.shoot)
    pods = world.api.read("/api/v1/namespaces/default/pods?labelSelector=app=web")["items"]
    return {
        "machines": [one["metadata"]["name"] for one in world.sandbox.api.read(machines)["items"]],
        "their Pods": _uids(world.sandbox.api, f"/api/v1/namespaces/{world.shoot.machines}/pods"),
        "nodes": _uids(world.api, "/api/v1/nodes"),
        "containers": {
            f"{pod['metadata']['name']} {one['name']}": (one["containerID"], one["restartCount"])
            for pod in pods
            for one in pod["status"]["containerStatuses"]
        },
    }


def _uids(api: ApiServer, path: str) -> dict[str, str]:
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in api.read(path)["items"]}


@pytest.mark.parametrize("class_", ["", "seed"], ids=["shoot", "seed"])
def test_managed_resources_are_applied_by_their_class(world: ShootWorld, class_: str) -> None:
    """By Gardener's own resource manager: in the Shoot, or in the cluster of the sandbox."""
    api, namespace, name = world.sandbox.api, world.shoot.technical_id, f"managed{class_}"
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": "default"},
    }
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
    api.request("DELETE", f"{bundles}/{name}")
    waiting.until_gone(api, bundles, name, f"{name} is not gone", patience=60)
    assert not waiting.read(there, f"{accounts}/{name}")


def test_a_name_is_taken_once(world: ShootWorld) -> None:
    with pytest.raises(Refused, match="windowbox shoot delete one"):
        creation.create(world.sandbox, NAME, 1, Progress(print), lambda what, seconds: None)


def test_commands_show_shoots_and_consoles(world: ShootWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = world.sandbox.folder
    monkeypatch.setenv("WINDOWBOX_HOME", str(folder.parent))
    assert "1 of 1" in _said("shoot", "list", "--name", folder.name)
    path = _said("shoot", "kubeconfig", NAME, "--name", folder.name).strip()
    assert path == str(records.kubeconfig(folder, NAME))
    [node] = world.api.read("/api/v1/nodes")["items"]
    machine = node["metadata"]["name"].removeprefix("machine-")
    # Those of machines that have ended are kept, too.
    consoles = _said("machine", "logs", "--name", folder.name)
    [machine] = [one for one in consoles.split() if one.endswith(machine)]
    assert "node-agent-simulator: Pods get addresses" in _said(
        "machine", "logs", machine, "--name", folder.name
    )


def test_another_image_replaces_machines(world: ShootWorld) -> None:
    [former] = world.api.read("/api/v1/nodes")["items"]
    echoclient.until(_that(lambda: former["spec"]["podCIDR"] in _routes()))
    creation.write_worker(world.sandbox, world.shoot, 1, image.VERSIONS[-1])
    creation.wait_succeeded(world.sandbox.api, world.shoot, "workers", objects.WORKER)
    [latter] = world.api.read("/api/v1/nodes")["items"]
    assert latter["metadata"]["name"] != former["metadata"]["name"]
    echoclient.until(_that(lambda: latter["spec"]["podCIDR"] in _routes()))
    assert former["spec"]["podCIDR"] not in _routes()


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


def _said(*arguments: str) -> str:
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    return done.output


def _routes() -> set[str]:
    return {str(route["dst"]) for route in iproute.asked("-4", "route", "show", "proto", "142")}


def _that(holds: Callable[[], bool]) -> Callable[[], None]:
    """For what no event announces."""

    def check() -> None:
        if not holds():
            raise OSError("not yet")

    return check


def _address_of(service: dict[str, Any]) -> str:
    ingress = (service.get("status", {}).get("loadBalancer") or {}).get("ingress") or [{}]
    return str(ingress[0].get("ip") or "")
