"""CloudProfiles and NamespacedCloudProfiles that the garden admits, and images merged into their status."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.admitted import DELETED, Json, admitted, answered, refusal
from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.models import fielderrors

HEAD = {"apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1", "kind": "CloudProfileConfig"}
IMAGES = "spec.providerConfig.machineImages"
BOTH_ARCHITECTURES = {"name": "architecture", "values": ["amd64", "arm64"]}
CAPABILITIES = [BOTH_ARCHITECTURES, {"name": "boot", "values": ["secure", "plain"]}]


def image(name: str, *versions: str | Json) -> Json:
    """Versions may be spelled `number` or `number=image`."""
    return {"name": name, "versions": [version(v) if isinstance(v, str) else v for v in versions]}


def version(spelled: str, *flavors: Json, **more: Any) -> Json:
    number, equals, image = spelled.partition("=")
    given = {"image": image} if equals else {}
    return {"version": number, **given, **({"capabilityFlavors": list(flavors)} if flavors else {}), **more}


def plain(spelled: str) -> Json:
    """A version as it is merged into a status without capabilities."""
    return version(spelled, capabilityFlavors=None)


def flavor(image: str = "a:1", **capabilities: list[str]) -> Json:
    return {"image": image, "capabilities": capabilities}


ARM, AMD = flavor(architecture=["arm64"]), flavor(architecture=["amd64"])
WANTS_ARM: Json = {"architecture": ["arm64"]}


def config(*images: Json, **more: Any) -> Json:
    return {**HEAD, "machineImages": list(images), **more}


def profile(config: Any, *images: Json, capabilities: Any = None, **metadata: Any) -> Json:
    spec = {"machineImages": list(images), "machineCapabilities": capabilities, "providerConfig": config}
    head = {"apiVersion": "core.gardener.cloud/v1beta1", "kind": "CloudProfile"}
    return {**head, "metadata": {"name": "local", **metadata}, "spec": spec}


def errors(message: str) -> set[str]:
    """The single errors of a message, without the path that they share."""
    listed = message[1:-1] if message.startswith("[") else message
    return {error.removeprefix(IMAGES) for error in listed.split(f", {IMAGES}")}


ONE = config(image("a", "1.0.0=a:1"))
NO_NAME = "name: Required value: a machine image must have a name"
NO_VERSION = "versions: Required value: at least one version of machine image '' must be given"
NO_IMAGE = "image: Required value: a container image must be given"


@rule("AD-23", "AD-25")
def test_without_capabilities_an_image_is_enough_for_all_versions() -> None:
    given = profile(ONE, image("a", "1.0.0", "2.0.0"), image("no-versions"))
    assert answered("validator", given).allowed
    missing = f"{IMAGES}[1]: Required value: machine image b of spec.machineImages has no entry"
    assert refusal("validator", profile(ONE, image("a", "1.0.0"), image("b", "1"))) == missing


@rule("AD-20", "AD-26")
def test_a_profile_without_config_is_refused_even_under_deletion() -> None:
    assert refusal("validator", profile(None, **DELETED)) == (
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
    ("none", config(), {": Required value: at least one machine image must be given"}),
    ("null", config(machineImages=None), {": Required value: at least one machine image must be given"}),
    (
        "all-at-once",
        config(image(""), {"versions": None}, image("a", {}, version("1=", capabilityFlavors=None))),
        {
            *(f"[0].{NO_NAME}", f"[0].{NO_VERSION}", f"[1].{NO_NAME}", f"[1].{NO_VERSION}"),
            "[2].versions[0].version: Required value: the version must be given",
            *(f"[2].versions[0].{NO_IMAGE}", f"[2].versions[1].{NO_IMAGE}"),
        },
    ),
    (
        "flavors",
        config(image("a", version("1=a:1", flavor()))),
        {
            "[0].versions[0].capabilityFlavors: Forbidden: the CloudProfile has no "
            "machineCapabilities: give the container image in image"
        },
    ),
)
def test_all_missing_fields_are_reported_at_once(given: Any, wanted: set[str]) -> None:
    # The second stage would find these images unmapped; it comes only after the first.
    assert errors(refusal("validator", profile(given, image("other", "1")))) == wanted


@rule("AD-24")
@cases(
    "given wanted",
    (
        "images",
        version("1=a:1", {"capabilities": {"architecture": ["amd64"]}}),
        {
            "image: Forbidden: the CloudProfile has machineCapabilities: give images in capabilityFlavors",
            f"capabilityFlavors[0].{NO_IMAGE}",
        },
    ),
    (
        "unknown",
        version("1", flavor(architecture=["amd64"], boot=["odd"], disk=["big"])),
        {
            'capabilityFlavors[0].capabilities: Unsupported value: "disk": supported values: '
            '"architecture", "boot"',
            'capabilityFlavors[0].capabilities.boot[0]: Unsupported value: "odd": supported values: '
            '"secure", "plain"',
        },
    ),
    (
        "architectures",
        version("1", flavor(), flavor(architecture=["amd64", "arm64"])),
        {
            f"capabilityFlavors[{place}].capabilities.architecture: Invalid value: {found}: exactly one "
            "architecture must be given, as the CloudProfile has several"
            for place, found in ((0, "[]"), (1, '["amd64", "arm64"]'))
        },
    ),
)
def test_with_capabilities_flavors_are_checked(given: Json, wanted: set[str]) -> None:
    message = refusal("validator", profile(config(image("a", given)), capabilities=CAPABILITIES))
    assert errors(message) == {f"[0].versions[0].{one}" for one in wanted}


@rule("AD-24", "AD-25")
@pytest.mark.parametrize(("offered", "allowed"), [([], True), (None, True), (["plain"], False)])
def test_a_capability_without_values_is_not_one_with_all(offered: Any, allowed: bool) -> None:
    given = config(image("a", version("1", flavor(architecture=["arm64"], boot=offered))))
    wanted = image("a", version("1", WANTS_ARM | {"boot": []}))
    assert answered("validator", profile(given, wanted, capabilities=CAPABILITIES)).allowed == allowed


@rule("AD-24")
def test_a_single_architecture_need_not_be_named() -> None:
    single = [{"name": "architecture", "values": ["arm64"]}]
    given = config(image("a", version("1", {"image": "a:1"})))
    assert answered("validator", profile(given, image("a", "1"), capabilities=single)).allowed


LACKS = "version a@1 has no capability flavor for architecture:"


@rule("AD-25")
@cases(
    "images wanted",
    ("fits", [image("a", version("1", WANTS_ARM))], ""),
    ("all-values-are-none", [image("a", version("1", WANTS_ARM | {"boot": ["plain", "secure"]}))], ""),
    ("image", [image("x"), image("b", "1")], "machine image b of spec.machineImages has no entry"),
    ("version", [image("a", "2")], "version a@2 of spec.machineImages has no entry"),
    ("flavor", [image("a", version("1", WANTS_ARM | {"boot": ["plain"]}))], f"{LACKS} arm64, boot: plain"),
    ("no-flavors", [image("a", "1")], f"{LACKS} amd64/arm64, boot: secure/plain"),
)
def test_every_flavor_of_every_version_has_its_image(images: list[Any], wanted: str) -> None:
    given = config(image("a", version("1", ARM, AMD)))
    answer = answered("validator", profile(given, *images, capabilities=CAPABILITIES))
    assert answer.message == (f"{IMAGES}[{len(images) - 1}]: Required value: {wanted}" if wanted else "")


@rule("AD-25")
@cases(
    "images wanted",
    (
        "an-image",
        [image("a", version("1", ARM)), image("a", version("2", ARM))],
        "version a@1 of spec.machineImages has no entry: machine image a is listed more than once, and "
        "only its last entry counts: merge them",
    ),
    ("a-version", [image("a", version("1", ARM), version("1", AMD))], f"{LACKS} arm64, boot: secure/plain"),
)
def test_the_last_duplicate_in_a_config_counts(images: list[Any], wanted: str) -> None:
    given = profile(config(*images), image("a", version("1", WANTS_ARM)), capabilities=CAPABILITIES)
    assert refusal("validator", given) == f"{IMAGES}[0]: Required value: {wanted}"


def test_a_profile_of_a_wrong_type_cannot_be_decoded() -> None:
    answer = answered("validator", profile(ONE, capabilities="all"))
    assert (answer.code, answer.allowed) == (400, False)


def test_the_first_errors_of_many_are_shown() -> None:
    message = refusal("validator", profile(config(machineImages=[1] * 500)))
    assert message.count("machineImages.") == 20
    assert message.endswith("and 480 more errors")
    more = refusal("validator", profile(config(machineImages=[1] * 5_000)))
    assert more.endswith("5000 values are wrong: correct their types and names")


def test_long_errors_are_not_collected() -> None:
    made = []

    def errors() -> Iterator[str]:
        for number in range(1_000):
            made.append(number)
            yield "x" * 50_000

    assert len(fielderrors.first(errors())) == len(made) == 2


PARENT: Json = {"spec": {"machineImages": [image("old", "1", "2")], "machineCapabilities": None}}


def namespaced(config: Any, *images: Json, status: Any = None, metadata: Any = None, **spec: Any) -> Json:
    made = profile(config, *images)
    del made["spec"]["machineCapabilities"]
    head = {"name": "mine", "namespace": "garden-local", "generation": 1, **(metadata or {})}
    parent = {"parent": {"kind": "CloudProfile", "name": "local"}}
    of_kind = {"kind": "NamespacedCloudProfile", "metadata": head, "status": status or {}}
    return {**made, **of_kind, "spec": {**made["spec"], **parent, **spec}}


MANY, LONG = 1_000, "a" * 10_000
DEFINED = [{"name": str(number), "values": []} for number in range(MANY)]


def of_flavors(**capabilities: list[str]) -> Json:
    flavors = [flavor("a:1", **capabilities)] * MANY
    wanted = image("a", {"version": "1", "capabilityFlavors": [{}] * 9})
    return profile(config(image("a", version("1", *flavors))), wanted, capabilities=DEFINED)


@cases(
    "given",
    ("many-capabilities", of_flavors()),
    ("unknown-capabilities", of_flavors(unknown=[])),
)
def test_work_grows_with_the_size_of_a_profile_only(given: Json) -> None:
    assert steps(lambda: answered("validator", given)) < MANY * MANY / 2


def test_long_names_are_repeated_in_the_first_errors_only() -> None:
    given = namespaced(config(image(LONG, "x=x")), image(LONG, *map(str, range(MANY))))
    assert len(refusal("validator", given, found=PARENT)) < 10 * len(LONG)


def steps(act: Callable[[], object]) -> int:
    """The number of calls, and of steps of generators, that it takes."""
    counted = Counter[str]()
    sys.setprofile(lambda _, event, __: counted.update((event,)))
    try:
        act()
    finally:
        sys.setprofile(None)
    return counted.total()


@cases(
    "given found",
    ("profile", profile(config(machineImages=[1] * 300_000)), None),
    ("fewer", profile(config(machineImages=[1] * 30_000)), None),
    ("namespaced", namespaced(config(machineImages=[1] * 300_000)), PARENT),
)
def test_errors_of_a_huge_config_are_not_collected(given: Json, found: Any) -> None:
    answer = answered("validator", given, found=found)
    assert (answer.allowed, "has more than" in answer.message) == (False, True)


@cases(
    "given",
    ("AD-30-nothing", namespaced(None)),
    ("AD-30-known", namespaced(None, image("old", "2"))),
    ("AD-31-with-its-image", namespaced(config(image("old", "3=x")), image("old", "3"))),
)
def test_a_namespaced_profile_is_allowed(given: Json) -> None:
    assert answered("validator", given, found=PARENT).allowed


@rule("AD-30")
def test_a_profile_under_deletion_is_allowed_without_a_lookup() -> None:
    given = namespaced({"typo": 1}, metadata=DELETED)
    assert answered("validator", given, failure="must not be asked").allowed


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
    ("no-parent", namespaced(None), "it is not there"),
)
def test_a_profile_without_a_readable_parent_is_denied(given: Json, message: str) -> None:
    assert refusal("validator", given, failure="it is not there") == message


NEW, OLD = ": Required value: machine image new", ": Required value: machine image version old"
ODD = (
    "[0]: Required value: machine image odd is not defined in the NamespacedCloudProfile .spec.machineImages"
)
NOT_IN_CONFIG = "is not defined in the NamespacedCloudProfile providerConfig"
NOT_IN_PROFILE = "machine image version is not defined in the NamespacedCloudProfile"


@cases(
    "given wanted",
    ("AD-31-an-image", namespaced(None, image("new", "1", "2")), {f"{NEW} {NOT_IN_CONFIG}"}),
    ("AD-31-a-version", namespaced(None, image("old", "1", "3")), {f"{OLD}@3 {NOT_IN_CONFIG}"}),
    (
        "AD-32-a-version-of-the-parent",
        namespaced(config(image("old", "2=x")), image("old", "2")),
        {
            "[0].versions[0]: Forbidden: machine image version old@2 is already defined in the "
            "parent CloudProfile"
        },
    ),
    ("AD-33-an-image", namespaced(config(image("odd", "1=x"))), {ODD}),
    (
        "AD-33-a-version",
        namespaced(config(image("old", "3=x", "4=y")), image("old", "3")),
        {f'[0].versions[1]: Invalid value: "old@4": {NOT_IN_PROFILE}'},
    ),
    (
        "AD-31+AD-33-all-at-once",
        namespaced(config(image("odd", "1")), image("new", "1")),
        {f"{NEW} {NOT_IN_CONFIG}", ODD},
    ),
)
def test_a_profile_maps_exactly_its_added_images(given: Json, wanted: set[str]) -> None:
    assert errors(refusal("validator", given, found=PARENT)) == wanted


LAST = ": machine image new is listed more than once, and only its last entry counts: merge them"
TWICE = (image("new", "1"), image("new", "2"))


@cases(
    "given wanted",
    (
        "AD-33-in-the-spec",
        namespaced(config(image("new", "1=x", "2=y")), *TWICE),
        f'[0].versions[0]: Invalid value: "new@1": {NOT_IN_PROFILE}{LAST}',
    ),
    (
        "AD-31-in-the-config",
        namespaced(config(image("new", "1=x"), image("new", "2=y")), image("new", "1", "2")),
        f": Required value: machine image version new@1 {NOT_IN_CONFIG}{LAST}",
    ),
    ("AD-31-only-the-last-is-needed", namespaced(config(image("new", "2=y")), *TWICE), ""),
    ("AD-31-in-the-parent", namespaced(None, image("old", "1")), f"{OLD}@1 {NOT_IN_CONFIG}"),
)
def test_the_last_entry_of_an_image_counts(given: Json, wanted: str) -> None:
    parent = {"spec": {"machineImages": [image("old", "1"), image("old", "2")]}}
    assert answered("validator", given, found=parent).message == (f"{IMAGES}{wanted}" if wanted else "")


def status(config: Any, *, capabilities: Any = None, generation: int = 1) -> Json:
    spec = {"type": "local", "providerConfig": config, "machineCapabilities": capabilities}
    return {"observedGeneration": generation, "cloudProfileSpec": spec}


def merged(own: Any, inherited: Any, capabilities: Any = None) -> Any:
    given = namespaced(own, status=status(inherited, capabilities=capabilities))
    found = admitted("mutator", given)
    assert admitted("mutator", found) == found
    return found["status"]["cloudProfileSpec"]["providerConfig"]


OWN, INHERITED = config(image("a", "1=new")), config(image("a", "1=old"))


@rule("AD-11")
@cases(
    "given",
    ("under-deletion", namespaced(OWN, status=status(INHERITED), metadata=DELETED)),
    ("not-observed", namespaced(OWN, status=status(INHERITED, generation=2))),
    ("nothing-of-its-own", namespaced(None, status=status(INHERITED))),
    ("nothing-in-the-status", namespaced(OWN, status=status(None))),
    ("no-status", namespaced(OWN)),
)
def test_nothing_is_merged_too_early(given: Json) -> None:
    assert admitted("mutator", given) == given


@cases(
    "own inherited where",
    ("AD-12-own", config(typo=1), INHERITED, "spec.providerConfig: typo is unknown"),
    ("AD-12-of-the-status", OWN, {**INHERITED, "kind": "X"}, "status.cloudProfileSpec.providerConfig: kind"),
)
def test_configs_are_decoded_strictly(own: Any, inherited: Any, where: str) -> None:
    message = refusal("mutator", namespaced(own, status=status(inherited)))
    assert message.startswith(f"could not decode {where}")


@rule("AD-14", "AD-15")
def test_images_of_a_profile_override_its_parents() -> None:
    own = config(image("a", "2=mine", "3=new"), image("b", "1=b"), loadBalancer={"image": "ignored"})
    inherited = config(image("a", "1=a1", "2=a2"), loadBalancer={"image": "lb"})
    images = image("a", plain("1=a1"), plain("2=mine"), plain("3=new")), image("b", plain("1=b"))
    assert merged(own, inherited) == config(*images, loadBalancer={"image": "lb"})


@rule("AD-14")
def test_the_last_duplicate_in_a_profile_counts() -> None:
    twice = config(image("a", "1=x"), image("a", "2=y", "2=z"))
    assert merged(twice, config())["machineImages"] == [image("a", plain("2=z"))]


@rule("AD-15")
@pytest.mark.parametrize("balancer", [{}, {"loadBalancer": None}, {"loadBalancer": {}}])
def test_a_load_balancer_that_is_missing_has_no_image(balancer: Any) -> None:
    assert merged(OWN, INHERITED | balancer)["loadBalancer"] == {"image": ""}


FLAVORED = version("1", {"image": "x", "capabilities": {"architecture": ["amd64"]}}, {"image": "y"})


@rule("AD-13")
@cases(
    "own capabilities found",
    ("to-flavors", "1=x", CAPABILITIES, version("1", {"image": "x"})),
    ("flavors", FLAVORED, CAPABILITIES, FLAVORED),
    ("to-image", FLAVORED, None, plain("1=x")),
    ("image", "1=x", [], plain("1=x")),
    ("nothing-to-flavors", version("1=", capabilityFlavors=[]), CAPABILITIES, version("1", {"image": ""})),
    ("no-image", "1=", [], plain("1")),
)
def test_versions_are_converted_to_the_parents_format(own: Any, capabilities: Any, found: Json) -> None:
    assert merged(config(image("a", own)), config(), capabilities)["machineImages"] == [image("a", found)]
