"""A whole landscape: Gardener's own tests judge it, and a Shoot's users get what a cloud has for them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from sandbox.programs import binaries
from sandbox.progress import Progress
from tests.support import worldwithnodes
from tests.support.running import eventually
from tools.gardener import e2e, landscape, programs
from tools.gardener.kubectl import Kubectl

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

_SHOOT = ("shoot/one", "--namespace=garden-local")
_PATIENCE = 900
_APPLICATION = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: page}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: page}
spec:
  selector: {matchLabels: {app: page}}
  template:
    metadata: {labels: {app: page}}
    spec:
      containers:
      - name: page
        image: registry.k8s.io/e2e-test-images/busybox:1.37.0-1
        command: [sh, -c, "echo kept > /www/index.html && echo serving && exec httpd -f -v -p 8080 -h /www"]
        volumeMounts: [{name: page, mountPath: /www}]
      volumes: [{name: page, persistentVolumeClaim: {claimName: page}}]
---
apiVersion: v1
kind: Service
metadata: {name: page}
spec: {type: LoadBalancer, selector: {app: page}, ports: [{port: 80, targetPort: 8080}]}
"""


@pytest.fixture(scope="module")
def garden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """The virtual garden of a landscape with a Seed that is ready."""
    worldwithnodes.need()
    needed = {**programs.PROGRAMS, **programs.TESTS}.values()
    if missing := [program.title for program in needed if not binaries.cached(program).exists()]:
        pytest.skip(f"not built: {missing}; run `windowbox gardener build --tests`")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("WINDOWBOX_HOME", str(tmp_path_factory.mktemp("landscape")))
        try:
            landscape.up(Progress(print))
            landscape.up(Progress(print))  # a second time: it changes nothing
            yield Kubectl(landscape.folder() / "garden.kubeconfig")
        finally:
            landscape.down()


@pytest.mark.parametrize(
    ("labels", "focus", "skip"),
    [
        ("Project", "", ""),
        ("Seed", "", ""),
        ("credentials-rotation && workerless", "", ""),
        ("simple && basic && !in-place", "Shoot with workers", "layer 4"),
    ],
    ids=["projects", "seed", "workerless-rotation", "workers-update"],
)
def test_gardeners_own_tests_pass(garden: Kubectl, labels: str, focus: str, skip: str) -> None:
    code = e2e.run(labels, focus, skip)

    results = e2e.last()
    assert results
    assert (code, [result for result in results if result.state != "passed"]) == (0, [])


@pytest.fixture(scope="module")
def shoot(garden: Kubectl) -> Iterator[Kubectl]:
    """The Shoot of the example, with two machines."""
    garden.apply((landscape.EXAMPLES / "shoot.yaml").read_text())
    _wait_reconciled(garden)
    yield Kubectl(landscape.access("garden-local", "one"))
    garden("annotate", *_SHOOT, "confirmation.gardener.cloud/deletion=true")
    garden("delete", *_SHOOT, patience=_PATIENCE)


@pytest.mark.parametrize(("seed", "answer"), [("local", "yes"), ("other", "no")])
def test_a_seed_sees_what_belongs_to_it(garden: Kubectl, shoot: Kubectl, seed: str, answer: str) -> None:
    """The SeedAuthorizer of Gardener is asked: no role allows it."""
    gardenlet = (f"--as=gardener.cloud:system:seed:{seed}", "--as-group=gardener.cloud:system:seeds")
    asking = ("auth", "can-i", "get", "secrets/local", "--namespace=garden-local", *gardenlet)

    said = subprocess.run(
        [*garden.command, *asking], capture_output=True, text=True, timeout=60, check=False
    ).stdout
    assert said.split()[0] == answer


async def test_a_shoots_users_get_volumes_load_balancers_and_logs(shoot: Kubectl) -> None:
    shoot("apply", "--filename=-", stdin=_APPLICATION)
    shoot.wait("service/page", "jsonpath={.status.loadBalancer.ingress[0].ip}")
    shoot.wait("deployment/page", "condition=Available", patience=_PATIENCE)

    address = shoot.get("service/page")["status"]["loadBalancer"]["ingress"][0]["ip"]
    assert await eventually(lambda: _fetch(address) == "kept\n", _PATIENCE)
    assert "serving" in shoot("logs", "deployment/page")
    assert await eventually(lambda: len(_measured(shoot)) == 2, _PATIENCE)


def test_a_pool_grows_and_its_machines_are_replaced(garden: Kubectl, shoot: Kubectl) -> None:
    before = _nodes(shoot)

    _change_workers(garden, maximum=3, minimum=3)
    grown = _nodes(shoot)
    assert before < grown
    assert len(grown) == 3

    _change_workers(garden, machine={"type": "large", "image": {"name": "local", "version": "1.1.0"}})
    replaced = _nodes(shoot)
    assert not grown & replaced
    assert len(replaced) == 3


def test_a_shoot_sleeps_and_wakes_up(garden: Kubectl, shoot: Kubectl) -> None:
    for asleep in (True, False):
        _merge(garden, {"spec": {"hibernation": {"enabled": asleep}}})
        _wait_reconciled(garden)

    assert len(_nodes(shoot)) == 3


def _merge(garden: Kubectl, changes: object) -> None:
    garden("patch", *_SHOOT, "--type=merge", f"--patch={json.dumps(changes)}")


def _wait_reconciled(garden: Kubectl) -> None:
    with Progress(print).job("Shoot", "reconciling", "reconciled") as job:
        garden.reconciled("shoot/one", job, namespace="garden-local", patience=_PATIENCE)


def _change_workers(garden: Kubectl, **changes: object) -> None:
    """Change the Shoot's only worker pool, and wait until its machines follow."""
    pool = garden.get(*_SHOOT)["spec"]["provider"]["workers"][0]
    _merge(garden, {"spec": {"provider": {"workers": [{**pool, **changes}]}}})
    _wait_reconciled(garden)


def _nodes(shoot: Kubectl) -> set[str]:
    return {node["metadata"]["name"] for node in shoot.get("nodes")["items"]}


def _fetch(address: str) -> str:
    done = subprocess.run(
        ["curl", "-sS", "--max-time", "3", f"http://{address}/"],
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    return done.stdout


def _measured(shoot: Kubectl) -> list[str]:
    """A line for each node that metrics-server has measured."""
    done = subprocess.run(
        [*shoot.command, "top", "nodes", "--no-headers"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.stdout.splitlines()
