"""A pool of each cloud, as in the documents' example Shoots, and what the cloud has for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from importlib import import_module
from typing import Any

from clouds.frame.pools import Group, Site
from windowbox.models.gardener.worker import WorkerPool

CLOUDS = ("alicloud", "aws", "azure", "equinixmetal", "gcp", "openstack")
NAMESPACE = "shoot--dev--my-shoot"
SECRET = "gardener-node-agent-worker-xoluy-0a1b2"

Given = dict[str, Any]


def given(cloud: str, *changes: Mapping[str, Any]) -> Given:
    """The pool and the site of a cloud, changed at some paths. None removes a field."""
    found = deepcopy(_EXAMPLES[cloud])
    for path, value in (item for one in changes for item in one.items()):
        *heads, last = (int(part) if part.isdecimal() else part for part in path.split("/"))
        target: Any = found
        for head in heads:
            target = target[head] if isinstance(head, int) else target.setdefault(head, {})
        if value is None:
            del target[last]
        elif callable(value):
            target[last] = value(target[last])
        else:
            target[last] = deepcopy(value)
    return found


def pool_of(found: Given) -> WorkerPool:
    return WorkerPool.model_validate(found["pool"])


def site_of(found: Given) -> Site:
    return Site(
        namespace=NAMESPACE,
        region=found["region"],
        infrastructure=found["infrastructure"],
        shoot=found["shoot"],
        profile={"spec": {"providerConfig": found["profile"]}},
        used_images=found.get("used", []),
        dependencies=found.get("dependencies", []),
        ssh_public_key="ssh-rsa AAAA",
        credentials={"project": "my-project"},
    )


def used_image(cloud: str, found: Given) -> dict[str, Any]:
    image: dict[str, Any] = _machines(cloud).used_image(pool_of(found), site_of(found))
    return image


def groups(cloud: str, found: Given) -> list[Group]:
    raw = found.get("raw") or (
        json.dumps(found["pool"]["providerConfig"]) if "providerConfig" in found["pool"] else ""
    )
    image = used_image(cloud, found)
    return list(_machines(cloud).groups(pool_of(found), site_of(found), raw, image))


def config(cloud: str, **fields: Any) -> dict[str, Any]:
    """A WorkerConfig."""
    return _config(cloud, "WorkerConfig", **fields)


def _machines(cloud: str) -> Any:
    return import_module(f"clouds.{cloud}.machines")


def _config(cloud: str, kind: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": f"{cloud}.provider.extensions.gardener.cloud/v1alpha1", "kind": kind, **fields}


def _profile(cloud: str, image: str, version: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return _config(
        cloud, "CloudProfileConfig", machineImages=[{"name": image, "versions": [version]}], **fields
    )


def _pool(machine_type: str, version: str, image: str = "coreos", **fields: Any) -> dict[str, Any]:
    return {
        "name": "worker-xoluy",
        "machineType": machine_type,
        "machineImage": {"name": image, "version": version},
        "minimum": 2,
        "maximum": 2,
        "maxSurge": 1,
        "maxUnavailable": 0,
        "userDataSecretRef": {"name": "osc", "key": "cloud_config"},
        **fields,
    }


def _shoot(version: str = "1.31.2", pods: str = "100.96.0.0/11") -> dict[str, Any]:
    spec = {
        "kubernetes": {"version": version},
        "networking": {"pods": pods},
        "provider": {"workers": [{"name": "worker-xoluy"}]},
    }
    return {"metadata": {"name": "my-shoot"}, "spec": spec, "status": {}}


_NODES = {"purpose": "nodes"}
_EXAMPLES: dict[str, Given] = {
    "alicloud": {
        "region": "eu-central-1",
        "shoot": _shoot(pods="192.168.0.0/16"),
        "pool": _pool(
            "ecs.sn2ne.large",
            "2023.4.0",
            maximum=4,
            volume={"size": "50Gi", "type": "cloud_efficiency"},
            zones=["eu-central-1a", "eu-central-1b"],
        ),
        "infrastructure": {
            "vpc": {
                "id": "vpc-1",
                "vswitches": [
                    {**_NODES, "id": f"vsw-{letter}", "zone": f"eu-central-1{letter}"} for letter in "abc"
                ],
                "securityGroups": [{**_NODES, "id": "sg-1"}],
            },
        },
        "profile": _profile(
            "alicloud",
            "coreos",
            {
                "version": "2023.4.0",
                "regions": [
                    {"name": "eu-central-1", "id": "coreos_2023_4_0_64_30G_alibase_20190319.vhd"},
                ],
            },
        ),
    },
    "aws": {
        "region": "eu-central-1",
        "shoot": _shoot(),
        "pool": _pool(
            "m5.large",
            "2135.6.0",
            minimum=1,
            maximum=3,
            volume={"size": "50Gi", "type": "gp2"},
            zones=["eu-central-1a", "eu-central-1b"],
        ),
        "infrastructure": {
            "ec2": {"keyName": "my-key"},
            "iam": {"instanceProfiles": [{**_NODES, "name": "my-nodes"}]},
            "vpc": {
                "id": "vpc-1",
                "subnets": [
                    {**_NODES, "id": f"subnet-{letter}", "zone": f"eu-central-1{letter}"} for letter in "abc"
                ],
                "securityGroups": [{**_NODES, "id": "sg-1"}],
            },
        },
        "profile": _profile(
            "aws",
            "coreos",
            {
                "version": "2135.6.0",
                "regions": [{"name": "eu-central-1", "ami": "ami-034fd8c3f4026eb39"}],
            },
        ),
    },
    "azure": {
        "region": "westeurope",
        "shoot": _shoot(),
        "pool": _pool("Standard_D4_v3", "2135.6.0", volume={"size": "50Gi", "type": "Standard_LRS"}),
        "infrastructure": {
            "zoned": False,
            "resourceGroup": {"name": NAMESPACE},
            "networks": {
                "layout": "SingleSubnet",
                "vnet": {"name": NAMESPACE},
                "subnets": [{**_NODES, "name": f"{NAMESPACE}-nodes"}],
            },
        },
        "dependencies": [
            {"poolName": "worker-xoluy", "id": "/vmo/1", "name": "vmo-worker-xoluy-0a1b2c3d"},
        ],
        "profile": _profile(
            "azure",
            "coreos",
            {"version": "2135.6.0", "urn": "CoreOS:CoreOS:Stable:2135.6.0", "acceleratedNetworking": True},
            countUpdateDomains=[{"region": "westeurope", "count": 5}],
            countFaultDomains=[{"region": "westeurope", "count": 3}],
            machineTypes=[{"name": "Standard_D3_v2", "acceleratedNetworking": True}],
        ),
    },
    "equinixmetal": {
        "region": "ny",
        "shoot": _shoot("1.27.2"),
        "pool": _pool(
            "t1.small",
            "0.0.0-stable",
            "flatcar",
            volume={"size": "50Gi", "type": "storage_1"},
            zones=["ewr1", "ny5"],
            providerConfig=config(
                "equinixmetal",
                reservationIDs=["reserved-device1", "reserved-device2"],
                reservedDevicesOnly=True,
            ),
        ),
        "infrastructure": {"sshKeyID": "my-key"},
        "profile": _profile("equinixmetal", "flatcar", {"version": "0.0.0-stable", "id": "flatcar_stable"}),
    },
    "gcp": {
        "region": "europe-west1",
        "shoot": _shoot(),
        "pool": _pool(
            "n1-standard-4",
            "2135.6.0",
            volume={"size": "50Gi", "type": "pd-standard"},
            zones=["europe-west1-b"],
        ),
        "infrastructure": {
            "networks": {
                "subnets": [
                    {"purpose": "internal", "name": "my-internal"},
                    {**_NODES, "name": "my-nodes"},
                ],
            },
            "serviceAccountEmail": "me@my-project.iam.gserviceaccount.com",
        },
        "profile": _profile(
            "gcp",
            "coreos",
            {
                "version": "2135.6.0",
                "image": "projects/coreos-cloud/global/images/coreos-stable-2135-6-0-v20190801",
            },
        ),
    },
    "openstack": {
        "region": "europe",
        "shoot": _shoot(),
        "pool": _pool("medium_4_8", "2135.6.0", zones=["europe-1a"]),
        "infrastructure": {
            "networks": {"id": "network-1", "subnets": [{**_NODES, "id": "subnet-1"}]},
            "node": {"keyName": "my-key"},
            "securityGroups": [{**_NODES, "id": "sg-1", "name": "my-group"}],
        },
        "profile": _profile(
            "openstack",
            "coreos",
            {
                "version": "2135.6.0",
                "image": "coreos-2135.6.0",
                "regions": [
                    {"name": "europe", "id": "1234-amd64", "architecture": "amd64"},
                    {"name": "europe", "id": "1234-arm64", "architecture": "arm64"},
                    {"name": "asia", "id": "5678-amd64"},
                ],
            },
            keystoneURL="https://url-to-keystone/v3/",
        ),
    },
}
