"""The control plane of a real Shoot: its storage, how it takes part, and the picture of its chain."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from commands.cli import cli
from commands.demo import showshoot
from sandbox.nodes.images import BUSYBOX
from sandbox.shoots import waiting
from tests.host.machines.conftest import NAME, ShootWorld

CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "kept"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
}


def test_what_a_pod_writes_is_read_by_the_next(world: ShootWorld) -> None:
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    world.api.create(claims, CLAIM)
    assert _run(world, "writer", "echo something > /kept/file") == ""
    assert _run(world, "reader", "cat /kept/file") == "something\n"
    found = world.api.read(f"{claims}/kept")
    assert found["spec"]["storageClassName"] == "default"
    assert found["status"]["phase"] == "Bound"


def _run(world: ShootWorld, name: str, script: str) -> str:
    """What a Pod of the Shoot prints that has the volume."""
    volume = {"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}}
    container = {
        "name": name,
        "image": BUSYBOX,
        "command": ["sh", "-c", script],
        "volumeMounts": [{"name": "kept", "mountPath": "/kept"}],
    }
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


def test_the_picture_shows_each_link_of_the_chain(world: ShootWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = world.sandbox.folder
    monkeypatch.setenv("WINDOWBOX_HOME", str(folder.parent))
    asked = ["shoot", "status", NAME, "--name", folder.name, "--wait", "60"]
    result = CliRunner().invoke(cli, asked, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    for link in ("ControlPlane", "takes part", "nodes", "Worker", "EveryNodeReady"):
        assert f"✓ {link}" in result.output


def test_windowbox_reaches_the_shoot_by_its_own_account(world: ShootWorld) -> None:
    asked = world.kubectl("get", "clusterrolebinding", "system:windowbox", "-o", "jsonpath={.subjects}")
    assert [one["name"] for one in json.loads(asked)] == ["windowbox"]


def test_the_demo_writes_a_volume_and_rotates_authorities(
    world: ShootWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    showshoot.show_control_plane(world.sandbox, world.shoot)
    steps = [line.partition(" s  ")[2] for line in capsys.readouterr().out.splitlines()[1:]]
    assert steps == [
        "a PersistentVolumeClaim is bound, and a Pod has written to it",
        "rotation prepared: the new authority is trusted beside the old one",
        "rotation completed: the old authority is gone",
    ]
