"""Where azure answers otherwise than its extension, which crashes there, or takes anything."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from clouds import table
from clouds.frame import admission

_GROUP = "azure.provider.extensions.gardener.cloud/v1alpha1"
_PROFILE = {"spec": {"regions": [{"name": "westeurope", "zones": [{"name": "1"}]}]}}


def _shoot(networks: dict[str, Any], **networking: Any) -> dict[str, Any]:
    infra = {"apiVersion": _GROUP, "kind": "InfrastructureConfig", "zoned": True, "networks": networks}
    pool = {"name": "pool", "zones": ["1"], "volume": {"type": "Standard_LRS", "size": "50Gi"}}
    return {
        "spec": {
            "cloudProfile": {"name": "azure"},
            "region": "westeurope",
            "networking": {"type": "calico", "nodes": "10.250.0.0/16", **networking},
            "provider": {"type": "azure", "infrastructureConfig": infra, "workers": [pool]},
        }
    }


_WORKERS = {"vnet": {"cidr": "10.250.0.0/16"}, "workers": "10.250.0.0/19"}
_ZONES = {"vnet": {"cidr": "10.250.0.0/16"}, "zones": [{"name": 1, "cidr": "10.250.0.0/19"}]}


def _problems(new: dict[str, Any], old: dict[str, Any] | None = None) -> set[tuple[str, str]]:
    found = admission.problems(table.cloud("azure"), "shoot", new, old, lambda *_: _PROFILE)
    return {(one.path, one.type) for one in found}


def _mutated(new: dict[str, Any]) -> dict[str, Any]:
    return admission.mutated(table.cloud("azure"), new, None, lambda *_: _PROFILE)


@pytest.mark.parametrize(
    "enabled", [pytest.param({}, id="missing"), pytest.param({"enabled": "yes"}, id="text")]
)
def test_an_overlay_that_is_neither_on_nor_off_is_an_error_of_its_field(enabled: dict[str, Any]) -> None:
    """AZU-N2."""
    new = _shoot(_WORKERS, providerConfig={"overlay": enabled})

    assert _problems(new) == {("spec.networking.providerConfig.overlay.enabled", "Invalid")}


def test_zones_cannot_follow_on_a_stored_config_without_workers() -> None:
    """AZU-U5."""
    old = _shoot({"vnet": {"cidr": "10.250.0.0/16"}})

    assert _problems(_shoot(_ZONES), old) == {("metadata.networks.zones", "Forbidden")}


def test_zones_follow_on_workers_with_the_same_range() -> None:
    """AZU-U5."""
    assert _problems(_shoot(_ZONES), _shoot(_WORKERS)) == set()


@pytest.mark.parametrize(
    "overlay", [pytest.param({}, id="empty"), pytest.param("on", id="text"), pytest.param([1], id="list")]
)
def test_the_mutator_does_not_look_into_an_overlay(overlay: Any) -> None:
    """AZU-X2."""
    new = _shoot(_WORKERS, type="cilium", providerConfig={"overlay": overlay})

    assert _mutated(deepcopy(new)) == new


def test_a_cilium_shoot_gets_no_overlay_and_asks_upstream_over_udp() -> None:
    """AZU-X2."""
    new = _shoot(_WORKERS, type="cilium")
    new["spec"]["systemComponents"] = {"nodeLocalDNS": {"enabled": True}}

    spec = _mutated(new)["spec"]

    assert spec["networking"]["providerConfig"] == {"overlay": {"enabled": False}}
    assert spec["systemComponents"]["nodeLocalDNS"]["forceTCPToUpstreamDNS"] is False


def test_a_workers_range_that_vanishes_is_a_change_though_it_was_empty() -> None:
    """AZU-U2: a text that is empty is not one that is missing."""
    old = _shoot({"vnet": {"cidr": "10.250.0.0/16"}, "workers": ""})

    assert ("metadata.networks.workers", "Invalid") in _problems(
        _shoot({"vnet": {"cidr": "10.250.0.0/16"}}), old
    )


def test_a_secret_with_letters_that_are_no_base64_is_refused() -> None:
    secret = {"data": {"subscriptionID": "é"}}

    assert admission.problems(table.cloud("azure"), "secret", secret, None, lambda *_: None)
