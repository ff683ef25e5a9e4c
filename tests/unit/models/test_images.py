"""Which image the image vector has for a component."""

from __future__ import annotations

import pytest

from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.errors import Malformed, Missing
from windowbox.models import constraints
from windowbox.models.gardener.images import BUILT_IN, ImageSource, ImageVector


@cases(
    "constraint yes no",
    ("IV-5-at-least", ">= 1.32", "1.32.0 1.33.1 2.0.0", "1.31.9"),
    ("IV-5-beyond-a-minor", "> 1.32", "1.33.0", "1.32.7"),
    ("IV-5-beyond", "> 1.32.1", "1.32.2", "1.32.1"),
    ("IV-5-up-to-a-minor", "<= 1.32", "1.32.9 1.0.0", "1.33.0"),
    ("IV-5-below", "< 1.32", "1.31.9", "1.32.0"),
    ("IV-5-full", "1.32.4", "1.32.4", "1.32.5"),
    ("IV-5-minor", "= 1.32", "1.32.4", "1.33.0"),
    ("IV-5-not", "!= 1.32.4", "1.32.5", "1.32.4"),
    ("IV-5-tilde", "~1.32.4", "1.32.9", "1.33.0 1.32.3"),
    ("IV-5-tilde-major", "~1", "1.9.0", "2.0.0"),
    ("IV-5-caret", "^1.32.4", "1.40.0", "2.0.0 1.32.3"),
    ("IV-5-caret-zero", "^0.2.3", "0.2.9", "0.3.0"),
    ("IV-5-wildcard", "1.32.x", "1.32.9", "1.33.0"),
    ("IV-5-any", "*", "0.0.1 9.9.9", ""),
    ("IV-5-both", ">= 1.30, < 1.32", "1.31.0", "1.32.0 1.29.9"),
    ("IV-5-both-by-space", ">=1.30 <1.32", "1.31.0", "1.32.0"),
    ("IV-5-range", "1.30 - 1.32", "1.32.9 1.30.0", "1.33.0 1.29.1"),
    ("IV-5-either", "< 1.20 || >= 1.32", "1.19.0 1.32.0", "1.25.0"),
    ("IV-6-normalised", "v1.32.0", "v1.32.0 1.32.0-gke.1 1.32.0+abc 1.32.0~1", "1.32.1"),
)
def test_constraints_match_versions(constraint: str, yes: str, no: str) -> None:
    assert all(constraints.matches(constraint, constraints.version(one)) for one in yes.split())
    assert not any(constraints.matches(constraint, constraints.version(one)) for one in no.split())


@pytest.mark.parametrize("constraint", ["", "new", ">=", "1.2.3.4", ">= 1.2 ||", "1,,2", "><1"])
def test_other_texts_are_no_constraints(constraint: str) -> None:
    with pytest.raises(Malformed, match="is no version constraint"):
        constraints.check(constraint)


@pytest.mark.parametrize("version", ["", "new", "1.2.3.4", "1.x"])
def test_other_texts_are_no_versions(version: str) -> None:
    with pytest.raises(Malformed, match="is no version"):
        constraints.version(version)


def source(tag: str, **fields: object) -> ImageSource:
    return ImageSource.model_validate({"name": "a", "repository": "r", "tag": tag, **fields})


ANY = source("any")
ARM = source("arm", architectures=["arm64"])
AMD = source("amd", architectures=["amd64"])
NEW = source("new", targetVersion=">= 1.32")
EXACT = source("exact", targetVersion="1.32.4")
EQUAL = source("equal", targetVersion="= 1.32")
OLD = source("old", version="9.9")
SEED = source("seed", runtimeVersion=">= 1.30")


