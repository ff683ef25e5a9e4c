"""Configs: strict, but for what Go takes."""

from __future__ import annotations

from typing import Any

import pytest

from clouds.aws.api import ControlPlaneConfig, InfrastructureConfig, WorkerConfig
from clouds.frame.decoding import decode, decode_leniently, decode_shared
from windowbox.errors import Malformed

_VERSION = "aws.provider.extensions.gardener.cloud/v1alpha1"
_WHAT = "spec.provider.infrastructureConfig"


def _config(**fields: object) -> dict[str, Any]:
    return {"apiVersion": _VERSION, "kind": "InfrastructureConfig", **fields}


@pytest.mark.parametrize("nothing", [{"networks": None}, {"networks": {"zones": None}}, {}])
def test_null_is_the_zero_value(nothing: dict[str, Any]) -> None:
    assert decode(InfrastructureConfig, _config(**nothing), _WHAT).networks.zones == []


def test_null_in_a_list_is_an_empty_element() -> None:
    config = decode(InfrastructureConfig, _config(networks={"zones": [None]}), _WHAT)

    assert [zone.name for zone in config.networks.zones] == [""]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (_config(unexpected=1), "unexpected"),
        (_config(unexpected=None), "unexpected"),
        (_config(networks={"zones": [{"unexpected": None}]}), "unexpected"),
        (_config(dual_stack={"enabled": True}), "dual_stack"),
        (_config(networks={"zones": [{"name": 5}]}), "networks.zones.0.name"),
        (_config(networks=[]), "networks"),
        (_config(kind="infrastructureconfig"), "kind"),
        (_config(apiVersion="aws.provider.extensions.gardener.cloud/v1"), "apiVersion"),
        ("text", "apiVersion"),
        ([], "apiVersion"),
        (None, "apiVersion"),
    ],
)
def test_other_fields_and_types_are_refused_by_name(given: object, named: str) -> None:
    with pytest.raises(Malformed, match=_WHAT) as refused:
        decode(InfrastructureConfig, given, _WHAT)

    assert named in str(refused.value)


def test_a_config_of_a_million_values_is_not_read() -> None:
    zones = [{"name": str(i)} for i in range(1_000_000)]

    with pytest.raises(Malformed, match="more than"):
        decode(InfrastructureConfig, _config(networks={"zones": zones}), _WHAT)


def test_unknown_fields_of_a_stored_config_are_skipped_at_any_depth() -> None:
    stored = _config(networks={"zones": [{"name": "a", "old": 1}], "vpc": {"older": {}}}, oldest=True)

    assert decode_leniently(InfrastructureConfig, stored, _WHAT).networks.zones[0].name == "a"


def test_unknown_fields_of_maps_are_keys() -> None:
    given = {
        "apiVersion": _VERSION,
        "kind": "ControlPlaneConfig",
        "cloudControllerManager": {"featureGates": {"Any": None}},
    }
    manager = decode_leniently(ControlPlaneConfig, given, "spec").cloud_controller_manager

    assert manager is not None
    assert manager.feature_gates == {"Any": False}


@pytest.mark.parametrize(
    ("quantity", "good"),
    [
        ("100m", True),
        (2, True),
        (None, True),
        ("", False),
        (" 1", False),
        ("1 Gi", False),
        (True, False),
        ({}, False),
    ],
)
def test_quantities_are_those_of_kubernetes(quantity: object, good: bool) -> None:
    given = {
        "apiVersion": _VERSION,
        "kind": "WorkerConfig",
        "nodeTemplate": {"capacity": {"cpu": quantity}},
    }
    if good:
        decode(WorkerConfig, given, "spec")
    else:
        with pytest.raises(Malformed):
            decode(WorkerConfig, given, "spec")


def test_a_shared_config_is_decoded_once_for_the_very_same_content() -> None:
    given, other = _config(), _config()
    first = decode_shared(InfrastructureConfig, given, _WHAT)

    assert decode_shared(InfrastructureConfig, given, _WHAT) is first
    assert decode_shared(InfrastructureConfig, other, _WHAT) is not first
    for _ in range(2):
        with pytest.raises(Malformed):
            decode_shared(ControlPlaneConfig, given, _WHAT)
