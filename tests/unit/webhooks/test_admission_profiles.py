"""Which CloudProfiles the garden takes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.admitted import answered, refusal
from tests.support.cases import cases
from tests.support.rules import rule

HEAD = {"apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1", "kind": "CloudProfileConfig"}
IMAGES = "spec.providerConfig.machineImages"
CAPABILITIES = [
    {"name": "architecture", "values": ["amd64", "arm64"]},
    {"name": "boot", "values": ["secure", "plain"]},
]


def image(name: str, *versions: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "versions": list(versions)}


def version(number: str, **more: Any) -> dict[str, Any]:
    return {"version": number, **more}


def flavor(image: str = "a:1", **capabilities: list[str]) -> dict[str, Any]:
    return {"image": image, "capabilities": capabilities}


def config(*images: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**HEAD, "machineImages": list(images), **more}


def profile(
    config: Any, *images: dict[str, Any], capabilities: Any = None, **metadata: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "core.gardener.cloud/v1beta1",
        "kind": "CloudProfile",
        "metadata": {"name": "local", **metadata},
        "spec": {
            "machineImages": list(images),
            "machineCapabilities": capabilities,
            "providerConfig": config,
        },
    }


def errors(message: str) -> set[str]:
    """The single errors of a message."""
    if not message.startswith("["):
        return {message}
    parts = message[1:-1].split(f", {IMAGES}")
    return {parts[0], *(IMAGES + part for part in parts[1:])}


NO_VERSION = "Required value: at least one version of machine image '' must be given"
ONE = config(image("a", version("1.0.0", image="a:1")))


@rule("AD-23", "AD-25")
def test_without_capabilities_an_image_is_enough_for_all_versions() -> None:
    given = profile(ONE, image("a", version("1.0.0"), version("2.0.0")), image("no-versions"))
    assert answered("validator", given).allowed


@rule("AD-20", "AD-26")
def test_a_profile_without_config_is_refused_even_under_deletion() -> None:
    given = profile(None, deletionTimestamp="2026-01-01T00:00:00Z")
    assert refusal("validator", given) == (
        "spec.providerConfig: Required value: providerConfig must be set for cloud profiles of provider local"
    )


@rule("AD-21")
@cases(
    "given why",
    ("nothing", {}, "apiVersion is missing: add it; kind is missing: add it"),
    ("another-kind", {**ONE, "kind": "X"}, "kind is 'X': make it 'CloudProfileConfig'"),
    ("an-unknown-field", {**ONE, "typo": 1}, "typo is unknown (it is 1)"),
    ("deep", config(image("a", version("1", imag="x"))), "machineImages.0.versions.0.imag is unknown"),
    ("type", config(image("a", version("1", image=5))), "machineImages.0.versions.0.image is 5"),
    ("load-balancer", config(loadBalancer={"imag": "x"}), "loadBalancer.imag is unknown"),
)
def test_a_config_with_other_fields_is_refused(given: Any, why: str) -> None:
    message = refusal("validator", profile(given))
    assert message.startswith(f"could not decode spec.providerConfig: {why}")


@rule("AD-22", "AD-23")
@cases(
    "given wanted",
    ("none", config(), {f"{IMAGES}: Required value: at least one machine image must be given"}),
    (
        "null",
        {**HEAD, "machineImages": None},
        {f"{IMAGES}: Required value: at least one machine image must be given"},
    ),
    (
        "all-at-once",
        config(image(""), {"versions": None}, image("a", {}, version("1", image="", capabilityFlavors=None))),
        {
            f"{IMAGES}[0].name: Required value: a machine image must have a name",
            f"{IMAGES}[0].versions: {NO_VERSION}",
            f"{IMAGES}[1].name: Required value: a machine image must have a name",
            f"{IMAGES}[1].versions: {NO_VERSION}",
            f"{IMAGES}[2].versions[0].version: Required value: the version must be given",
            f"{IMAGES}[2].versions[0].image: Required value: a container image must be given",
            f"{IMAGES}[2].versions[1].image: Required value: a container image must be given",
        },
    ),
    (
        "flavors",
        config(image("a", version("1", image="a:1", capabilityFlavors=[flavor()]))),
        {
            f"{IMAGES}[0].versions[0].capabilityFlavors: Forbidden: the CloudProfile has no "
            "machineCapabilities: give the container image in image"
        },
    ),
)
def test_what_is_missing_is_said_all_at_once(given: Any, wanted: set[str]) -> None:
    # The second stage would find these images unmapped; it comes only after the first.
    assert errors(refusal("validator", profile(given, image("other", version("1"))))) == wanted


@rule("AD-24")
@cases(
    "given wanted",
    (
        "images",
        version("1", image="a:1", capabilityFlavors=[{"capabilities": {"architecture": ["amd64"]}}]),
        {
            ".image: Forbidden: the CloudProfile has machineCapabilities: give images in capabilityFlavors",
            ".capabilityFlavors[0].image: Required value: a container image must be given",
        },
    ),
    (
        "unknown",
        version("1", capabilityFlavors=[flavor(architecture=["amd64"], boot=["odd"], disk=["big"])]),
        {
            '.capabilityFlavors[0].capabilities: Unsupported value: "disk": supported values: '
            '"architecture", "boot"',
            '.capabilityFlavors[0].capabilities.boot[0]: Unsupported value: "odd": supported values: '
            '"secure", "plain"',
        },
    ),
    (
        "architectures",
        version("1", capabilityFlavors=[flavor(), flavor(architecture=["amd64", "arm64"])]),
        {
            ".capabilityFlavors[0].capabilities.architecture: Invalid value: []: "
            "exactly one architecture must be given, as the CloudProfile has several",
            '.capabilityFlavors[1].capabilities.architecture: Invalid value: ["amd64", "arm64"]: exactly '
            "one architecture must be given, as the CloudProfile has several",
        },
    ),
)
def test_with_capabilities_flavors_are_checked(given: dict[str, Any], wanted: set[str]) -> None:
    message = refusal("validator", profile(config(image("a", given)), capabilities=CAPABILITIES))
    assert errors(message) == {f"{IMAGES}[0].versions[0]{one}" for one in wanted}


@rule("AD-24", "AD-25")
@pytest.mark.parametrize(("offered", "allowed"), [([], True), (None, True), (["plain"], False)])
def test_a_capability_without_values_is_not_one_with_all(offered: Any, allowed: bool) -> None:
    given = config(image("a", version("1", capabilityFlavors=[flavor(architecture=["arm64"], boot=offered)])))
    wanted = image("a", version("1", capabilityFlavors=[{"architecture": ["arm64"], "boot": []}]))
    assert answered("validator", profile(given, wanted, capabilities=CAPABILITIES)).allowed == allowed


ARM, AMD = flavor(architecture=["arm64"]), flavor(architecture=["amd64"])


@rule("AD-24")
def test_of_one_architecture_nothing_has_to_be_said() -> None:
    single = [{"name": "architecture", "values": ["arm64"]}]
    given = config(image("a", version("1", capabilityFlavors=[{"image": "a:1"}])))
    assert answered("validator", profile(given, image("a", version("1")), capabilities=single)).allowed


@rule("AD-25")
@cases(
    "images wanted",
    ("fits", [image("a", version("1", capabilityFlavors=[{"architecture": ["arm64"]}]))], None),
    (
        "all-values-are-none",
        [
            image(
                "a",
                version("1", capabilityFlavors=[{"architecture": ["arm64"], "boot": ["plain", "secure"]}]),
            )
        ],
        None,
    ),
    (
        "image",
        [image("x"), image("b", version("1"))],
        "[1]: Required value: machine image b of spec.machineImages has no entry",
    ),
    (
        "version",
        [image("a", version("2"))],
        "[0]: Required value: version a@2 of spec.machineImages has no entry",
    ),
    (
        "flavor",
        [image("a", version("1", capabilityFlavors=[{"architecture": ["arm64"], "boot": ["plain"]}]))],
        "[0]: Required value: version a@1 has no capability flavor for architecture: arm64, boot: plain",
    ),
    (
        "no-flavors",
        [image("a", version("1"))],
        "[0]: Required value: version a@1 has no capability flavor for architecture: amd64/arm64, "
        "boot: secure/plain",
    ),
)
def test_every_flavor_of_every_version_has_its_image(images: list[Any], wanted: str | None) -> None:
    given = config(image("a", version("1", capabilityFlavors=[ARM, AMD])))
    answer = answered("validator", profile(given, *images, capabilities=CAPABILITIES))
    assert answer.message == (f"{IMAGES}{wanted}" if wanted else "")


@rule("AD-25")
@cases(
    "images wanted",
    (
        "an-image",
        [
            image("a", version("1", capabilityFlavors=[ARM])),
            image("a", version("2", capabilityFlavors=[ARM])),
        ],
        "version a@1 of spec.machineImages has no entry: machine image a is listed more than once, and "
        "only its last entry counts: merge them",
    ),
    (
        "a-version",
        [image("a", version("1", capabilityFlavors=[ARM]), version("1", capabilityFlavors=[AMD]))],
        "version a@1 has no capability flavor for architecture: arm64, boot: secure/plain",
    ),
)
def test_of_what_a_config_lists_twice_the_last_counts(images: list[Any], wanted: str) -> None:
    of_profile = image("a", version("1", capabilityFlavors=[{"architecture": ["arm64"]}]))
    given = profile(config(*images), of_profile, capabilities=CAPABILITIES)
    assert refusal("validator", given) == f"{IMAGES}[0]: Required value: {wanted}"


@rule("AD-25")
def test_without_capabilities_an_image_without_an_entry_is_refused() -> None:
    given = profile(ONE, image("a", version("1.0.0")), image("b", version("1")))
    assert refusal("validator", given) == (
        f"{IMAGES}[1]: Required value: machine image b of spec.machineImages has no entry"
    )


def test_a_profile_of_a_wrong_type_cannot_be_decoded() -> None:
    answer = answered("validator", profile(ONE, capabilities="all"))
    assert (answer.code, answer.allowed) == (400, False)


@pytest.mark.parametrize("count", [300_000, 30_000])
def test_errors_of_a_huge_config_are_not_collected(count: int) -> None:
    answer = answered("validator", profile({**HEAD, "machineImages": [1] * count}))
    assert (answer.allowed, "has more than" in answer.message) == (False, True)


def test_the_first_errors_of_many_are_shown() -> None:
    message = refusal("validator", profile({**HEAD, "machineImages": [1] * 5_000}))
    assert message.count("machineImages.") == 20
    assert message.endswith("and 4980 more errors")
