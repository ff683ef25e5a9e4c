"""The complete example of a Worker in the contract, and Workers for tests."""

from __future__ import annotations

import base64
import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from clouds.frame.pools import Group
from windowbox.models.gardener import cloudprofile
from windowbox.models.gardener.cloudprofile import CloudProfileSpec
from windowbox.models.objects import Object
from workers.core.lifecycle.shootfacts import ShootFacts
from workers.machines.worker import workerplan
from workers.machines.worker.workerplan import Site

TECHNICAL_ID = "shoot--local--demo"
IMAGE = "registry.local/node:v1.0.0"
_CONTRACT = Path(__file__).parents[3] / "shared" / "contract" / "worker-machine.md"


def example(heading: str) -> list[Any]:
    """The YAML documents of a part of appendix 1 of the contract."""
    if not _CONTRACT.exists():
        pytest.skip("the contract is not beside the repository")
    text = _CONTRACT.read_text()
    part = text[text.index(f"\n### {heading} ") + 1 :]
    blocks = part[: part.index("\n#", 1)].split("```yaml\n")[1:]
    return [found for block in blocks for found in yaml.safe_load_all(block.split("```")[0]) if found]


def profile(*versions: tuple[str, str], **more: Any) -> dict[str, Any]:
    """The spec of a CloudProfile with these versions of the image `local`."""
    listed = [{"version": name, "image": image} for name, image in versions or (("1.0.0", IMAGE),)]
    config = {
        "apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1",
        "kind": "CloudProfileConfig",
        "machineImages": [{"name": "local", "versions": listed}],
    }
    return {"machineTypes": [{"name": "local", "cpu": "1"}], "providerConfig": config, **more}


def parsed(spec: dict[str, Any]) -> CloudProfileSpec:
    return cloudprofile.profile({"cloudProfile": {"spec": spec}})


def pool(name: str = "small", **more: Any) -> dict[str, Any]:
    required = {
        "name": name,
        "machineType": "local",
        "minimum": 1,
        "maximum": 1,
        "maxSurge": 1,
        "maxUnavailable": 0,
        "machineImage": {"name": "local", "version": "1.0.0"},
        "kubernetesVersion": "1.35.4",
        "nodeAgentSecretName": f"gardener-node-agent-{name}",
        "userDataSecretRef": {"name": f"osc-{name}", "key": "cloud_config"},
        "nodeTemplate": {"capacity": {"cpu": "1", "gpu": "0", "memory": "8Gi"}},
    }
    return {name: value for name, value in {**required, **more}.items() if value is not None}


def worker(*pools: dict[str, Any], status: dict[str, Any] | None = None, **metadata: Any) -> Object:
    secret = {"name": "cloudprovider", "namespace": TECHNICAL_ID}
    return Object(
        {
            "metadata": {"name": "demo", "namespace": TECHNICAL_ID, **metadata},
            "spec": {"type": "local", "region": "local", "secretRef": secret, "pools": list(pools)},
            "status": copy.deepcopy(status or {}),
        }
    )


def saved_state(machine_deployments: dict[str, Any]) -> dict[str, Any]:
    """`status.state`, as gardenlet saves the machines of a Worker that migrates."""
    content = json.dumps({"machineDeployments": machine_deployments}).encode()
    return {"state": base64.b64encode(gzip.compress(content)).decode()}


def site(of: Object) -> Site:
    """The facts that all groups of a Worker share."""
    bare = Object({**of.raw, "spec": {**of.spec, "pools": []}})
    return workerplan.plan(bare, ShootFacts(technical_id=TECHNICAL_ID), _cluster(profile())).site


def groups(
    of: Object, known: dict[str, Any] | None = None, *families: str, resources: bool = False
) -> list[Group]:
    """The groups of a Worker's pools."""
    facts = ShootFacts(technical_id=TECHNICAL_ID, ip_families=families or ("IPv4",))
    return list(workerplan.plan(of, facts, _cluster(known or profile()), with_resources=resources).groups)


def _cluster(known: dict[str, Any]) -> dict[str, Any]:
    return {"cloudProfile": {"spec": known}}
