"""windowbox accepts the arguments that Gardener's own chart passes to its program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from commands import processes
from tests.support import helm, installing, servers
from tests.support.helm import of_kind
from tests.support.rules import rule
from windowbox.settings import goflags, imagevector, settings
from windowbox.settings.settings import Settings

pytestmark = pytest.mark.long

NAME = "gardener-extension-provider-local"
PROMETHEUS = {"remoteWriteURLs": ["https://one.example"], "externalLabels": {"a": "b", "c": "d"}}


def taken(folder: Path, name: str = NAME, **values: Any) -> Settings:
    """The settings that `windowbox work` reads from the container's arguments."""
    installing.bring_gardeners_charts(folder)
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    archive = str(folder / "extension-v0.0.0.tgz")
    done = helm.helm("template", "provider-local", archive, "--namespace=extension-x", f"--values={file}")
    assert done.returncode == 0, done.stderr
    manifests = [one for one in yaml.safe_load_all(done.stdout) if one]
    [container] = of_kind(manifests, "Deployment")[name]["spec"]["template"]["spec"]["containers"]
    given = processes.work.make_context("work", list(container["args"])).params
    assert {one["name"] for one in container["env"]} <= {
        "LEADER_ELECTION_NAMESPACE", "WEBHOOK_CONFIG_NAMESPACE", imagevector.VARIABLE,
    }  # fmt: skip
    goflags.pools(given)
    return settings.load(None, goflags.settings(given))


@pytest.fixture(autouse=True)
def _programs() -> None:
    servers.need("helm")


@rule("WP-1", "WP-2")
def test_arguments_for_a_seed(tmp_path: Path) -> None:
    found = taken(
        tmp_path,
        gardener={"version": "v1.150.0", "selfHostedShootCluster": True},
        usablePorts=[18080, 11250, 18081],
        webhooks={"prometheus": PROMETHEUS},
        imageVectorOverwrite={"images": []},
    )
    assert found.work.classes == ("seed", "shoot")
    assert found.webhooks.disabled == ("rollout-speedup",)
    assert found.webhooks.self_hosted
    assert found.webhooks.prometheus.external_labels == {"a": "b", "c": "d"}
    assert found.garden.version == "v1.150.0"
    assert found.heartbeat.namespace == "extension-x"


@rule("WP-1")
def test_arguments_for_the_cluster_of_gardener_operator(tmp_path: Path) -> None:
    runtime = {"runtimeCluster": {"enabled": "true", "priorityClassName": "high"}}
    found = taken(tmp_path, f"{NAME}-runtime", gardener=runtime)
    assert found.work.classes == ("garden",)
    assert found.webhooks.disabled == ("controlplane", "networkpolicy", "shoot")
