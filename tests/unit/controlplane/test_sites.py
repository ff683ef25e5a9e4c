"""Errors in a Cluster are reported before anything is created: field, value and remedy."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.support.cases import cases
from tests.support.rules import rule
from tests.unit.controlplane.doors import CLUSTER, NAMESPACE, PROVIDER_CONFIG
from windowbox.errors import Malformed
from windowbox.models.objects import Object
from workers.kinds.controlplane import controlplanesite

PROFILE = "spec of the CloudProfile"
CONFIG = "spec.providerConfig of the CloudProfile"
LIMIT = 1665
"""Images in a configuration of 10,000 values, of which five are others."""


def deep(levels: int) -> Any:
    made: Any = 1
    for _ in range(levels):
        made = {"a": made}
    return made


def images(count: int) -> list[dict[str, Any]]:
    """So many images; each is six values of a configuration."""
    return [{"name": f"i{number}", "versions": [{"version": "1", "image": "x"}]} for number in range(count)]


def profile(spec: Any) -> Object:
    cluster: dict[str, Any] = copy.deepcopy(CLUSTER)
    cluster["spec"]["cloudProfile"] = {"spec": spec}
    return Object(cluster)


def config(**fields: Any) -> Object:
    return profile({"providerConfig": {**PROVIDER_CONFIG, **fields}})


@rule("B.9", "E-2")
@pytest.mark.parametrize(
    ("cluster", "reported"),
    [
        pytest.param(profile(None), f"{CONFIG} is missing: add a CloudProfileConfig", id="no-spec"),
        pytest.param(profile({}), f"{CONFIG} is missing: add a CloudProfileConfig", id="none"),
        pytest.param(profile("x"), f"{PROFILE}: it is 'x': make it a mapping", id="spec-of-text"),
        pytest.param(
            profile({"providerConfig": [1]}),
            f"{PROFILE}: providerConfig is [1]: make it a mapping",
            id="a-list",
        ),
        pytest.param(
            profile({"providerConfig": {}}),
            f"{CONFIG}: apiVersion is missing: add it; kind is missing: add it",
            id="empty",
        ),
        pytest.param(
            config(kind="WorkerConfig"),
            f"{CONFIG}: kind is 'WorkerConfig': make it 'CloudProfileConfig'",
            id="another-kind",
        ),
        pytest.param(
            config(extra=1),
            f"{CONFIG}: extra is unknown (it is 1): take it out, or correct its name",
            id="unknown",
        ),
        pytest.param(config(extra=deep(500)), f"{CONFIG}: extra is unknown (it is {{'a': ", id="deep"),
        pytest.param(
            config(loadBalancer="x"),
            f"{CONFIG}: loadBalancer is 'x': make it a mapping",
            id="balancer-of-text",
        ),
        pytest.param(
            config(loadBalancer={"image": 3}),
            f"{CONFIG}: loadBalancer.image is 3: write a text, in quotes",
            id="image-of-number",
        ),
        *(
            pytest.param(
                config(machineImages=wrong), f"{CONFIG}: machineImages is {wrong!r}: make it a list", id=id
            )
            for wrong, id in (
                ("x", "images-of-text"),
                (5, "images-of-number"),
                ({"a": 1}, "images-of-mapping"),
            )
        ),
        pytest.param(
            config(machineImages=images(LIMIT + 1)),
            f"{CONFIG} has more than 10000 values: take out what is not needed any more",
            id="too-many",
        ),
        pytest.param(
            config(**{f"k{number}": number for number in range(100)}),
            "; and 80 more errors",
            id="a-hundred-errors",
        ),
        pytest.param(
            config(**{f"k{number}": number for number in range(3000)}),
            "3000 values are wrong: correct their types and names",
            id="many-errors",
        ),
    ],
)
def test_a_profile_that_cannot_be_read(cluster: Object, reported: str) -> None:
    with pytest.raises(Malformed) as caught:
        controlplanesite.balancer_image(cluster)
    assert reported in str(caught.value)
    assert len(str(caught.value)) < 2500


@pytest.mark.parametrize("wrong", [None, {"image": None}, {}])
def test_a_profile_needs_no_image_for_load_balancers(wrong: Any) -> None:
    assert controlplanesite.balancer_image(config(loadBalancer=wrong)) is None


def test_a_profile_may_have_thousands_of_images() -> None:
    assert controlplanesite.balancer_image(config(machineImages=images(LIMIT))) == "envoy:1"


def technical_id(value: Any) -> Object:
    cluster: dict[str, Any] = copy.deepcopy(CLUSTER)
    cluster["spec"]["shoot"]["status"]["technicalID"] = value
    return Object(cluster)


@pytest.mark.parametrize("wrong", ["../../x", "a" * 58, "A", "-a", "a-", "a.b", "a\n", 1.5, {"a": 1}])
def test_a_technical_id_that_names_no_namespace(wrong: Any) -> None:
    with pytest.raises(Malformed) as caught:
        controlplanesite.site(technical_id(wrong))
    assert f"is {str(wrong)!r:.80}: make it at most 57 lower-case letters" in str(caught.value)


@pytest.mark.parametrize("right", ["a" * 57, "a", "shoot--garden--b"])
def test_a_technical_id_that_names_a_namespace(right: str) -> None:
    assert controlplanesite.site(technical_id(right)).shoot.technical_id == right


@pytest.mark.parametrize(
    ("part", "wrong"),
    [("kubernetes", "x"), ("hibernation", [1]), ("provider", 7), ("networking", {"nodes": {}})],
)
def test_parts_of_a_shoot_that_are_no_such_parts_count_as_missing(part: str, wrong: Any) -> None:
    cluster: dict[str, Any] = copy.deepcopy(CLUSTER)
    cluster["spec"]["shoot"]["spec"] = {part: wrong}
    cluster["spec"]["seed"] = "x"
    site = controlplanesite.site(Object(cluster))
    assert (site.shoot_version, site.seed_version, site.may_sleep) == ("", "", False)
    assert site.namespace == NAMESPACE


@rule("C-5")
@cases(
    "named, found",
    {
        "by-default": ({}, "generic-token-kubeconfig"),
        "named": ({"generic-token-kubeconfig.secret.gardener.cloud/name": "generic-1234"}, "generic-1234"),
        "empty": ({"generic-token-kubeconfig.secret.gardener.cloud/name": ""}, "generic-token-kubeconfig"),
    },
)
def test_the_cluster_names_the_generic_kubeconfig(named: dict[str, str], found: str) -> None:
    cluster: dict[str, Any] = copy.deepcopy(CLUSTER)
    cluster["metadata"]["annotations"] = named
    assert controlplanesite.site(Object(cluster)).generic_kubeconfig == found
