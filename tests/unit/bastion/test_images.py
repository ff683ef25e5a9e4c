"""The machine and the image of a Bastion."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.cases import cases
from windowbox.errors import Malformed
from windowbox.models.gardener import cloudprofile
from windowbox.models.gardener.cloudprofile import CloudProfileSpec
from windowbox.models.objects import Object
from workers.kinds.bastion import bastionimages

NOW = datetime(2026, 9, 1, tzinfo=UTC)
PAST, FUTURE = "2026-08-01T00:00:00Z", "2026-10-01T00:00:00Z"
HEAD = {"apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1", "kind": "CloudProfileConfig"}
CAPABILITIES = [
    {"name": "architecture", "values": ["amd64", "arm64"]},
    {"name": "boot", "values": ["secure", "plain"]},
]


def machine(name: str, cpu: object = "2", **more: Any) -> dict[str, Any]:
    return {"name": name, "cpu": cpu, **more}


def version(number: str, **more: Any) -> dict[str, Any]:
    return {"version": number, **more}


def lifecycle(start: str) -> dict[str, Any]:
    stages = [{"classification": "preview"}, {"classification": "supported", "startTime": start}]
    return version("2.0.0", lifecycle=stages)


ONE = [machine("one")]
ARM = machine("arm", "1", architecture="arm64")
FOR_ARM = version("2.0.0", architectures=["arm64"])
PREVIEW, EXPIRED = ({"classification": one} for one in ("preview", "expired"))


def profile(
    machines: list[dict[str, Any]] = ONE, config: Any = ..., **images: list[str | dict[str, Any]]
) -> CloudProfileSpec:
    """A profile with these versions of images, which all have a container image `name:version`."""
    bastion = {"bastion": images.pop("bastion")} if "bastion" in images else {}
    listed: list[dict[str, Any]] = [
        {"name": name, "versions": [version(one) if isinstance(one, str) else one for one in versions]}
        for name, versions in images.items()
    ]
    mapped = [
        {
            "name": one["name"],
            "versions": [
                version(v["version"], image=f"{one['name']}:{v['version']}") for v in one["versions"]
            ],
        }
        for one in listed
    ]
    config = {**HEAD, "machineImages": mapped} if config is ... else config
    spec = {"machineTypes": machines, "machineImages": listed, "providerConfig": config, **bastion}
    return cloudprofile.profile({"cloudProfile": {"spec": spec}})


def named(**bastion: Any) -> Any:
    return {kind: {"name": name} if isinstance(name, str) else name for kind, name in bastion.items()}


@cases(
    "found, chosen",
    {
        "BA-1-one-of-each": (profile(a=["1.0.0"]), "a:1.0.0"),
        "BA-1-highest-version": (profile(a=["1.9.0", "1.10.0", "1.10.0-rc.1"]), "a:1.10.0"),
        "BA-1-first-image": (profile(a=["1.0.0"], b=["2.0.0"]), "a:1.0.0"),
        "BA-1-no-preview": (profile(a=["1.0.0", version("2.0.0", **PREVIEW)]), "a:1.0.0"),
        "BA-1-supported-image-before-the-first": (
            profile(a=[version("1.0.0", **PREVIEW)], b=["0.1.0"]),
            "b:0.1.0",
        ),
        "B.13-without-classification-is-supported": (
            profile(a=[version("1.0.0", classification="supported"), "2.0.0"]),
            "a:2.0.0",
        ),
        "BA-1-rather-deprecated-than-preview": (
            profile(a=[version("1.0.0", classification="deprecated"), version("2.0.0", **PREVIEW)]),
            "a:1.0.0",
        ),
        "BA-1-no-expired-one": (profile(a=["1.0.0", version("2.0.0", expirationDate=PAST)]), "a:1.0.0"),
        "BA-1-one-that-will-expire": (
            profile(a=["1.0.0", version("2.0.0", expirationDate=FUTURE)]),
            "a:2.0.0",
        ),
        "BA-1-stage-that-has-not-begun": (profile(a=["1.0.0", lifecycle(FUTURE)]), "a:1.0.0"),
        "BA-1-stage-that-has-begun": (profile(a=["1.0.0", lifecycle(PAST)]), "a:2.0.0"),
        "BA-1-better-than-none": (profile(a=[version("2.0.0", **EXPIRED)]), "a:2.0.0"),
        "B.13-smallest-machine-of-another-architecture": (
            profile([ARM, machine("amd", "4")], a=["1.0.0"]),
            "a:1.0.0",
        ),
        "BA-1-fewest-cpus": (
            profile([ARM | {"cpu": "4"}, machine("small", "500m")], a=[FOR_ARM], b=["1.0.0"]),
            "b:1.0.0",
        ),
        "BA-1-not-usable": (
            profile([ARM | {"cpu": 1, "usable": False}, machine("big")], a=[FOR_ARM], b=["1.0.0"]),
            "b:1.0.0",
        ),
        "BA-1-machine-type-that-is-named": (
            profile(
                [machine("small", "1"), ARM | {"cpu": "8"}],
                a=["1.0.0"],
                b=[FOR_ARM],
                bastion=named(machineType="arm"),
            ),
            "b:2.0.0",
        ),
        "BA-1-image-that-is-named": (
            profile(a=["1.0.0"], b=["1.0.0", "1.1.0"], bastion=named(machineImage="b")),
            "b:1.1.0",
        ),
        "BA-1-version-that-is-named": (
            profile(
                a=[version("1.0.0", **EXPIRED), "1.1.0"],
                bastion=named(machineImage={"name": "a", "version": "1.0.0"}),
            ),
            "a:1.0.0",
        ),
    },
)
def test_the_image_of_a_bastion(found: CloudProfileSpec, chosen: str) -> None:
    assert bastionimages.image(found, NOW) == chosen


@cases(
    "standing, chosen",
    {"one-of-the-profile": ("a:1.0.0", "a:1.0.0"), "one-of-somebody-else": ("elsewhere:1", "a:2.0.0")},
)
def test_a_bastion_that_stands_keeps_its_image(standing: str, chosen: str) -> None:
    assert bastionimages.image(profile(a=["1.0.0", "2.0.0"]), NOW, standing) == chosen


@cases(
    "containers, found",
    {
        "the-first": ([{"image": "a"}, {"image": "b"}], "a"),
        "none": ([], ""),
        "a-number": ([5], ""),
        "no-image": ([{"image": None}], ""),
        "no-list": ({"image": "a"}, ""),
    },
)
def test_the_image_of_a_pod(containers: object, found: str) -> None:
    assert bastionimages.of_pod(Object({"spec": {"containers": containers}})) == found
    assert bastionimages.of_pod(None) == ""


def capable(flavors: list[dict[str, Any]], machine_capabilities: dict[str, list[str]]) -> CloudProfileSpec:
    """A profile with one image, of these flavors."""
    versions = [version("1.0.0", capabilityFlavors=flavors)]
    spec = {
        "machineCapabilities": CAPABILITIES,
        "machineTypes": [machine("one", capabilities=machine_capabilities)],
        "machineImages": [{"name": "a", "versions": [version("1.0.0")]}],
        "providerConfig": {**HEAD, "machineImages": [{"name": "a", "versions": versions}]},
    }
    return cloudprofile.profile({"cloudProfile": {"spec": spec}})


AMD64, ARM64 = {"architecture": ["amd64"]}, {"architecture": ["arm64"]}
ARM_IMAGE = {"image": "arm", "capabilities": ARM64}
PLAIN, SECURE = ({"image": boot, "capabilities": AMD64 | {"boot": [boot]}} for boot in ("plain", "secure"))


@cases(
    "flavors, able, chosen",
    {
        "BA-1-fitting-architecture": ([ARM_IMAGE, PLAIN], AMD64, "plain"),
        "BA-1-preferred-value": ([PLAIN, SECURE], AMD64, "secure"),
        "BA-1-what-the-machine-cannot": ([PLAIN, SECURE], {"boot": ["plain"]}, "plain"),
        "BA-1-nothing-is-everything": ([{"image": "any"}], ARM64, "any"),
        "BA-1-first-defined-weighs-most": ([ARM_IMAGE, PLAIN], {}, "plain"),
    },
)
def test_the_flavor_that_fits_best(
    flavors: list[dict[str, Any]], able: dict[str, list[str]], chosen: str
) -> None:
    assert bastionimages.image(capable(flavors, able), NOW) == chosen


def images(*versions: dict[str, Any], **more: Any) -> CloudProfileSpec:
    """A profile of which the config has these versions of image `a`, or of no image."""
    mapped = [{"name": "a", "versions": list(versions)}] if versions else []
    return profile(config={**HEAD, "machineImages": mapped, **more}, a=["1.0.0"])


@cases(
    "found, said",
    {
        "BA-1-no-machine-types": (profile([], a=["1"]), "spec.machineTypes"),
        "BA-1-no-images": (profile(), "images: there are none"),
        "B.13-no-image-of-the-architecture": (profile(a=[FOR_ARM]), "machine types one (images: a)"),
        "BA-1-unknown-type": (
            profile(a=["1"], bastion=named(machineType="x")),
            "spec.bastion.machineType.name of the CloudProfile is 'x'",
        ),
        "BA-1-unknown-image": (
            profile(a=["1"], bastion=named(machineImage="x")),
            "spec.bastion.machineImage.name of the CloudProfile is 'x'",
        ),
        "BA-1-unknown-version": (
            profile(a=["1"], bastion=named(machineImage={"name": "a", "version": "2"})),
            "spec.bastion.machineImage.version of the CloudProfile is '2'",
        ),
        "BA-1-named-image-of-another-architecture": (
            profile(a=[FOR_ARM], bastion=named(machineImage="a")),
            "spec.bastion.machineImage of the CloudProfile fits none of the machine types one",
        ),
        "BA-1-cpu": (profile([machine("one", "many")], a=["1"]), "cpu of 'one'"),
        "B.9-no-config": (
            profile(config=None, a=["1.0.0"]),
            "spec.providerConfig of the CloudProfile is missing",
        ),
        "2.16-unknown-field": (images(extra=1), "extra is unknown"),
        "2.16-unknown-field-within": (
            images(version("1", imag="x")),
            "machineImages.0.versions.0.imag is unknown",
        ),
        "2.16-version": (images(apiVersion="v1"), "apiVersion is 'v1'"),
        "2.16-not-mapped": (images(), "does not have version '1.0.0' of image 'a'"),
        "2.16-no-image": (
            images(version("1.0.0")),
            "version '1.0.0' of image 'a' in machineImages has no image",
        ),
        "2.16-no-flavor": (
            capable([ARM_IMAGE], AMD64),
            "has no capabilityFlavors that fit machine type 'one' (architecture: amd64",
        ),
    },
)
def test_a_missing_image_is_named(found: CloudProfileSpec, said: str) -> None:
    with pytest.raises(Malformed) as caught:
        bastionimages.image(found, NOW)
    assert said in str(caught.value)


def test_versions_sort_as_semantic_ones() -> None:
    order = "latest 0.9 1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-rc.2 1.0.0-rc.10 1.0.0 1.2.0 v1.10.0"
    assert " ".join(sorted(set(order.split()), key=bastionimages.order)) == order
