"""The hashes of worker pools, by the vectors of the contract, and the images of their machines."""

from __future__ import annotations

from typing import Any

import pytest

from clouds.frame import pools
from tests.support import workerexample as example
from tests.support.cases import cases
from tests.support.rules import rule
from tests.support.workerexample import pool, worker
from windowbox.errors import Malformed
from windowbox.models.gardener.worker import UsedImage, WorkerPool
from workers.machines.worker import localmachines

ROTATED = "2026-08-21T10:00:00Z"


def parsed(name: str, **more: Any) -> WorkerPool:
    return WorkerPool.model_validate(pool(name, **more))


def big(version: str = "1.0.0", **more: Any) -> WorkerPool:
    return parsed("big", machineImage={"name": "local", "version": version}, **more)


def class_hash(pool: WorkerPool, shoot: dict[str, Any] | None = None) -> str:
    site = pools.Site(namespace="x", region="local", infrastructure={}, shoot=shoot or {}, profile={})
    return localmachines.class_hash(pool, site)


def rotation(**rotated: Any) -> dict[str, Any]:
    return {"status": {"credentials": {"rotation": rotated}}}


@rule("A7", "A7-R2")
def test_the_hash_of_a_rolling_pool_depends_on_its_secret_name_only() -> None:
    # gardenlet makes that name: here of the Kubernetes version, machine type, image and container runtime.
    content = pools.combined(["1.35", "local", "local1.0.0", "containerd"])
    agent = f"gardener-node-agent-small-{content[:16]}"
    assert agent == "gardener-node-agent-small-6af919d2b5e8f371"
    assert class_hash(parsed("small", nodeAgentSecretName=agent)) == "7dbbe"
    changed: dict[str, Any] = {"machineType": "large", "zones": ["a"], "minimum": 0, "labels": {"a": "b"}}
    other = parsed("small", nodeAgentSecretName=agent, **changed)
    assert class_hash(other) == "7dbbe"
    assert pools.combined([agent, "x"])[:5] == "7f2a1"


RESERVED: dict[str, Any] = {"kubeletConfig": {"kubeReserved": {"cpu": "80m", "memory": "1Gi", "pid": "20k"}}}


@cases(
    "asked shoot in_place of_class",
    ("A7-plain", big(), {}, "158f7ddcc5c0a83f", "47eee"),
    ("A7-another-image", big("2.0.0"), {}, "3cc9b817dc69cc34", "de6a7"),
    (
        "A7-rotated-and-with-reserves",
        big(**RESERVED),
        rotation(certificateAuthorities={"lastInitiationTime": ROTATED}),
        "81f469a84c315844",
        "b29d8",
    ),
)
def test_vectors_of_pools_that_are_updated_in_place(
    asked: WorkerPool, shoot: dict[str, Any], in_place: str, of_class: str
) -> None:
    assert pools.in_place_hash(asked, shoot) == in_place
    updated = asked.model_copy(update={"update_strategy": "AutoInPlaceUpdate"})
    assert class_hash(updated, shoot) == of_class


def test_a_pending_roll_out_of_a_pool_has_its_own_time() -> None:
    pending = [{"name": "other", "lastInitiationTime": "2026-01-01T00:00:00Z"}, {"name": "big"}]
    authorities = {"lastInitiationTime": ROTATED, "pendingWorkersRollouts": pending}
    shoot = rotation(certificateAuthorities=authorities)
    assert pools.in_place_hash(big(), shoot) == pools.in_place_hash(big(), {})
    pending[1]["lastInitiationTime"] = ROTATED
    expected = rotation(certificateAuthorities={"lastInitiationTime": ROTATED})
    assert pools.in_place_hash(big(), shoot) == pools.in_place_hash(big(), expected)


@cases(
    "config parts",
    ("none", None, []),
    ("empty", {}, []),
    ("nothing-reserved", {"kubeReserved": {}}, ["<nil>-<nil>-<nil>-<nil>"]),
    (
        "eviction-and-policy",
        {"cpuManagerPolicy": "static", "evictionHard": {"memoryAvailable": "5%", "nodeFSAvailable": "1Gi"}},
        ["--5%-1Gi-", "static"],
    ),
)
def test_kubelet_settings_in_the_hash(config: dict[str, Any] | None, parts: list[str]) -> None:
    assert pools.kubelet_parts(big(kubeletConfig=config).kubelet_config) == parts


@rule("A7-R1", "L22")
def test_a_pool_without_the_name_of_its_secret_is_an_error() -> None:
    with pytest.raises(Malformed, match='missing node-agent secret name for worker pool "small"') as raised:
        class_hash(parsed("small", nodeAgentSecretName=None))
    assert raised.value.codes == ("ERR_CONFIGURATION_PROBLEM",)


def test_a_version_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(Malformed, match=r"failed to parse kubernetes version 'new'.*kubernetesVersion"):
        pools.in_place_hash(big(kubernetesVersion="new"), {})
    shoot = {"spec": {"kubernetes": {"version": "1.35.0"}}}
    found = pools.in_place_hash(big(kubernetesVersion=None), shoot)
    assert found == pools.in_place_hash(big(kubernetesVersion="1.35.9"), {})


