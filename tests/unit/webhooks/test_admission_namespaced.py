"""What NamespacedCloudProfiles add to their parents."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.admitted import admitted, answered, refusal
from tests.support.cases import cases
from tests.support.rules import rule
from tests.unit.webhooks.test_admission_profiles import CAPABILITIES, IMAGES, config, errors, image, version

PARENT = {"kind": "CloudProfile", "name": "local"}
OF_PARENT = {
    "spec": {"machineImages": [image("old", version("1"), version("2"))], "machineCapabilities": None}
}


def namespaced(
    config: Any, *images: Any, status: Any = None, generation: int = 1, **spec: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "core.gardener.cloud/v1beta1",
        "kind": "NamespacedCloudProfile",
        "metadata": {"name": "mine", "namespace": "garden-local", "generation": generation},
        "spec": {"parent": PARENT, "machineImages": list(images), "providerConfig": config, **spec},
        "status": status or {},
    }


def under_deletion(profile: dict[str, Any]) -> dict[str, Any]:
    return profile | {"metadata": {**profile["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


@rule("AD-30")
def test_a_profile_that_adds_nothing_is_allowed() -> None:
    assert answered("validator", namespaced(None), found=OF_PARENT).allowed
    assert answered("validator", namespaced(None, image("old", version("2"))), found=OF_PARENT).allowed


@rule("AD-30")
def test_a_profile_under_deletion_is_allowed_without_a_lookup() -> None:
    assert answered("validator", under_deletion(namespaced({"typo": 1})), failure="must not be asked").allowed


@rule("AD-30")
@cases(
    "given message",
    (
        "another-kind",
        namespaced(None, parent={"kind": "NamespacedCloudProfile", "name": "x"}),
        "parent reference must be of kind CloudProfile (unsupported kind: NamespacedCloudProfile)",
    ),
    (
        "strict-decoding",
        namespaced(config(typo=1)),
        "could not decode spec.providerConfig: typo is unknown (it is 1): take it out, or correct its name",
    ),
    ("no-parent", namespaced(None), 'cloudprofiles.core.gardener.cloud "local" not found'),
)
def test_a_profile_without_a_parent_that_can_be_read_is_denied(given: Any, message: str) -> None:
    assert (
        refusal("validator", given, failure='cloudprofiles.core.gardener.cloud "local" not found') == message
    )


ODD = (
    f"{IMAGES}[0]: Required value: machine image odd is not defined in the NamespacedCloudProfile "
    ".spec.machineImages"
)
NOT_IN_CONFIG = "is not defined in the NamespacedCloudProfile providerConfig"


@cases(
    "given wanted",
    (
        "AD-31-an-image",
        namespaced(None, image("new", version("1"), version("2"))),
        {f"{IMAGES}: Required value: machine image new {NOT_IN_CONFIG}"},
    ),
    (
        "AD-31-a-version",
        namespaced(None, image("old", version("1"), version("3"))),
        {f"{IMAGES}: Required value: machine image version old@3 {NOT_IN_CONFIG}"},
    ),
    (
        "AD-32-a-version-of-the-parent",
        namespaced(config(image("old", version("2", image="x"))), image("old", version("2"))),
        {
            f"{IMAGES}[0].versions[0]: Forbidden: machine image version old@2 is already defined in the "
            "parent CloudProfile"
        },
    ),
    ("AD-33-an-image", namespaced(config(image("odd", version("1", image="x")))), {ODD}),
    (
        "AD-33-a-version",
        namespaced(
            config(image("old", version("3", image="x"), version("4", image="y"))), image("old", version("3"))
        ),
        {
            f'{IMAGES}[0].versions[1]: Invalid value: "old@4": '
            "machine image version is not defined in the NamespacedCloudProfile"
        },
    ),
    (
        "AD-31+AD-33-all-at-once",
        namespaced(config(image("odd", version("1"))), image("new", version("1"))),
        {f"{IMAGES}: Required value: machine image new {NOT_IN_CONFIG}", ODD},
    ),
)
def test_a_profile_maps_what_it_adds_and_nothing_else(given: Any, wanted: set[str]) -> None:
    assert errors(refusal("validator", given, found=OF_PARENT)) == wanted


LAST = ": machine image new is listed more than once, and only its last entry counts: merge them"


@cases(
    "given wanted",
    (
        "AD-33-in-the-spec",
        namespaced(
            config(image("new", version("1", image="x"), version("2", image="y"))),
            image("new", version("1")),
            image("new", version("2")),
        ),
        f'{IMAGES}[0].versions[0]: Invalid value: "new@1": machine image version is not defined in the '
        f"NamespacedCloudProfile{LAST}",
    ),
    (
        "AD-31-in-the-config",
        namespaced(
            config(image("new", version("1", image="x")), image("new", version("2", image="y"))),
            image("new", version("1"), version("2")),
        ),
        f"{IMAGES}: Required value: machine image version new@1 {NOT_IN_CONFIG}{LAST}",
    ),
    (
        "AD-31-only-the-last-is-needed",
        namespaced(
            config(image("new", version("2", image="y"))),
            image("new", version("1")),
            image("new", version("2")),
        ),
        "",
    ),
    (
        "AD-31-in-the-parent",
        namespaced(None, image("old", version("1"))),
        f"{IMAGES}: Required value: machine image version old@1 {NOT_IN_CONFIG}",
    ),
)
def test_of_an_image_that_is_listed_twice_the_last_counts(given: Any, wanted: str) -> None:
    images = [image("old", version("1")), image("old", version("2"))]
    parent = {"spec": {"machineImages": images}}
    assert answered("validator", given, found=parent).message == wanted


@rule("AD-31")
def test_a_new_version_with_its_image_is_allowed() -> None:
    given = namespaced(config(image("old", version("3", image="x"))), image("old", version("3")))
    assert answered("validator", given, found=OF_PARENT).allowed


def status(config: Any, *, capabilities: Any = None, generation: int = 1) -> dict[str, Any]:
    spec = {"type": "local", "providerConfig": config, "machineCapabilities": capabilities}
    return {"observedGeneration": generation, "cloudProfileSpec": spec}


def merged(own: Any, inherited: Any, capabilities: Any = None) -> Any:
    given = namespaced(own, status=status(inherited, capabilities=capabilities))
    found = admitted("mutator", given)
    assert admitted("mutator", found) == found
    return found["status"]["cloudProfileSpec"]["providerConfig"]


BOTH = (config(image("a", version("1", image="new"))), config(image("a", version("1", image="old"))))


@rule("AD-11")
@cases(
    "given",
    ("under-deletion", under_deletion(namespaced(BOTH[0], status=status(BOTH[1])))),
    ("not-observed", namespaced(BOTH[0], status=status(BOTH[1], generation=2))),
    ("nothing-of-its-own", namespaced(None, status=status(BOTH[1]))),
    ("nothing-in-the-status", namespaced(BOTH[0], status=status(None))),
    ("no-status", namespaced(BOTH[0])),
)
def test_nothing_is_merged_too_early(given: Any) -> None:
    assert admitted("mutator", given) == given


@rule("AD-12")
@pytest.mark.parametrize(
    ("own", "inherited", "where"),
    [
        (config(typo=1), BOTH[1], "spec.providerConfig: typo is unknown"),
        (BOTH[0], {**BOTH[1], "kind": "X"}, "status.cloudProfileSpec.providerConfig: kind is 'X'"),
    ],
)
def test_configs_are_decoded_strictly(own: Any, inherited: Any, where: str) -> None:
    message = refusal("mutator", namespaced(own, status=status(inherited)))
    assert message.startswith(f"could not decode {where}")


@rule("AD-14", "AD-15")
def test_what_a_profile_adds_wins() -> None:
    own = config(
        image("a", version("2", image="mine"), version("3", image="new")), image("b", version("1", image="b"))
    )
    inherited = config(
        image("a", version("1", image="a1"), version("2", image="a2")), loadBalancer={"image": "lb"}
    )
    assert merged({**own, "loadBalancer": {"image": "ignored"}}, inherited) == config(
        image(
            "a",
            version("1", image="a1", capabilityFlavors=None),
            version("2", image="mine", capabilityFlavors=None),
            version("3", image="new", capabilityFlavors=None),
        ),
        image("b", version("1", image="b", capabilityFlavors=None)),
        loadBalancer={"image": "lb"},
    )


@rule("AD-14")
def test_of_what_a_profile_lists_twice_the_last_counts() -> None:
    twice = (
        image("a", version("1", image="x")),
        image("a", version("2", image="y"), version("2", image="z")),
    )
    [found] = merged(config(*twice), config())["machineImages"]
    assert found == image("a", version("2", image="z", capabilityFlavors=None))


@rule("AD-15")
@pytest.mark.parametrize("balancer", [{}, {"loadBalancer": None}, {"loadBalancer": {}}])
def test_a_load_balancer_that_is_missing_has_no_image(balancer: Any) -> None:
    assert merged(BOTH[0], BOTH[1] | balancer)["loadBalancer"] == {"image": ""}


FLAVORS = [{"image": "x", "capabilities": {"architecture": ["amd64"]}}, {"image": "y"}]


@rule("AD-13")
@cases(
    "own capabilities found",
    ("to-flavors", version("1", image="x"), CAPABILITIES, version("1", capabilityFlavors=[{"image": "x"}])),
    (
        "flavors",
        version("1", capabilityFlavors=FLAVORS),
        CAPABILITIES,
        version("1", capabilityFlavors=FLAVORS),
    ),
    (
        "to-image",
        version("1", capabilityFlavors=FLAVORS),
        None,
        version("1", image="x", capabilityFlavors=None),
    ),
    ("image", version("1", image="x"), [], version("1", image="x", capabilityFlavors=None)),
    (
        "nothing-to-flavors",
        version("1", image="", capabilityFlavors=[]),
        CAPABILITIES,
        version("1", capabilityFlavors=[{"image": ""}]),
    ),
    ("no-image", version("1", image=""), [], version("1", capabilityFlavors=None)),
)
def test_versions_are_brought_to_the_format_of_the_parent(own: Any, capabilities: Any, found: Any) -> None:
    assert merged(config(image("a", own)), config(), capabilities)["machineImages"] == [image("a", found)]


def test_errors_of_a_huge_config_are_not_collected() -> None:
    answer = answered("validator", namespaced({**config(), "machineImages": [1] * 300_000}), found=OF_PARENT)
    assert (answer.allowed, "has more than" in answer.message) == (False, True)
