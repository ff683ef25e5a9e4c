"""Images from a registry with a password: pulled by digest, as a release is pushed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import echoclient, helm, registry, release
from tests.support.registry import Registry
from tests.support.release import Release
from tools.chart.generated import CHART
from tools.release import building, ownimage

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

NAMESPACE = "pulled"
SECRET = "registry-login"
PATIENCE = 120.0


@pytest.fixture
def images(installed: Release, tmp_path: Path) -> Iterator[Registry]:
    with registry.running(installed.node, tmp_path) as made:
        yield made


def test_release_images_are_pulled_by_digest_with_secret(
    installed: Release, images: Registry, tmp_path: Path
) -> None:
    node, layout = installed.node, tmp_path / "image.oci.tar"
    digest = ownimage.write(ownimage.image(), layout, building.consistent_version())
    assert images.push(layout, "team/windowbox") == digest
    layout.unlink()
    node.api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    node.api.create(f"/api/v1/namespaces/{NAMESPACE}/secrets", images.secret(SECRET, password="wrong"))
    try:
        install(installed, values(installed, images.address, digest), tmp_path / "values.yaml")

        def check_refused() -> None:
            found = events(installed)
            assert any("401 Unauthorized" in one and images.address in one for one in found), found
            assert "ImagePullBackOff" in {one for pod in pods(installed) for one in waiting(pod)}

        echoclient.until(check_refused, patience=PATIENCE)

        login = images.secret(SECRET)
        node.api.apply(f"/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}", login)
        # As docs/install.md says: kubelets wait for up to five minutes between two attempts.
        node.kubectl("delete", "pods", "--all", f"--namespace={NAMESPACE}", "--timeout=60s")
        node.kubectl(
            "rollout", "status", "deployment/windowbox-run", f"--namespace={NAMESPACE}",
            "--timeout=170s", patience=180,
        )  # fmt: skip
        found = {one["imageID"] for pod in pods(installed) for one in pod["status"]["containerStatuses"]}
        assert found == {f"{images.address}/team/windowbox@{digest}"}
    finally:
        helm.helm("uninstall", "windowbox", *where(installed), "--wait", "--timeout=2m")
        node.kubectl("delete", "namespace", NAMESPACE, "--timeout=50s")


def values(installed: Release, registry: str, digest: str) -> dict[str, Any]:
    """Everything that the preset brings but the name server, under other names than the installation's."""
    bus, image = release.service_address(installed.node, 5222), {"repository": "windowbox", "digest": digest}
    return {
        "global": {"imageRegistry": f"{registry}/team", "imagePullSecrets": [SECRET]},
        "image": image,
        "nats": {"image": image, "clusterIP": bus},
        "bind": {"enabled": False},
        "rbac": {"name": NAMESPACE},
        "settings": {"work": {"classes": ["garden"]}},
        "hostAliases": [{"ip": bus, "hostnames": ["windowbox-nats-0.windowbox-nats-servers"]}],
    }


def where(installed: Release) -> tuple[str, str]:
    return f"--kubeconfig={installed.node.kubeconfig}", f"--namespace={NAMESPACE}"


def install(installed: Release, given: dict[str, Any], file: Path) -> None:
    file.write_text(yaml.safe_dump(given))
    preset = f"--values={CHART / 'values-laptop.yaml'}"
    done = helm.helm(
        "install", "windowbox", str(CHART), *where(installed), preset, f"--values={file}", "--skip-crds"
    )
    assert done.returncode == 0, done.stderr


def pods(installed: Release) -> list[dict[str, Any]]:
    said = installed.node.kubectl("get", "pods", f"--namespace={NAMESPACE}", "--output=json")
    found: list[dict[str, Any]] = json.loads(said)["items"]
    return found


def waiting(pod: dict[str, Any]) -> list[str]:
    """Why its containers wait."""
    states = [one["state"] for one in pod["status"].get("containerStatuses", [])]
    return [one["waiting"]["reason"] for one in states if "waiting" in one]


def events(installed: Release) -> list[str]:
    said = installed.node.kubectl("get", "events", f"--namespace={NAMESPACE}", "--output=json")
    return [str(one.get("message", "")) for one in json.loads(said)["items"]]
