"""deploy/gardener: how windowbox is registered with Gardener."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.support.rules import rule
from tools.chart.admission import APPLICATION, RUNTIME
from tools.chart.generated import CHART
from windowbox.settings.settings import Settings

FOLDER = CHART.parents[1] / "gardener"
PLAIN = (
    *("BackupBucket", "BackupEntry", "Bastion", "ControlPlane", "DNSRecord", "Infrastructure"),
    *("OperatingSystemConfig", "Worker"),
)
BEFORE, BEYOND = "BeforeKubeAPIServer", "AfterKubeAPIServer"
LIFECYCLE = {"reconcile": BEFORE, "delete": BEYOND, "migrate": BEYOND}
EXPOSURE = {"kind": "SelfHostedShootExposure", "type": "local", "continuousEndpointUpdate": True}
SEED = {
    "kind": "Extension", "type": "local-ext-seed", "clusterCompatibility": ["shoot", "seed"],
    "lifecycle": LIFECYCLE, "workerlessSupported": True,
}  # fmt: skip
SHOOT = {"kind": "Extension", "type": "local-ext-shoot", "workerlessSupported": True}
_AFTER = {"reconcile": "AfterWorker"}
AFTER = {"kind": "Extension", "type": "local-ext-shoot-after-worker", "lifecycle": _AFTER}
POD_SECURITY = {"security.gardener.cloud/pod-security-enforce": "privileged"}


def _documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))


def _sorted(resources: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(resources, key=lambda one: (one["kind"], one["type"]))


@rule("WP-30", "P-2")
def test_the_registration_names_exactly_what_the_contract_lists() -> None:
    deployment, registration = _documents("controllerregistration")
    plain = [{"kind": kind, "type": "local"} for kind in PLAIN]
    assert _sorted(registration["spec"]["resources"]) == _sorted([*plain, EXPOSURE, SEED, SHOOT, AFTER])
    assert registration["metadata"]["annotations"] == POD_SECURITY
    refs = [{"name": "provider-local"}]
    assert registration["spec"]["deployment"] == {"policy": "Always", "deploymentRefs": refs}
    assert {deployment["metadata"]["name"], registration["metadata"]["name"]} == {"provider-local"}
    assert deployment["apiVersion"] == "core.gardener.cloud/v1"
    assert deployment["injectGardenKubeconfig"] is True
    assert deployment["helm"]["ociRepository"]["ref"]


@rule("WP-31")
def test_the_operators_extension_names_exactly_what_the_contract_lists() -> None:
    [extension] = _documents("extension")
    plain = [{"kind": kind, "type": "local"} for kind in PLAIN]
    shoot = SHOOT | {"clusterCompatibility": ["shoot", "garden"]}
    assert _sorted(extension["spec"]["resources"]) == _sorted([*plain, EXPOSURE, SEED, shoot, AFTER])
    assert extension["metadata"]["annotations"] == POD_SECURITY
    assert extension["spec"]["deployment"]["extension"]["injectGardenKubeconfig"] is True
    assert "policy" not in extension["spec"]["deployment"]["extension"]
    admission = extension["spec"]["deployment"]["admission"]
    refs = [admission[of]["helm"]["ociRepository"]["ref"] for of in ("runtimeCluster", "virtualCluster")]
    assert [ref.rpartition("/")[2].partition(":")[0] for ref in refs] == [RUNTIME, APPLICATION]


def _values() -> Iterator[dict[str, Any]]:
    yield _documents("controllerregistration")[0]["helm"]["values"]
    deployment = _documents("extension")[0]["spec"]["deployment"]["extension"]
    yield from (deployment["values"], deployment["runtimeClusterValues"])


@pytest.mark.parametrize("values", [*_values()], ids=["seed", "operators-seed", "runtime"])
def test_backups_are_kept_in_a_folder_of_the_node(values: dict[str, Any]) -> None:
    [group] = values["work"]
    assert "backupbucket" in group.get("pools", ["backupbucket"])
    assert Settings.model_validate(group["settings"]).backup.root
    [mount], [volume] = group["extraVolumeMounts"], group["extraVolumes"]
    assert mount == {"name": volume["name"], "mountPath": group["settings"]["backup"]["root"]}
    assert group["podSecurityContext"]["runAsUser"] == 0
    assert {*group["securityContext"]["capabilities"]["add"]} == {"DAC_OVERRIDE", "FOWNER"}
    assert volume["hostPath"]["path"] == group["settings"]["backup"]["mount_path"]


def test_seeds_create_machines_and_their_cluster_serves_no_shoots() -> None:
    *seeds, runtime = (Settings.model_validate(one["settings"]) for one in _values())
    # gardenlet deploys machine-controller-manager in every control plane.
    assert [one.machines.mode for one in seeds] == ["driver", "driver"]
    assert [one.join.enabled for one in (*seeds, runtime)] == [True, True, False]
