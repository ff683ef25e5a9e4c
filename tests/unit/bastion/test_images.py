"""Which machine and which image a Bastion gets."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from windowbox.errors import Malformed
from windowbox.models.gardener import cloudprofile
from windowbox.models.gardener.cloudprofile import CloudProfileSpec
from windowbox.models.objects import Object
from workers.kinds.bastion import bastionimages

NOW = datetime(2026, 9, 1, tzinfo=UTC)
PAST, FUTURE = "2026-08-01T00:00:00Z", "2026-10-01T00:00:00Z"

_HEAD = {"apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1", "kind": "CloudProfileConfig"}
_CAPABILITIES = [
    {"name": "architecture", "values": ["amd64", "arm64"]},
    {"name": "boot", "values": ["secure", "plain"]},
]


def machine(name: str, cpu: object = "2", **more: Any) -> dict[str, Any]:
    return {"name": name, "cpu": cpu, **more}


def image(name: str, *versions: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "versions": list(versions)}


def version(number: str, **more: Any) -> dict[str, Any]:
    return {"version": number, **more}


def profile(
    machines: list[dict[str, Any]], machine_images: list[dict[str, Any]], **more: Any
) -> CloudProfileSpec:
    """A profile whose images all have a container image `name:version`."""
    mapped = [
        image(
            one["name"],
            *(version(v["version"], image=f"{one['name']}:{v['version']}") for v in one["versions"]),
        )
        for one in machine_images
    ]
    config = {**_HEAD, "machineImages": mapped}
    spec = {"machineTypes": machines, "machineImages": machine_images, "providerConfig": config, **more}
    return cloudprofile.profile({"cloudProfile": {"spec": spec}})


ONE, ARM = [machine("one")], {"architectures": ["arm64"]}


@pytest.mark.parametrize(
    ("found", "chosen"),
    [
        pytest.param(profile(ONE, [image("a", version("1.0.0"))]), "a:1.0.0", id="BA-1-one-of-each"),
        pytest.param(
            profile(ONE, [image("a", version("1.9.0"), version("1.10.0"), version("1.10.0-rc.1"))]),
            "a:1.10.0",
            id="BA-1-highest-version",
        ),
        pytest.param(
            profile(ONE, [image("a", version("1.0.0")), image("b", version("2.0.0"))]),
            "a:1.0.0",
            id="BA-1-first-image",
        ),
        pytest.param(
            profile(ONE, [image("a", version("1.0.0"), version("2.0.0", classification="preview"))]),
            "a:1.0.0",
            id="BA-1-no-preview",
        ),
        pytest.param(
            profile(
                ONE, [image("a", version("1.0.0", classification="preview")), image("b", version("0.1.0"))]
            ),
            "b:0.1.0",
            id="BA-1-supported-image-before-the-first",
        ),
        pytest.param(
            profile(ONE, [image("a", version("1.0.0", classification="supported"), version("2.0.0"))]),
            "a:2.0.0",
            id="B.13-without-classification-is-supported",
        ),
        pytest.param(
            profile(
                ONE,
                [
                    image(
                        "a",
                        version("1.0.0", classification="deprecated"),
                        version("2.0.0", classification="preview"),
                    )
                ],
            ),
            "a:1.0.0",
            id="BA-1-rather-deprecated-than-preview",
        ),
        pytest.param(
            profile(ONE, [image("a", version("1.0.0"), version("2.0.0", expirationDate=PAST))]),
            "a:1.0.0",
            id="BA-1-no-expired-one",
        ),
        pytest.param(
            profile(ONE, [image("a", version("1.0.0"), version("2.0.0", expirationDate=FUTURE))]),
            "a:2.0.0",
            id="BA-1-one-that-will-expire",
        ),
        pytest.param(
            profile(
                ONE,
                [
                    image(
                        "a",
                        version("1.0.0"),
                        version(
                            "2.0.0",
                            lifecycle=[
                                {"classification": "preview"},
                                {"classification": "supported", "startTime": FUTURE},
                            ],
                        ),
                    )
                ],
            ),
            "a:1.0.0",
            id="BA-1-stage-that-has-not-begun",
        ),
        pytest.param(
            profile(
                ONE,
                [
                    image(
                        "a",
                        version("1.0.0"),
                        version(
                            "2.0.0",
                            lifecycle=[
                                {"classification": "preview"},
                                {"classification": "supported", "startTime": PAST},
                            ],
                        ),
                    )
                ],
            ),
            "a:2.0.0",
            id="BA-1-stage-that-has-begun",
        ),
        pytest.param(
            profile(ONE, [image("a", version("2.0.0", classification="expired"))]),
            "a:2.0.0",
            id="BA-1-better-than-none",
        ),
        pytest.param(
            profile(
                [machine("arm", "1", architecture="arm64"), machine("amd", "4")],
                [image("a", version("1.0.0"))],
            ),
            "a:1.0.0",
            id="B.13-smallest-machine-of-another-architecture",
        ),
        pytest.param(
            profile(
                [machine("big", "4", architecture="arm64"), machine("small", "500m")],
                [image("a", version("2.0.0", **ARM)), image("b", version("1.0.0"))],
            ),
            "b:1.0.0",
            id="BA-1-fewest-cpus",
        ),
        pytest.param(
            profile(
                [machine("small", 1, usable=False, architecture="arm64"), machine("big", "2")],
                [image("a", version("2.0.0", **ARM)), image("b", version("1.0.0"))],
            ),
            "b:1.0.0",
            id="BA-1-not-usable",
        ),
        pytest.param(
            profile(
                [machine("small", "1"), machine("arm", "8", architecture="arm64")],
                [image("a", version("1.0.0")), image("b", version("1.0.0", **ARM))],
                bastion={"machineType": {"name": "arm"}},
            ),
            "b:1.0.0",
            id="BA-1-machine-type-that-is-named",
        ),
        pytest.param(
            profile(
                ONE,
                [image("a", version("1.0.0")), image("b", version("1.0.0"), version("1.1.0"))],
                bastion={"machineImage": {"name": "b"}},
            ),
            "b:1.1.0",
            id="BA-1-image-that-is-named",
        ),
        pytest.param(
            profile(
                ONE,
                [image("a", version("1.0.0", classification="expired"), version("1.1.0"))],
                bastion={"machineImage": {"name": "a", "version": "1.0.0"}},
            ),
            "a:1.0.0",
            id="BA-1-version-that-is-named",
        ),
    ],
)
def test_the_image_of_a_bastion(found: CloudProfileSpec, chosen: str) -> None:
    assert bastionimages.image(found, NOW) == chosen


@pytest.mark.parametrize(
    ("standing", "chosen"),
    [
        pytest.param("a:1.0.0", "a:1.0.0", id="one-of-the-profile"),
        pytest.param("elsewhere:1", "a:2.0.0", id="one-that-somebody-else-put-there"),
    ],
)
def test_a_bastion_that_stands_keeps_its_image(standing: str, chosen: str) -> None:
    found = profile(ONE, [image("a", version("1.0.0"), version("2.0.0"))])
    assert bastionimages.image(found, NOW, standing) == chosen


@pytest.mark.parametrize(
    ("containers", "found"),
    [
        pytest.param([{"image": "a"}, {"image": "b"}], "a", id="the-first"),
        pytest.param([], "", id="none"),
        pytest.param([5], "", id="a-number"),
        pytest.param([{"image": None}], "", id="no-image"),
        pytest.param({"image": "a"}, "", id="no-list"),
    ],
)
def test_the_image_that_a_pod_tells(containers: object, found: str) -> None:
    assert bastionimages.of_pod(Object({"spec": {"containers": containers}})) == found


def test_no_pod_tells_of_no_image() -> None:
    assert bastionimages.of_pod(None) == ""


def capable(flavors: list[dict[str, Any]], machine_capabilities: dict[str, list[str]]) -> CloudProfileSpec:
    """A profile with one image, of these flavors."""
    config = {**_HEAD, "machineImages": [image("a", version("1.0.0", capabilityFlavors=flavors))]}
    spec = {
        "machineCapabilities": _CAPABILITIES,
        "machineTypes": [machine("one", capabilities=machine_capabilities)],
        "machineImages": [image("a", version("1.0.0"))],
        "providerConfig": config,
    }
    return cloudprofile.profile({"cloudProfile": {"spec": spec}})


ARM_IMAGE = {"image": "arm", "capabilities": {"architecture": ["arm64"]}}
PLAIN = {"image": "plain", "capabilities": {"architecture": ["amd64"], "boot": ["plain"]}}
SECURE = {"image": "secure", "capabilities": {"architecture": ["amd64"], "boot": ["secure"]}}


@pytest.mark.parametrize(
    ("flavors", "able", "chosen"),
    [
        pytest.param(
            [ARM_IMAGE, PLAIN], {"architecture": ["amd64"]}, "plain", id="BA-1-fitting-architecture"
        ),
        pytest.param([PLAIN, SECURE], {"architecture": ["amd64"]}, "secure", id="BA-1-preferred-value"),
        pytest.param([PLAIN, SECURE], {"boot": ["plain"]}, "plain", id="BA-1-what-the-machine-cannot"),
        pytest.param([{"image": "any"}], {"architecture": ["arm64"]}, "any", id="BA-1-nothing-is-everything"),
        pytest.param([ARM_IMAGE, PLAIN], {}, "plain", id="BA-1-first-defined-weighs-most"),
    ],
)
def test_the_flavor_that_fits_best(
    flavors: list[dict[str, Any]], able: dict[str, list[str]], chosen: str
) -> None:
    assert bastionimages.image(capable(flavors, able), NOW) == chosen


def _with_config(config: object) -> CloudProfileSpec:
    return profile(ONE, [image("a", version("1.0.0"))], providerConfig=config)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        pytest.param(
            profile([], [image("a", version("1"))]), "spec.machineTypes", id="BA-1-no-machine-types"
        ),
        pytest.param(profile(ONE, []), "images: there are none", id="BA-1-no-images"),
        pytest.param(
            profile(ONE, [image("a", version("1.0.0", **ARM))]),
            "machine types one (images: a)",
            id="B.13-no-image-of-the-architecture",
        ),
        pytest.param(
            profile(ONE, [image("a", version("1"))], bastion={"machineType": {"name": "x"}}),
            "spec.bastion.machineType.name of the CloudProfile is 'x'",
            id="BA-1-unknown-type",
        ),
        pytest.param(
            profile(ONE, [image("a", version("1"))], bastion={"machineImage": {"name": "x"}}),
            "spec.bastion.machineImage.name of the CloudProfile is 'x'",
            id="BA-1-unknown-image",
        ),
        pytest.param(
            profile(ONE, [image("a", version("1"))], bastion={"machineImage": {"name": "a", "version": "2"}}),
            "spec.bastion.machineImage.version of the CloudProfile is '2'",
            id="BA-1-unknown-version",
        ),
        pytest.param(
            profile(ONE, [image("a", version("1", **ARM))], bastion={"machineImage": {"name": "a"}}),
            "spec.bastion.machineImage of the CloudProfile fits none of the machine types one",
            id="BA-1-named-image-of-another-architecture",
        ),
        pytest.param(
            profile([machine("one", "many")], [image("a", version("1"))]), "cpu of 'one'", id="BA-1-cpu"
        ),
        pytest.param(
            _with_config(None), "spec.providerConfig of the CloudProfile is missing", id="B.9-no-config"
        ),
        pytest.param(
            _with_config({**_HEAD, "machineImages": [], "extra": 1}),
            "extra is unknown",
            id="2.16-unknown-field",
        ),
        pytest.param(
            _with_config(
                {**_HEAD, "machineImages": [{"name": "a", "versions": [{"version": "1", "imag": "x"}]}]}
            ),
            "machineImages.0.versions.0.imag is unknown",
            id="2.16-unknown-field-within",
        ),
        pytest.param(
            _with_config({**_HEAD, "apiVersion": "v1", "machineImages": []}),
            "apiVersion is 'v1'",
            id="2.16-version",
        ),
        pytest.param(
            _with_config({**_HEAD, "machineImages": []}),
            "does not have version '1.0.0' of image 'a'",
            id="2.16-not-mapped",
        ),
        pytest.param(
            _with_config({**_HEAD, "machineImages": [image("a", version("1.0.0"))]}),
            "version '1.0.0' of image 'a' in machineImages has no image",
            id="2.16-no-image",
        ),
        pytest.param(
            capable([ARM_IMAGE], {"architecture": ["amd64"]}),
            "has no capabilityFlavors that fit machine type 'one' (architecture: amd64",
            id="2.16-no-flavor",
        ),
    ],
)
def test_what_cannot_be_found_is_named(found: CloudProfileSpec, said: str) -> None:
    with pytest.raises(Malformed) as caught:
        bastionimages.image(found, NOW)
    assert said in str(caught.value)


def test_versions_sort_as_semantic_ones() -> None:
    wanted = [
        "latest", "0.9", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-rc.2", "1.0.0-rc.10",
        "1.0.0", "1.2.0", "v1.10.0",
    ]  # fmt: skip
    assert sorted(set(wanted), key=bastionimages.order) == wanted