CAPABILITIES = [
    {"name": "architecture", "values": ["amd64", "arm64"]},
    {"name": "boot", "values": ["secure", "plain"]},
]
POOL = WorkerPool.model_validate(pool())


def flavored(*flavors: dict[str, Any], machine: dict[str, Any] | None = None) -> dict[str, Any]:
    """A CloudProfile with capabilities, whose image `local` has these flavors."""
    made = example.profile(
        machineCapabilities=CAPABILITIES,
        machineTypes=[{"name": "local", **({"capabilities": machine} if machine else {})}],
    )
    version = {"version": "1.0.0", "capabilityFlavors": list(flavors)}
    made["providerConfig"]["machineImages"] = [{"name": "local", "versions": [version]}]
    return made


def flavor(image: str, **capabilities: list[str]) -> dict[str, Any]:
    return {"image": image, **({"capabilities": capabilities} if capabilities else {})}


def remembered(*used: dict[str, Any], **more: Any) -> dict[str, Any]:
    head = {"apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1", "kind": "WorkerStatus"}
    return {"providerStatus": {**head, "machineImages": list(used), **more}}


def found(profile: dict[str, Any], status: dict[str, Any] | None = None) -> str:
    return localmachines.used_image(POOL, example.parsed(profile), worker(pool(), status=status)).image


@cases(
    "profile image",
    ("A8-R1+A8-R2-without-capabilities", example.profile(), example.IMAGE),
    ("A8-R3-a-flavor-for-all", flavored(flavor("one")), "one"),
    (
        "A8-R4-what-is-preferred",
        flavored(flavor("arm", architecture=["arm64"]), flavor("amd", architecture=["amd64"])),
        "amd",
    ),
    (
        "A8-R3-what-the-machine-can",
        flavored(
            flavor("arm", architecture=["arm64"]),
            flavor("amd", architecture=["amd64"]),
            machine={"architecture": ["arm64"]},
        ),
        "arm",
    ),
    (
        "A8-R4-by-the-second-capability",
        flavored(flavor("plain", boot=["plain"]), flavor("secure", boot=["secure"])),
        "secure",
    ),
)
def test_the_image_of_a_cloud_profile(profile: dict[str, Any], image: str) -> None:
    assert found(profile) == image


USED = {"name": "local", "version": "1.0.0", "image": "former"}


@cases(
    "profile",
    ("A8-R5-version-is-gone", example.profile(("2.0.0", "new"))),
    ("A8-R9-no-configuration", {"machineTypes": [{"name": "local"}]}),
    ("A8-R8-empty-image", example.profile(("1.0.0", ""))),
    ("A8-R4-not-unique", flavored(flavor("a"), flavor("b"))),
    (
        "A8-R3-no-flavor-fits",
        flavored(flavor("arm", architecture=["arm64"]), machine={"architecture": ["amd64"]}),
    ),
)
def test_a_reported_image_stays_usable(profile: dict[str, Any]) -> None:
    assert found(profile, remembered(USED)) == "former"
    with pytest.raises(Malformed, match=r"local/1\.0\.0 neither in") as raised:
        found(profile)
    assert raised.value.codes == ("ERR_CONFIGURATION_PROBLEM",)


@rule("A8-R5")
def test_a_former_image_is_used_only_if_it_fits() -> None:
    profile = flavored(machine={"architecture": ["amd64"]})
    arm = {**USED, "image": "arm", "capabilities": {"architecture": ["arm64"]}}
    assert found(profile, remembered(arm, USED)) == "former"


@rule("A8-R9")
def test_a_status_that_cannot_be_decoded_is_an_error() -> None:
    profile = example.profile()
    profile["providerConfig"]["typo"] = 1
    with pytest.raises(Malformed, match="of the CloudProfile: typo is unknown"):
        found(profile, remembered(USED))
    undecoded = r"could not decode worker status of worker 'shoot--local--demo/demo'.*typo"
    with pytest.raises(Malformed, match=undecoded):
        found(example.profile(("2.0.0", "new")), remembered(USED, typo=1))


@rule("A8-R7")
def test_each_image_in_use_is_reported_once() -> None:
    one = UsedImage(name="a", version="1", image="x")
    other = UsedImage(name="b", version="1", image="y")
    reported = localmachines.provider_status([one, other, one], example.parsed(example.profile()))
    assert [image["name"] for image in reported["machineImages"]] == ["a", "b"]
    profile = example.parsed(flavored())
    arm = UsedImage(name="a", version="1", image="z", capabilities={"architecture": ["arm64"]})
    all_ = UsedImage(name="a", version="1", image="x", capabilities={"boot": ["plain", "secure"]})
    reported = localmachines.provider_status([one, arm, all_], profile)
    assert [image["image"] for image in reported["machineImages"]] == ["x", "z"]
