"""MachineClasses of six clouds: names, shares of zones, hashes, and what machine drivers read."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies

from tests.unit.clouds.machinepools import (
    CLOUDS,
    NAMESPACE,
    SECRET,
    Given,
    config,
    given,
    groups,
    used_image,
)
from windowbox.errors import Malformed

_NEW_FORM = {"pool/nodeAgentSecretName": SECRET}
_ZONED = {"infrastructure/zoned": True, "pool/zones": ["1", "2"], "dependencies": []}
_OWN_SUBNETS = {
    **_ZONED,
    "infrastructure/networks/layout": "MultipleSubnet",
    "infrastructure/networks/subnets": [
        {"purpose": "nodes", "name": "old-nodes", "zone": "2", "migrated": True},
        {"purpose": "nodes", "name": "nodes-z1", "zone": "1"},
    ],
}
_THREE_ZONES = {
    "alicloud": ["eu-central-1a", "eu-central-1b", "eu-central-1c"],
    "aws": ["eu-central-1a", "eu-central-1b", "eu-central-1c"],
    "azure": ["1", "2", "3"],
    "equinixmetal": ["ewr1", "ny5", "ny7"],
    "gcp": ["europe-west1-b", "europe-west1-c", "europe-west1-d"],
    "openstack": ["europe-1a", "europe-1b", "europe-1c"],
}


def _in_three_zones(cloud: str, **pool: Any) -> Given:
    changes = {f"pool/{name}": value for name, value in pool.items()}
    more = {"infrastructure/zoned": True} if cloud == "azure" else {}
    return given(cloud, {"pool/zones": _THREE_ZONES[cloud]}, more, changes)


@pytest.mark.parametrize(
    ("cloud", "changes", "names"),
    [
        pytest.param(
            "aws",
            {},
            [("worker-xoluy-z1", "worker-xoluy-z1-#"), ("worker-xoluy-z2", "worker-xoluy-z2-#")],
            id="ALL-Z3+aws",
        ),
        pytest.param("gcp", {}, [("worker-xoluy-z1", "worker-xoluy-z1-#")], id="ALL-Z3+gcp"),
        pytest.param("openstack", {}, [("worker-xoluy-z1", "worker-xoluy-z1-#")], id="ALL-Z3+openstack"),
        pytest.param("azure", {}, [("worker-xoluy", "worker-xoluy-#")], id="ALL-Z3+azure"),
        pytest.param(
            "azure",
            {**_ZONED, "pool/zones": ["3", "1"]},
            [("worker-xoluy-z3", "worker-xoluy-#-z3"), ("worker-xoluy-z1", "worker-xoluy-#-z1")],
            id="ALL-Z3+azure-zoned",
        ),
        pytest.param(
            "alicloud",
            {},
            [
                ("worker-xoluy-eu-central-1a", "worker-xoluy-eu-central-1a-#"),
                ("worker-xoluy-eu-central-1b", "worker-xoluy-eu-central-1b-#"),
            ],
            id="ALL-Z3+alicloud",
        ),
        pytest.param("equinixmetal", {}, [("worker-xoluy", "worker-xoluy-#")], id="ALL-Z3+equinixmetal"),
    ],
)
def test_deployments_and_classes_have_the_names_of_the_cloud(
    cloud: str, changes: Given, names: list[tuple[str, str]]
) -> None:
    found = [
        (one.name, re.sub("-[0-9a-f]{5}(?=-z|$)", "-#", one.class_name))
        for one in groups(cloud, given(cloud, changes))
    ]

    assert found == [(f"{NAMESPACE}-{name}", f"{NAMESPACE}-{class_name}") for name, class_name in names]


@pytest.mark.parametrize("cloud", [pytest.param(one, id=f"ALL-Z2+{one}") for one in CLOUDS])
@drawn(numbers=strategies.lists(strategies.integers(0, 100), min_size=4, max_size=4))
def test_zones_share_the_machines_of_a_pool(cloud: str, numbers: list[int]) -> None:
    names = ("minimum", "maximum", "maxSurge", "maxUnavailable")
    wanted = dict(zip(names, numbers, strict=True))
    found = groups(cloud, _in_three_zones(cloud, **wanted))

    shares = {
        "minimum": [one.minimum for one in found],
        "maximum": [one.maximum for one in found],
        "maxSurge": [int(one.max_surge) for one in found],
        "maxUnavailable": [int(one.max_unavailable) for one in found],
    }
    assert {name: sum(each) for name, each in shares.items()} == wanted
    assert all(a - b in (0, 1) for each in shares.values() for a, b in pairwise(each))


@pytest.mark.parametrize(
    ("cloud", "maximum", "shares"),
    [
        pytest.param("aws", 6, ["25%", "25%", "25%"], id="ALL-Z2+aws-even"),
        pytest.param("aws", 4, ["38%", "19%", "19%"], id="ALL-Z2+aws-uneven"),
        pytest.param("azure", 4, ["38%", "19%", "19%"], id="ALL-Z2+azure-uneven"),
        pytest.param("alicloud", 5, ["30%", "30%", "15%"], id="ALL-Z2+alicloud-uneven"),
        pytest.param("gcp", 2, ["38%", "38%", "0%"], id="ALL-Z2+gcp-less-than-zones"),
        pytest.param("openstack", 4, ["38%", "19%", "19%"], id="ALL-Z2+openstack-uneven"),
        pytest.param("equinixmetal", 4, ["25%"], id="ALL-Z2+equinixmetal-one-group"),
    ],
)
def test_a_percentage_grows_in_the_zones_with_the_remainder(
    cloud: str, maximum: int, shares: list[str]
) -> None:
    found = groups(cloud, _in_three_zones(cloud, maximum=maximum, maxSurge="25%"))

    assert [one.max_surge for one in found] == shares


@pytest.mark.parametrize(
    ("cloud", "changes", "suffix"),
    [
        # printf %s … | sha256sum of each part, then of all of them.
        pytest.param("openstack", {}, "a96e3", id="ALL-Z4+openstack-old"),
        pytest.param("openstack", _NEW_FORM, "2eed4", id="ALL-Z4+openstack-new"),
        pytest.param(
            "azure",
            {
                "shoot/spec/provider/workers/0/cri": {"name": "containerd"},
                "shoot/spec/systemComponents/nodeLocalDNS/enabled": True,
                "shoot/status/credentials/rotation": {
                    "certificateAuthorities": {"lastInitiationTime": "2026-01-02T03:04:05Z"},
                    "serviceAccountKey": {"lastInitiationTime": "2026-02-03T05:05:06+01:00"},
                },
            },
            "3cb8a",
            id="ALL-Z4+azure-old",
        ),
        pytest.param("azure", _NEW_FORM, "e7c92", id="ALL-Z4+azure-new"),
        pytest.param(
            "alicloud",
            {
                **_NEW_FORM,
                "pool/volume/encrypted": True,
                "pool/dataVolumes": [
                    {"name": "a", "size": "20Gi", "type": "cloud_essd", "encrypted": False},
                ],
                "infrastructure/machineImages": [
                    {"name": "coreos", "version": "2023.4.0", "id": "m-1", "encrypted": True},
                ],
            },
            "814ac",
            id="ALL-Z4+alicloud-new",
        ),
    ],
)
def test_the_hash_is_that_of_the_original(cloud: str, changes: Given, suffix: str) -> None:
    (one, *_) = groups(cloud, given(cloud, changes))

    assert one.class_name.endswith(f"-{suffix}")


_AWS_RICH = {
    "pool/dataVolumes": [
        {"name": "b", "size": "20Gi", "type": "io1", "encrypted": True},
        {"name": "a", "size": "10Gi", "type": "gp2"},
    ],
    "pool/providerConfig": config(
        "aws",
        nodeTemplate={"capacity": {"cpu": "2"}},
        volume={"iops": 100},
        dataVolumes=[{"name": "b", "iops": 200, "snapshotID": "snap-1"}],
        cpuOptions={"coreCount": 1, "threadsPerCore": 2},
        iamInstanceProfile={"name": "own"},
        instanceMetadataOptions={"httpTokens": "required", "httpPutResponseHopLimit": 2},
    ),
}
_AZURE_RICH = {
    "pool/machineType": "Standard_D3_v2",
    "pool/labels": {"node.kubernetes.io/Role a": "x"},
    "pool/dataVolumes": [
        {"name": "b", "size": "20Gi", "type": "Premium_LRS"},
        {"name": "a", "size": "10Gi"},
    ],
    "infrastructure/identity": {"id": "/identity/1", "clientID": "c", "acrAccess": True},
    "pool/providerConfig": config(
        "azure",
        nodeTemplate={"capacity": {"cpu": "2", "gpu": "0", "memory": "4Gi"}},
        diagnosticsProfile={"enabled": True, "storageURI": "https://one"},
        dataVolumes=[{"name": "b", "imageRef": {"urn": "a:b:c:d"}}],
    ),
}
_GCP_RICH = {
    "pool/labels": {"9/Tier.x": "Front End", "123": "left-out"},
    "pool/dataVolumes": [
        {"name": "scratch", "size": "375Gi", "type": "SCRATCH"},
        {"name": "fast", "size": "20Gi", "type": "hyperdisk-balanced"},
    ],
    "pool/providerConfig": config(
        "gcp",
        gpu={"acceleratorType": "nvidia-tesla-t4", "count": 2},
        minCpuPlatform="Intel Skylake",
        volume={"interface": "NVME", "encryption": {"kmsKeyName": "key", "kmsKeyServiceAccount": "keeper"}},
        dataVolumes=[
            {
                "name": "fast",
                "sourceImage": "https://image",
                "provisionedIops": 3000,
                "provisionedThroughput": 150,
            },
        ],
        serviceAccount={"email": "own@my-project", "scopes": ["z", "b"]},
        nodeTemplate={"capacity": {"cpu": "2"}},
    ),
}
_OPENSTACK_RICH = {
    "pool/volume": {"size": "50Gi", "type": "ssd"},
    "pool/labels": {"node/role": "x"},
    "pool/dataVolumes": [{"name": "a", "size": "10Gi", "type": "ssd"}],
    "dependencies": [{"poolName": "worker-xoluy", "id": "group-1", "name": "my-group"}],
    "pool/providerConfig": config(
        "openstack",
        serverGroup={"policy": "soft-anti-affinity"},
        machineLabels=[
            {"name": "rolls", "value": "1", "triggerRollingOnUpdate": True},
            {"name": "stays/here", "value": "1"},
            {"name": "also", "value": "1", "triggerRollingOnUpdate": True},
        ],
        nodeTemplate={"capacity": {"cpu": "2", "gpu": "0", "memory": "4Gi"}},
    ),
}
_ALICLOUD_RICH = {
    "pool/labels": {"tier": "front", "empty": ""},
    "pool/volume/encrypted": True,
    "pool/dataVolumes": [
        {"name": "b", "size": "20Gi", "type": "cloud_essd", "encrypted": True},
        {"name": "a", "size": "30Gi"},
    ],
    "infrastructure/machineImages": [
        {"name": "coreos", "version": "2023.4.0", "id": "m-plain", "encrypted": False},
        {"name": "coreos", "version": "2023.4.0", "id": "m-encrypted", "encrypted": True},
        {"name": "coreos", "version": "2024.1.0", "id": "m-next", "encrypted": True},
        {"name": "coreos", "version": "2024.1.0", "id": "m-next-plain"},
    ],
}
_RICH: dict[str, Given] = {
    "alicloud": _ALICLOUD_RICH,
    "aws": _AWS_RICH,
    "azure": _AZURE_RICH,
    "equinixmetal": {"pool/dataVolumes": [{"name": "a", "size": "10Gi"}]},
    "gcp": _GCP_RICH,
    "openstack": _OPENSTACK_RICH,
}
_ROTATION = "shoot/status/credentials/rotation"
_FOR_ALL: list[tuple[str, Given, bool, bool]] = [
    # What changes, and whether it replaces machines, in the old form of the hash and in the new one.
    ("kubernetes-minor", {"shoot/spec/kubernetes/version": "1.32.0"}, True, False),
    ("kubernetes-minor-of-pool", {"pool/kubernetesVersion": "1.30.1"}, True, False),
    ("node-agent-secret", {"pool/nodeAgentSecretName": f"{SECRET}0"}, True, True),
    ("machine-type", {"pool/machineType": "other"}, True, False),
    ("volume-size", {"pool/volume/size": "60Gi"}, True, False),
    ("volume-type", {"pool/volume/type": "other"}, True, False),
    ("container-runtime", {"shoot/spec/provider/workers/0/cri": {"name": "containerd"}}, True, False),
    (
        "certificates",
        {f"{_ROTATION}/certificateAuthorities/lastInitiationTime": "2026-01-02T03:04:05Z"},
        True,
        False,
    ),
    (
        "service-account-key",
        {f"{_ROTATION}/serviceAccountKey/lastInitiationTime": "2026-01-02T03:04:05Z"},
        True,
        False,
    ),
    ("node-local-dns", {"shoot/spec/systemComponents/nodeLocalDNS/enabled": True}, True, False),
    ("numbers", {"pool/minimum": 5, "pool/maximum": 9, "pool/maxSurge": "50%"}, False, False),
    ("labels", {"pool/labels": {"new": "label"}}, False, False),
    ("taints", {"pool/taints": [{"key": "a", "effect": "NoSchedule"}]}, False, False),
    ("annotations", {"pool/annotations": {"new": "annotation"}}, False, False),
    ("kubelet", {"pool/kubeletConfig": {"maxPods": 50}}, False, False),
    ("user-data", {"pool/userDataSecretRef/name": "other"}, False, False),
]
_CONFIG = "pool/providerConfig"
_VOLUMES = "pool/dataVolumes"
_FOR_ONE: list[tuple[str, str, Given, bool, bool]] = [
    ("AWS-W7", "root-encryption", {"pool/volume/encrypted": False}, True, True),
    ("AWS-W7", "data-size", {f"{_VOLUMES}/0/size": "30Gi"}, True, True),
    ("AWS-W7", "data-type", {f"{_VOLUMES}/0/type": "gp3"}, True, True),
    ("AWS-W7", "data-encryption", {f"{_VOLUMES}/0/encrypted": False}, True, True),
    ("AWS-W7", "data-name", {f"{_VOLUMES}/1/name": "c"}, False, False),
    ("AWS-W7", "cpu-options", {f"{_CONFIG}/cpuOptions/threadsPerCore": 1}, True, True),
    ("AWS-W7", "instance-profile", {f"{_CONFIG}/iamInstanceProfile": {"arn": "arn"}}, True, True),
    ("AWS-W7", "tokens", {f"{_CONFIG}/instanceMetadataOptions/httpTokens": "optional"}, True, True),
    ("AWS-W7", "iops", {f"{_CONFIG}/volume/iops": 300}, True, False),
    ("AWS-W7", "data-throughput", {f"{_CONFIG}/dataVolumes/0/throughput": 300}, True, False),
    ("AWS-W7", "snapshot", {f"{_CONFIG}/dataVolumes/0/snapshotID": "snap-2"}, True, False),
    ("AWS-W7", "node-template", {f"{_CONFIG}/nodeTemplate/capacity/cpu": "3"}, True, False),
    ("AWS-W7", "zone-added", {"pool/zones/1": "eu-central-1c"}, False, False),
    ("AWS-W7", "config-spelled-otherwise", {"raw": "{ }"}, True, False),
    ("AZU-W7", "data-size", {f"{_VOLUMES}/0/size": "30Gi"}, True, True),
    ("AZU-W7", "data-type", {f"{_VOLUMES}/0/type": "Standard_LRS"}, True, True),
    ("AZU-W7", "data-order", {_VOLUMES: lambda one: one[::-1]}, False, False),
    ("AZU-W7", "identity", {"infrastructure/identity/id": "/identity/2"}, True, True),
    ("AZU-W7", "identity-removed", {"infrastructure/identity": None}, True, True),
    ("AZU-W7", "identity-client", {"infrastructure/identity/clientID": "d"}, False, False),
    ("AZU-W7", "scale-set", {"dependencies/0/name": "vmo-worker-xoluy-other"}, True, True),
    ("AZU-W7", "scale-set-id", {"dependencies/0/id": "/vmo/2"}, False, False),
    ("AZU-W7", "single-subnet", {"infrastructure/networks/subnets/0/name": "other"}, False, False),
    ("AZU-W7", "diagnostics-uri", {f"{_CONFIG}/diagnosticsProfile/storageURI": "https://two"}, True, True),
    ("AZU-W7", "diagnostics-off", {f"{_CONFIG}/diagnosticsProfile/enabled": False}, True, False),
    ("AZU-W7", "image-of-data", {f"{_CONFIG}/dataVolumes/0/imageRef/urn": "a:b:c:e"}, True, False),
    ("AZU-W7", "node-template", {f"{_CONFIG}/nodeTemplate/capacity/cpu": "3"}, True, False),
    ("GCP-W14", "data-name", {f"{_VOLUMES}/0/name": "other"}, False, True),
    ("GCP-W14", "data-size", {f"{_VOLUMES}/0/size": "750Gi"}, False, True),
    ("GCP-W14", "data-type", {f"{_VOLUMES}/1/type": "hyperdisk-extreme"}, False, True),
    ("GCP-W14", "data-encryption", {f"{_VOLUMES}/0/encrypted": True}, False, True),
    ("GCP-W14", "data-encryption-off", {f"{_VOLUMES}/0/encrypted": False}, False, False),
    ("GCP-W14", "data-order", {_VOLUMES: lambda one: one[::-1]}, False, False),
    ("GCP-W14", "source-image", {f"{_CONFIG}/dataVolumes/0/sourceImage": "https://other"}, True, True),
    ("GCP-W14", "iops", {f"{_CONFIG}/dataVolumes/0/provisionedIops": 4000}, True, True),
    ("GCP-W14", "throughput", {f"{_CONFIG}/dataVolumes/0/provisionedThroughput": 200}, True, True),
    ("GCP-W14", "cpu-platform", {f"{_CONFIG}/minCpuPlatform": "Intel Haswell"}, True, True),
    ("GCP-W14", "gpu-count", {f"{_CONFIG}/gpu/count": 4}, True, True),
    ("GCP-W14", "gpu-type", {f"{_CONFIG}/gpu/acceleratorType": "nvidia-l4"}, True, True),
    ("GCP-W14", "account", {f"{_CONFIG}/serviceAccount/email": "other@my-project"}, True, True),
    ("GCP-W14", "scopes", {f"{_CONFIG}/serviceAccount/scopes": ["z"]}, True, True),
    ("GCP-W14", "scopes-order", {f"{_CONFIG}/serviceAccount/scopes": ["b", "z"]}, True, False),
    ("GCP-W14", "key", {f"{_CONFIG}/volume/encryption/kmsKeyName": "other"}, True, True),
    ("GCP-W14", "keeper-of-key", {f"{_CONFIG}/volume/encryption/kmsKeyServiceAccount": "me"}, True, True),
    ("GCP-W14", "interface", {f"{_CONFIG}/volume/interface": "SCSI"}, True, True),
    ("GCP-W14", "node-template", {f"{_CONFIG}/nodeTemplate/capacity/cpu": "3"}, True, False),
    ("OST-W8", "server-group", {"dependencies/0/id": "group-2"}, True, True),
    ("OST-W8", "server-group-name", {"dependencies/0/name": "other"}, False, False),
    ("OST-W8", "server-group-gone", {f"{_CONFIG}/serverGroup": None}, True, True),
    ("OST-W8", "flagged-label", {f"{_CONFIG}/machineLabels/0/value": "2"}, True, True),
    ("OST-W8", "other-label", {f"{_CONFIG}/machineLabels/1/value": "2"}, False, False),
    (
        "OST-W8",
        "label-flagged",
        {f"{_CONFIG}/machineLabels/1/triggerRollingOnUpdate": True},
        True,
        True,
    ),
    ("OST-W8", "labels-order", {f"{_CONFIG}/machineLabels": lambda one: one[::-1]}, False, False),
    ("OST-W8", "node-template", {f"{_CONFIG}/nodeTemplate/capacity/cpu": "3"}, False, False),
    ("OST-W8", "data-volume", {f"{_VOLUMES}/0/size": "30Gi"}, False, False),
    ("ALI-W7", "root-encryption", {"pool/volume/encrypted": False}, True, True),
    ("ALI-W7", "data-size", {f"{_VOLUMES}/0/size": "30Gi"}, True, True),
    ("ALI-W7", "data-type", {f"{_VOLUMES}/0/type": "cloud_ssd"}, True, True),
    ("ALI-W7", "data-encryption", {f"{_VOLUMES}/0/encrypted": False}, True, True),
    ("ALI-W7", "data-encryption-written-out", {f"{_VOLUMES}/1/encrypted": False}, True, True),
    ("ALI-W7", "data-name", {f"{_VOLUMES}/0/name": "c"}, False, False),
    ("ALI-W7", "data-order", {_VOLUMES: lambda one: one[::-1]}, True, True),
    ("EQX-W1", "reservations", {f"{_CONFIG}/reservationIDs": ["reserved-device1"]}, True, False),
    ("EQX-W1", "reserved-only", {f"{_CONFIG}/reservedDevicesOnly": False}, True, False),
    ("EQX-W2", "zones", {"pool/zones": ["ny7"]}, False, False),
    ("EQX-W4", "data-volume", {f"{_VOLUMES}/0/size": "30Gi"}, False, False),
]
_CLOUD_OF = {
    "ALI": "alicloud",
    "AWS": "aws",
    "AZU": "azure",
    "EQX": "equinixmetal",
    "GCP": "gcp",
    "OST": "openstack",
}


def _rolls(cloud: str, changes: Given, *base: Given) -> bool:
    """Whether a group that is there before and after gets another class."""
    before, after = (
        {one.name: one.class_name for one in groups(cloud, given(cloud, _RICH[cloud], *each))}
        for each in (base, (*base, changes))
    )
    common = before.keys() & after.keys()
    assert common
    return any(before[name] != after[name] for name in common)


@pytest.mark.parametrize(
    ("cloud", "changes", "old", "new"),
    [
        pytest.param(cloud, changes, old, new, id=f"ALL-Z4+{cloud}-{what}")
        for cloud in CLOUDS
        for what, changes, old, new in _FOR_ALL
    ]
    + [
        pytest.param(_CLOUD_OF[rule[:3]], changes, old, new, id=f"{rule}+{what}")
        for rule, what, changes, old, new in _FOR_ONE
    ],
)
def test_machines_are_replaced_when_the_original_replaces_them(
    cloud: str, changes: Given, old: bool, new: bool
) -> None:
    assert (_rolls(cloud, changes), _rolls(cloud, changes, _NEW_FORM)) == (old, new)


@pytest.mark.parametrize("cloud", [pytest.param(one, id=f"ALL-Z4+{one}-image") for one in CLOUDS])
def test_another_image_replaces_machines_in_the_old_form_only(cloud: str) -> None:
    """In the new one the name of the node agent Secret changes with it."""
    version, path = "2024.1.0", "profile/machineImages/0/versions/0/version"
    changes = {path: version, "pool/machineImage/version": version}

    assert (_rolls(cloud, changes), _rolls(cloud, changes, _NEW_FORM)) == (True, False)


@pytest.mark.parametrize(
    ("changes", "rolled"),
    [
        pytest.param({"infrastructure/networks/subnets/1/name": "other"}, ["1"], id="AZU-W7+own-subnet"),
        pytest.param({"infrastructure/networks/subnets/0/name": "other"}, [], id="AZU-W7+migrated-subnet"),
    ],
)
def test_a_changed_subnet_replaces_the_machines_of_its_zone(changes: Given, rolled: list[str]) -> None:
    before, after = (groups("azure", given("azure", _OWN_SUBNETS, each)) for each in ({}, changes))

    pairs = zip(before, after, strict=True)
    assert [old.zone for old, new in pairs if old.class_name != new.class_name] == rolled


def test_a_subnet_for_each_zone_replaces_the_machines_of_all_zones_but_the_migrated_one() -> None:
    """AZU-U5."""
    before, after = (groups("azure", given("azure", each)) for each in (_ZONED, _OWN_SUBNETS))

    pairs = zip(before, after, strict=True)
    assert [old.zone for old, new in pairs if old.class_name != new.class_name] == ["1"]


@pytest.mark.parametrize(
    ("value", "rolls"),
    [pytest.param("True", True, id="OST-W8+annotated"), pytest.param("no", False, id="OST-W8+annotated-no")],
)
def test_an_annotation_makes_the_config_count(value: str, rolls: bool) -> None:
    name = "openstack.provider.extensions.gardener.cloud/worker-preserve-hash"
    base = {"shoot/metadata/annotations": {name: value}}
    changes = {f"{_CONFIG}/nodeTemplate/capacity/cpu": "3"}

    assert _rolls("openstack", changes, base) == rolls
    assert not _rolls("openstack", changes, base, _NEW_FORM)


_TAGS_WITH_DASH = {f"kubernetes.io-cluster-{NAMESPACE}": "1", "kubernetes.io-role-node": "1"}
_GCP_LABELS = {"name": "my-shoot", "k8s-cluster-name": NAMESPACE}
_AZURE_IMAGE = {"urn": "CoreOS:CoreOS:Stable:2135.6.0"}
_AZURE_DISK = {
    "caching": "None",
    "diskSizeGB": 50,
    "managedDisk": {"storageAccountType": "Standard_LRS"},
    "createOption": "FromImage",
}
_EXAMPLE_SPECS: dict[str, dict[str, Any]] = {
    "alicloud": {
        "imageID": "coreos_2023_4_0_64_30G_alibase_20190319.vhd",
        "instanceType": "ecs.sn2ne.large",
        "region": "eu-central-1",
        "zoneID": "eu-central-1a",
        "securityGroupID": "sg-1",
        "vSwitchID": "vsw-a",
        "systemDisk": {"category": "cloud_efficiency", "size": 50},
        "instanceChargeType": "PostPaid",
        "internetChargeType": "PayByTraffic",
        "internetMaxBandwidthIn": 5,
        "spotStrategy": "NoSpot",
        "tags": {
            f"kubernetes.io/cluster/{NAMESPACE}": "1",
            f"kubernetes.io/role/worker/{NAMESPACE}": "1",
        },
    },
    "aws": {
        "ami": "ami-034fd8c3f4026eb39",
        "region": "eu-central-1",
        "machineType": "m5.large",
        "srcAndDstChecksEnabled": False,
        "iam": {"name": "my-nodes"},
        "keyName": "my-key",
        "networkInterfaces": [{"subnetID": "subnet-a", "securityGroupIDs": ["sg-1"]}],
        "tags": {f"kubernetes.io/cluster/{NAMESPACE}": "1", "kubernetes.io/role/node": "1"},
        "blockDevices": [
            {
                "ebs": {
                    "volumeSize": 50,
                    "volumeType": "gp2",
                    "encrypted": True,
                    "deleteOnTermination": True,
                },
            },
        ],
        "instanceMetadataOptions": {"httpPutResponseHopLimit": 2, "httpTokens": "required"},
    },
    "azure": {
        "location": "westeurope",
        "resourceGroup": NAMESPACE,
        "cloudConfiguration": {"name": "AzurePublic"},
        "subnetInfo": {"vnetName": NAMESPACE, "subnetName": f"{NAMESPACE}-nodes"},
        "properties": {
            "machineSet": {"id": "/vmo/1", "kind": "vmo"},
            "hardwareProfile": {"vmSize": "Standard_D4_v3"},
            "osProfile": {
                "adminUsername": "core",
                "linuxConfiguration": {
                    "disablePasswordAuthentication": True,
                    "ssh": {
                        "publicKeys": {
                            "path": "/home/core/.ssh/authorized_keys",
                            "keyData": "ssh-rsa AAAA",
                        },
                    },
                },
            },
            "storageProfile": {"imageReference": _AZURE_IMAGE, "osDisk": _AZURE_DISK},
        },
        "tags": {"Name": NAMESPACE, **_TAGS_WITH_DASH},
    },
    "equinixmetal": {
        "projectID": "my-project",
        "OS": "flatcar_stable",
        "billingCycle": "hourly",
        "machineType": "t1.small",
        "metro": "ny",
        "facilities": ["ewr1", "ny5"],
        "sshKeys": ["my-key"],
        "tags": [f"kubernetes.io/cluster/{NAMESPACE}", "kubernetes.io/role/node"],
        "reservationIDs": ["reserved-device1", "reserved-device2"],
        "reservedDevicesOnly": True,
    },
    "gcp": {
        "region": "europe-west1",
        "zone": "europe-west1-b",
        "canIpForward": True,
        "deletionProtection": False,
        "description": "Machine of Shoot my-shoot",
        "disks": [
            {
                "autoDelete": True,
                "boot": True,
                "sizeGb": 50,
                "type": "pd-standard",
                "image": "projects/coreos-cloud/global/images/coreos-stable-2135-6-0-v20190801",
                "labels": _GCP_LABELS,
            },
        ],
        "labels": _GCP_LABELS,
        "machineType": "n1-standard-4",
        "metadata": [{"key": "block-project-ssh-keys", "value": "TRUE"}],
        "networkInterfaces": [{"subnetwork": "my-nodes", "disableExternalIP": True}],
        "scheduling": {"automaticRestart": True, "onHostMaintenance": "MIGRATE", "preemptible": False},
        "serviceAccounts": [
            {
                "email": "me@my-project.iam.gserviceaccount.com",
                "scopes": ["https://www.googleapis.com/auth/compute"],
            },
        ],
        "tags": [NAMESPACE, f"kubernetes-io-cluster-{NAMESPACE}", "kubernetes-io-role-node"],
    },
    "openstack": {
        "apiVersion": "openstack.machine.gardener.cloud/v1alpha1",
        "kind": "MachineProviderConfig",
        "spec": {
            "region": "europe",
            "availabilityZone": "europe-1a",
            "flavorName": "medium_4_8",
            "keyName": "my-key",
            "imageID": "1234-amd64",
            "networkID": "network-1",
            "subnetID": "subnet-1",
            "podNetworkCIDRs": ["100.96.0.0/11"],
            "securityGroups": ["my-group"],
            "tags": _TAGS_WITH_DASH,
        },
    },
}


@pytest.mark.parametrize("cloud", [pytest.param(one, id=f"ALL-Z8+{one}") for one in CLOUDS])
def test_the_documents_example_gives_what_the_driver_reads(cloud: str) -> None:
    (one, *_) = groups(cloud, given(cloud))

    assert one.provider_spec == _EXAMPLE_SPECS[cloud]


_FAST = {"pool/machineType": "Standard_D3_v2"}
_OLD_CLUSTER = {
    "dependencies": [],
    "infrastructure/availabilitySets": [{"purpose": "nodes", "id": "/avset/1", "name": "avset"}],
}
_KEY = {"kmsKeyName": "key", "kmsKeyServiceAccount": "keeper"}
_VERSION = "profile/machineImages/0/versions/0"


@pytest.mark.parametrize(
    ("cloud", "changes", "path", "value"),
    [
        pytest.param(
            "alicloud",
            _ALICLOUD_RICH,
            "dataDisks",
            [
                {
                    "name": "b",
                    "size": 20,
                    "category": "cloud_essd",
                    "encrypted": True,
                    "deleteWithInstance": True,
                    "description": f"{NAMESPACE}-datavol-b",
                },
                {
                    "name": "a",
                    "size": 30,
                    "deleteWithInstance": True,
                    "description": f"{NAMESPACE}-datavol-a",
                },
            ],
            id="ALI-W2+data-disks",
        ),
        pytest.param("alicloud", _ALICLOUD_RICH, "imageID", "m-encrypted", id="ALI-W4+encrypted-image"),
        pytest.param(
            "alicloud",
            _ALICLOUD_RICH,
            "tags",
            {
                f"kubernetes.io/cluster/{NAMESPACE}": "1",
                f"kubernetes.io/role/worker/{NAMESPACE}": "1",
                "tier": "front",
            },
            id="ALL-Z8+alicloud-no-empty-tag",
        ),
        pytest.param("aws", _AWS_RICH, "cpuOptions", {"coreCount": 1, "threadsPerCore": 2}, id="AWS-W7+cpu"),
        pytest.param("aws", _AWS_RICH, "iam", {"name": "own"}, id="AWS-W7+profile"),
        pytest.param(
            "aws",
            _AWS_RICH,
            "blockDevices/2",
            {
                "deviceName": "/dev/sdg",
                "ebs": {
                    "volumeSize": 20,
                    "volumeType": "io1",
                    "iops": 200,
                    "snapshotID": "snap-1",
                    "encrypted": True,
                    "deleteOnTermination": True,
                },
            },
            id="AWS-W2+by-name",
        ),
        pytest.param(
            "aws",
            {"shoot/spec/networking/ipFamilies": ["IPv4", "IPv6"]},
            "networkInterfaces/0/ipv6PrefixCount",
            1,
            id="ALL-Z8+aws-dual-stack",
        ),
        pytest.param("azure", _ZONED, "properties/zone", 1, id="AZU-W4+zone"),
        pytest.param("azure", _ZONED, "properties/machineSet", None, id="AZU-W5+zoned-without-set"),
        pytest.param(
            "azure",
            _OLD_CLUSTER,
            "properties/machineSet",
            {"id": "/avset/1", "kind": "availabilityset"},
            id="AZU-W5+availability-set",
        ),
        pytest.param(
            "azure",
            {
                "infrastructure/availabilitySets": [{"purpose": "nodes", "id": "/avset/1", "name": "avset"}],
                "infrastructure/migratingToVMO": True,
            },
            "properties/machineSet",
            {"id": "/vmo/1", "kind": "vmo"},
            id="AZU-W5+migrating",
        ),
        pytest.param(
            "azure", {**_OWN_SUBNETS}, "subnetInfo/subnetName", "nodes-z1", id="AZU-U5+subnet-of-zone"
        ),
        pytest.param(
            "azure",
            {"infrastructure/networks/vnet": {"name": "own", "resourceGroup": "group"}},
            "subnetInfo",
            {"vnetName": "own", "vnetResourceGroup": "group", "subnetName": f"{NAMESPACE}-nodes"},
            id="AZU-I4+own-vnet",
        ),
        pytest.param(
            "azure",
            {**_ZONED, **_FAST},
            "properties/networkProfile",
            {"acceleratedNetworking": True},
            id="AZU-W6+zoned",
        ),
        pytest.param(
            "azure", _FAST, "properties/networkProfile", {"acceleratedNetworking": True}, id="AZU-W6+vmo"
        ),
        pytest.param(
            "azure",
            {**_FAST, **_OLD_CLUSTER},
            "properties/networkProfile",
            None,
            id="AZU-W6+availability-set",
        ),
        pytest.param(
            "azure",
            {**_FAST, f"{_VERSION}/acceleratedNetworking": False},
            "properties/networkProfile",
            None,
            id="AZU-W6+slow-image",
        ),
        pytest.param("azure", _ZONED, "properties/networkProfile", None, id="AZU-W6+slow-type"),
        pytest.param("azure", _AZURE_RICH, "properties/identityID", "/identity/1", id="AZU-U7+identity"),
        pytest.param(
            "azure",
            _AZURE_RICH,
            "properties/diagnosticsProfile",
            {"enabled": True, "storageURI": "https://one"},
            id="AZU-W7+diagnostics",
        ),
        pytest.param(
            "azure",
            _AZURE_RICH,
            "properties/storageProfile/dataDisks",
            [
                {"name": "a", "lun": 0, "diskSizeGB": 10, "caching": "None"},
                {
                    "name": "b",
                    "lun": 1,
                    "diskSizeGB": 20,
                    "caching": "None",
                    "storageAccountType": "Premium_LRS",
                    "imageRef": {"urn": "a:b:c:d"},
                },
            ],
            id="AZU-W3+data-disks",
        ),
        pytest.param(
            "azure",
            _AZURE_RICH,
            "tags",
            {"Name": NAMESPACE, **_TAGS_WITH_DASH, "node.kubernetes.io_role_a": "x"},
            id="ALL-Z8+azure-tags",
        ),
        pytest.param(
            "azure",
            {"pool/machineType": "Standard_DC4as_v5"},
            "properties/securityProfile",
            {"securityType": "ConfidentialVM", "uefiSettings": {"vtpmEnabled": True}},
            id="AZU-W8+confidential",
        ),
        pytest.param(
            "azure",
            {"pool/machineType": "Standard_EC4as_v5"},
            "properties/storageProfile/osDisk/managedDisk",
            {
                "storageAccountType": "Standard_LRS",
                "securityProfile": {"securityEncryptionType": "VMGuestStateOnly"},
            },
            id="AZU-W8+disk",
        ),
        pytest.param(
            "azure",
            {f"{_VERSION}/skipMarketplaceAgreement": True},
            "properties/storageProfile/imageReference",
            {**_AZURE_IMAGE, "skipMarketplaceAgreement": True},
            id="ALL-Z6+azure-agreement",
        ),
        pytest.param(
            "azure",
            {
                _VERSION: {
                    "version": "2135.6.0",
                    "sharedGalleryImageID": "/SharedGalleries/one",
                    "skipMarketplaceAgreement": True,
                },
            },
            "properties/storageProfile/imageReference",
            {"sharedGalleryImageID": "/SharedGalleries/one"},
            id="ALL-Z6+azure-gallery",
        ),
        pytest.param(
            "azure",
            {"region": "usgovvirginia"},
            "cloudConfiguration/name",
            "AzureGovernment",
            id="ALL-Z8+gov",
        ),
        pytest.param(
            "azure", {"region": "chinaeast"}, "cloudConfiguration/name", "AzureChina", id="ALL-Z8+cn"
        ),
        pytest.param(
            "equinixmetal",
            {_VERSION: {"version": "0.0.0-stable", "ipxeScriptUrl": "https://script"}},
            "ipxeScriptUrl",
            "https://script",
            id="EQX-P2+script",
        ),
        pytest.param("equinixmetal", {"pool/zones": None}, "facilities", None, id="EQX-W2+any-facility"),
        pytest.param(
            "equinixmetal",
            {f"{_CONFIG}/reservedDevicesOnly": False},
            "reservedDevicesOnly",
            False,
            id="EQX-W1+on-demand",
        ),
        pytest.param(
            "gcp",
            _GCP_RICH,
            "disks/1",
            {
                "autoDelete": True,
                "boot": False,
                "sizeGb": 375,
                "type": "SCRATCH",
                "interface": "NVME",
                "encryption": _KEY,
                "labels": {**_GCP_LABELS, "tier_x": "front_end"},
            },
            id="GCP-W1+scratch",
        ),
        pytest.param(
            "gcp",
            _GCP_RICH,
            "disks/2",
            {
                "autoDelete": True,
                "boot": False,
                "sizeGb": 20,
                "type": "hyperdisk-balanced",
                "image": "https://image",
                "provisionedIops": 3000,
                "provisionedThroughput": 150,
                "encryption": _KEY,
                "labels": {**_GCP_LABELS, "tier_x": "front_end"},
            },
            id="GCP-W6+fast",
        ),
        pytest.param(
            "gcp",
            {**_GCP_RICH, f"{_VOLUMES}/1/type": "pd-extreme"},
            "disks/2/provisionedThroughput",
            None,
            id="GCP-W7+no-throughput",
        ),
        pytest.param(
            "gcp", _GCP_RICH, "labels", {**_GCP_LABELS, "tier_x": "front_end"}, id="ALL-Z8+gcp-labels"
        ),
        pytest.param(
            "gcp", {"pool/labels": {"A" * 70: "B" * 70}}, f"labels/{'a' * 63}", "b" * 63, id="ALL-Z8+gcp-long"
        ),
        pytest.param(
            "gcp",
            _GCP_RICH,
            "serviceAccounts",
            [{"email": "own@my-project", "scopes": ["b", "z"]}],
            id="GCP-W8+account",
        ),
        pytest.param(
            "gcp", {"infrastructure/serviceAccountEmail": None}, "serviceAccounts", [], id="GCP-W8+no-account"
        ),
        pytest.param(
            "gcp", _GCP_RICH, "gpu", {"acceleratorType": "nvidia-tesla-t4", "count": 2}, id="GCP-W9+gpu"
        ),
        pytest.param("gcp", _GCP_RICH, "scheduling/onHostMaintenance", "TERMINATE", id="GCP-W9+stays"),
        pytest.param(
            "gcp",
            {"pool/nodeTemplate": {"capacity": {"gpu": "1"}}},
            "scheduling/onHostMaintenance",
            "TERMINATE",
            id="GCP-W9+gpu-of-type",
        ),
        pytest.param("gcp", _GCP_RICH, "minCpuPlatform", "Intel Skylake", id="GCP-W14+cpu-platform"),
        pytest.param("openstack", _OPENSTACK_RICH, "spec/serverGroupID", "group-1", id="OST-W1+server-group"),
        pytest.param("openstack", _OPENSTACK_RICH, "spec/rootDiskSize", 50, id="OST-W7+size"),
        pytest.param("openstack", _OPENSTACK_RICH, "spec/rootDiskType", "ssd", id="OST-W7+type"),
        pytest.param(
            "openstack",
            _OPENSTACK_RICH,
            "spec/tags",
            {**_TAGS_WITH_DASH, "node-role": "x", "rolls": "1", "stays-here": "1", "also": "1"},
            id="OST-W3+tags",
        ),
        pytest.param(
            "openstack",
            {"shoot/status/networking": {"pods": ["100.96.0.0/11", "10.1.0.0/16"]}},
            "spec/podNetworkCIDRs",
            ["100.96.0.0/11", "10.1.0.0/16"],
            id="ALL-Z8+openstack-pods",
        ),
        pytest.param(
            "openstack", {"region": "africa"}, "spec/imageName", "coreos-2135.6.0", id="ALL-Z6+name"
        ),
    ],
)
def test_a_setting_reaches_the_driver(cloud: str, changes: Given, path: str, value: object) -> None:
    (one, *_) = groups(cloud, given(cloud, changes))

    found: Any = one.provider_spec
    for part in path.split("/"):
        found = found[int(part)] if part.isdecimal() else found.get(part)
    assert found == value


@pytest.mark.parametrize(
    ("cloud", "changes", "labels"),
    [
        pytest.param(
            "alicloud",
            {},
            {"topology.diskplugin.csi.alibabacloud.com/zone": "eu-central-1a"},
            id="ALL-Z8+alicloud-node",
        ),
        pytest.param(
            "aws",
            {},
            {
                "topology.ebs.csi.aws.com/zone": "eu-central-1a",
                "topology.kubernetes.io/zone": "eu-central-1a",
            },
            id="ALL-Z8+aws-node",
        ),
        pytest.param(
            "azure", _ZONED, {"topology.disk.csi.azure.com/zone": "westeurope-1"}, id="AZU-X1+zoned-node"
        ),
        pytest.param("azure", {}, {}, id="AZU-X1+node-without-zone"),
        pytest.param("equinixmetal", {}, {}, id="ALL-Z8+equinixmetal-node"),
        pytest.param("gcp", {}, {"topology.gke.io/zone": "europe-west1-b"}, id="ALL-Z8+gcp-node"),
        pytest.param(
            "openstack",
            {},
            {
                "topology.cinder.csi.openstack.org/zone": "europe-1a",
                "topology.manila.csi.openstack.org/zone": "europe-1a",
            },
            id="ALL-Z8+openstack-node",
        ),
    ],
)
def test_nodes_bear_the_zone_as_the_csi_driver_reads_it(
    cloud: str, changes: Given, labels: dict[str, str]
) -> None:
    (one, *_) = groups(cloud, given(cloud, changes))

    assert one.labels == labels


_CAPACITY = {"cpu": "4", "gpu": "0", "memory": "16Gi"}
_OWN_CAPACITY = {"cpu": "8", "gpu": "1", "memory": "32Gi"}


@pytest.mark.parametrize(
    ("cloud", "changes", "zone", "capacity"),
    [
        pytest.param("alicloud", {}, "eu-central-1a", _CAPACITY, id="ALL-Z8+alicloud-template"),
        pytest.param(
            "aws",
            {_CONFIG: config("aws", nodeTemplate={"capacity": {"cpu": "8"}})},
            "eu-central-1a",
            {**_CAPACITY, "cpu": "8"},
            id="ALL-Z8+aws-template-merged",
        ),
        pytest.param("azure", {}, "no-zone", _CAPACITY, id="ALL-Z8+azure-template"),
        pytest.param("azure", _ZONED, "westeurope-1", _CAPACITY, id="ALL-Z8+azure-template-zoned"),
        pytest.param(
            "azure",
            {_CONFIG: config("azure", nodeTemplate={"capacity": _OWN_CAPACITY})},
            "no-zone",
            _OWN_CAPACITY,
            id="ALL-Z8+azure-template-replaced",
        ),
        pytest.param(
            "gcp",
            {_CONFIG: config("gcp", nodeTemplate={"capacity": {"cpu": "8"}}, gpu={"count": 3})},
            "europe-west1-b",
            {**_CAPACITY, "cpu": "8", "gpu": "3"},
            id="GCP-W10+template-merged",
        ),
        pytest.param(
            "openstack",
            {_CONFIG: config("openstack", nodeTemplate={"capacity": _OWN_CAPACITY})},
            "europe-1a",
            _OWN_CAPACITY,
            id="ALL-Z8+openstack-template-replaced",
        ),
    ],
)
def test_the_autoscaler_learns_what_a_machine_has(
    cloud: str, changes: Given, zone: str, capacity: dict[str, str]
) -> None:
    found = given(cloud, {"pool/nodeTemplate": {"capacity": _CAPACITY}}, changes)
    (one, *_) = groups(cloud, found)

    assert one.node_template == {
        "architecture": "amd64",
        "capacity": capacity,
        "instanceType": found["pool"]["machineType"],
        "region": found["region"],
        "zone": zone,
    }


@pytest.mark.parametrize(
    ("cloud", "changes"),
    [
        pytest.param("gcp", _GCP_RICH | {f"{_CONFIG}/nodeTemplate": None}, id="GCP-W9+gpu-is-no-template"),
        pytest.param("azure", _AZURE_RICH, id="ALL-Z8+azure-template-of-config-only"),
        pytest.param(
            "equinixmetal", {"pool/nodeTemplate": {"capacity": _CAPACITY}}, id="ALL-Z8+equinixmetal-template"
        ),
    ],
)
def test_some_classes_tell_the_autoscaler_nothing(cloud: str, changes: Given) -> None:
    assert groups(cloud, given(cloud, changes))[0].node_template is None


@pytest.mark.parametrize(
    ("cloud", "image"),
    [
        pytest.param(
            "alicloud",
            {"id": "coreos_2023_4_0_64_30G_alibase_20190319.vhd", "encrypted": False},
            id="ALL-Z6+alicloud",
        ),
        pytest.param("aws", {"ami": "ami-034fd8c3f4026eb39", "architecture": "amd64"}, id="ALL-Z6+aws"),
        pytest.param(
            "azure",
            {**_AZURE_IMAGE, "architecture": "amd64", "acceleratedNetworking": True},
            id="ALL-Z6+azure",
        ),
        pytest.param("equinixmetal", {"id": "flatcar_stable"}, id="ALL-Z6+equinixmetal"),
        pytest.param(
            "gcp",
            {
                "image": "projects/coreos-cloud/global/images/coreos-stable-2135-6-0-v20190801",
                "architecture": "amd64",
            },
            id="ALL-Z6+gcp",
        ),
        pytest.param("openstack", {"id": "1234-amd64", "architecture": "amd64"}, id="ALL-Z6+openstack"),
    ],
)
def test_an_image_in_use_outlives_its_version_in_the_profile(cloud: str, image: dict[str, Any]) -> None:
    found = given(cloud)
    wanted = {**found["pool"]["machineImage"], **image}
    without = given(cloud, {"used": [wanted], "profile/machineImages": []})

    assert used_image(cloud, found) == wanted
    assert used_image(cloud, without) == wanted
    assert groups(cloud, without)[0].class_name == groups(cloud, found)[0].class_name


@pytest.mark.parametrize(
    ("cloud", "changes", "which"),
    [
        pytest.param("alicloud", {}, "coreos/2023.4.0/unencrypted", id="ALL-Z6+alicloud-unknown"),
        pytest.param(
            "alicloud",
            {"pool/volume/encrypted": True},
            "coreos/2023.4.0/encrypted",
            id="ALI-W4+not-encrypted-yet",
        ),
        pytest.param("aws", {}, "coreos/2135.6.0/amd64/eu-central-1", id="ALL-Z6+aws-unknown"),
        pytest.param("azure", {}, "coreos/2135.6.0/amd64", id="ALL-Z6+azure-unknown"),
        pytest.param("equinixmetal", {}, "flatcar/0.0.0-stable", id="ALL-Z6+equinixmetal-unknown"),
        pytest.param("gcp", {}, "coreos/2135.6.0/amd64", id="ALL-Z6+gcp-unknown"),
        pytest.param(
            "openstack",
            {"pool/architecture": "arm64"},
            "coreos/2135.6.0/arm64/europe",
            id="ALL-Z6+openstack-unknown",
        ),
        pytest.param(
            "openstack",
            {
                "pool/architecture": "arm64",
                "region": "africa",
                "profile/machineImages": [
                    {"name": "coreos", "versions": [{"version": "2135.6.0", "image": "coreos-2135.6.0"}]},
                ],
            },
            "coreos/2135.6.0/arm64/africa",
            id="ALL-Z6+openstack-name-is-amd64",
        ),
    ],
)
def test_an_unknown_image_is_an_error_that_says_what_to_do(cloud: str, changes: Given, which: str) -> None:
    name = which.split("/")[0]
    others = [{"name": name, "version": "1.0.0", "id": "other", "ami": "other", "image": "other"}]
    found = given(cloud, {"profile/machineImages": [], "used": others}, changes)

    with pytest.raises(
        Malformed, match=f"machine image for {re.escape(which)} .* add it to the CloudProfile"
    ):
        used_image(cloud, found)


@pytest.mark.parametrize(
    ("cloud", "changes", "message"),
    [
        pytest.param("alicloud", {"pool/volume": None}, "give a size and a type", id="ALI-W1+no-volume"),
        pytest.param("alicloud", {"pool/zones": ["x"]}, "add the zone to networks.zones", id="ALI-W3+zone"),
        pytest.param("aws", {"pool/zones": ["x"]}, "add the zone to networks.zones", id="AWS-W5+zone"),
        pytest.param("aws", {"pool/volume/size": "big"}, "write it as 50Gi", id="ALL-Z5+size"),
        pytest.param("azure", {"pool/volume/size": "9" * 5000}, "write it as 50Gi", id="ALL-Z5+huge-size"),
        pytest.param("azure", {"pool/volume": None}, "give a size and a type", id="AZU-W1+no-volume"),
        pytest.param("azure", {"dependencies": []}, "reconcile the Worker", id="AZU-W5+no-scale-set"),
        pytest.param(
            "azure",
            {"dependencies": [{"poolName": "worker-xoluy", "id": "1", "name": "1"}] * 2},
            "remove all but one",
            id="AZU-W5+two-scale-sets",
        ),
        pytest.param(
            "azure",
            {**_OWN_SUBNETS, "pool/zones": ["3"]},
            "add the zone to networks.zones",
            id="AZU-W4+zone-without-subnet",
        ),
        pytest.param("azure", {**_ZONED, "pool/zones": ["one"]}, "write 1, 2 or 3", id="AZU-W4+zone-by-name"),
        pytest.param(
            "azure", {_VERSION: {"version": "2135.6.0"}}, "give one of urn", id="AZU-P2+no-location"
        ),
        pytest.param(
            "gcp",
            {"infrastructure/networks/subnets": []},
            "reconcile the Infrastructure",
            id="ALL-Z8+gcp-subnet",
        ),
        pytest.param(
            "openstack",
            {**_OPENSTACK_RICH, "dependencies": []},
            "reconcile the Worker",
            id="OST-W1+no-server-group",
        ),
        pytest.param(
            "gcp",
            {_CONFIG: config("gcp", nonsense=1)},
            "providerConfig of pool 'worker-xoluy'",
            id="ALL-4+gcp",
        ),
        pytest.param(
            "equinixmetal",
            {"pool/machineImage": None},
            "give a name and a version",
            id="ALL-Z6+equinixmetal-no-image",
        ),
    ],
)
def test_what_is_missing_is_an_error_that_says_what_to_do(cloud: str, changes: Given, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        groups(cloud, given(cloud, changes))
