"""The examples of six clouds, and rules that no case is about."""

from __future__ import annotations

from typing import Any

import pytest

from clouds import table
from clouds.frame import admission
from tests.support import cloudobjects
from tests.support.cases import cases
from tests.support.cloudobjects import CLOUDS, provider, shoot


@pytest.mark.parametrize("cloud", CLOUDS)
def test_each_object_of_an_example_is_accepted(cloud: str) -> None:
    for each in cloudobjects.example(cloud):
        assert cloudobjects.problems(cloud, each) == []


@cases(
    "logs problems",
    ("GCP-I10-empty", {}, {("spec.provider.infrastructureConfig.networks.flowLogs", "Required")}),
    ("GCP-I10-one-field", {"flowSampling": 0.5}, set()),
)
def test_flow_logs_have_a_field(logs: dict[str, Any], problems: set[tuple[str, str]]) -> None:
    new = shoot("gcp")
    provider(new)["infrastructureConfig"]["networks"]["flowLogs"] = logs

    assert {(one.path, one.type) for one in cloudobjects.problems("gcp", new)} == problems


@cases(
    "zone types",
    ("GCP-C3-with-a-pool", "europe-west1-b", []),
    ("GCP-C3-without-a-pool", "europe-west1-d", ["Invalid"]),
    ("GCP-C3-of-another-region", "europe-west4-a", ["NotSupported", "Invalid"]),
)
def test_the_zone_of_a_control_plane_has_a_pool(zone: str, types: list[str]) -> None:
    new = shoot("gcp")
    provider(new)["controlPlaneConfig"]["zone"] = zone

    assert [one.type for one in cloudobjects.problems("gcp", new)] == types


@cases(
    "overlay controlled",
    ("AWS-M1-new", None, True),
    ("AWS-M1-on", {"enabled": True}, False),
    ("AWS-M1-off", {"enabled": False}, True),
)
def test_the_custom_route_controller_runs_without_overlay(
    overlay: dict[str, Any] | None, controlled: bool
) -> None:
    new = shoot("aws")
    if overlay is not None:
        new["spec"]["networking"]["providerConfig"] = {"overlay": overlay}

    changed = admission.mutated(table.cloud("aws"), new, None, lambda *_: None)

    manager = provider(changed)["controlPlaneConfig"]["cloudControllerManager"]
    assert manager == {"useCustomRouteController": controlled}