@cases(
    "images asked tag",
    ("IV-5-constraint-wins", [ANY, NEW], {"target": "1.32.4"}, "new"),
    ("IV-5-constraint-excludes", [ANY, NEW], {"target": "1.31.4"}, "any"),
    ("IV-5-no-version-asked", [NEW], {}, "new"),
    ("IV-5-full-version-wins", [NEW, EXACT], {"target": "1.32.4"}, "exact"),
    ("IV-5-equals-sign-wins", [NEW, EQUAL], {"target": "1.32.4"}, "equal"),
    ("IV-5-first-of-equals", [NEW, SEED], {"target": "1.32.4", "runtime": "1.33"}, "new"),
    ("IV-5-one-architecture-wins", [ANY, AMD], {}, "amd"),
    ("IV-5-default-architecture", [ANY, ARM], {}, "any"),
    ("IV-5-architecture", [ANY, ARM], {"architecture": "arm64"}, "arm"),
    ("IV-3-no-constraint", [OLD, ANY], {"target": "1.32.4"}, "old"),
)
def test_the_best_entry_is_found(images: list[ImageSource], asked: dict[str, str], tag: str) -> None:
    assert ImageVector(images=tuple(images)).image("a", **asked) == f"r:{tag}"


@rule("IV-5")
def test_an_image_that_is_missing_is_named() -> None:
    words = "no image 'a' for runtime version -, target version 1.3 and architecture amd64"
    with pytest.raises(Missing, match=words):
        ImageVector(images=(ARM,)).image("a", target="1.3")


@cases(
    "fields image",
    ("IV-7-ref", {"ref": "r@sha256:0"}, "r@sha256:0"),
    ("IV-7-tag", {"repository": "r", "tag": "v1"}, "r:v1"),
    ("IV-7-digest", {"repository": "r", "tag": "sha256:0"}, "r@sha256:0"),
    ("IV-7-tag-and-digest", {"repository": "r", "tag": "v1@sha256:0"}, "r:v1@sha256:0"),
    ("IV-7-target-version", {"repository": "r"}, "r:v1.32.4"),
)
def test_the_name_of_an_image(fields: dict[str, str], image: str) -> None:
    made = ImageVector(images=(ImageSource.model_validate({"name": "a", **fields}),))
    assert made.image("a", target="1.32.4") == image


@cases(
    "before by after",
    ("IV-4", {"repository": "r", "tag": "1"}, {"repository": "s"}, ("", "s", "1", "1")),
    ("IV-4-tag", {"repository": "r", "tag": "1"}, {"tag": "2"}, ("", "r", "2", "1")),
    ("IV-4-ref", {"repository": "r", "tag": "1"}, {"ref": "x"}, ("x", "", "", "")),
    ("IV-4-no-ref", {"ref": "x"}, {"repository": "s", "tag": "2"}, ("", "s", "2", "")),
    ("IV-4-ref-stays", {"ref": "x"}, {"version": "2"}, ("x", "", "", "2")),
    ("IV-4-tag-in-vain", {"ref": "x", "version": "1"}, {"tag": "2"}, ("x", "", "", "1")),
)
def test_entries_of_one_key_are_merged(
    before: dict[str, str], by: dict[str, str], after: tuple[str, ...]
) -> None:
    vector = ImageVector(images=(ImageSource.model_validate({"name": "a", **before}),))
    (merged,) = vector.overwritten([ImageSource.model_validate({"name": "a", **by})]).images
    assert (merged.ref, merged.repository, merged.tag, merged.version) == after


@rule("IV-4", "A.14")
def test_the_example_of_the_contract() -> None:
    """Its last entry has another key than the built-in one, and wins where it fits."""
    mcm, ccm = "machine-controller-manager-provider-local", "registry.local/ccm-local@sha256:00"
    about = {"targetVersion": ">= 1.32", "architectures": ["amd64"]}
    overwrites = [
        {"name": "local-path-provisioner", "repository": "registry.local/lpp", "tag": "v0.0.30"},
        {"name": "cloud-controller-manager-local", "ref": ccm},
        {"name": mcm, "repository": "registry.local/mcm", "tag": "v0.1.0", **about},
    ]
    vector = BUILT_IN.overwritten([ImageSource.model_validate(one) for one in overwrites])
    assert len(vector.images) == 5
    assert vector.image("local-path-provisioner") == "registry.local/lpp:v0.0.30"
    assert vector.image("cloud-controller-manager-local", target="1.36.0") == ccm
    assert vector.image(mcm, target="1.36.0") == "registry.local/mcm:v0.1.0"
    assert vector.image(mcm, target="1.36.0", architecture="arm64") == f"{mcm}:v0.0.0"
    assert vector.image(mcm, target="1.31.0") == f"{mcm}:v0.0.0"
