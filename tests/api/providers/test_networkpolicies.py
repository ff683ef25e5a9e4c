"""The policies for those who run windowbox as Pods."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Any

import yaml

from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes.egress import ALWAYS_DENIED

POLICIES = Path(__file__).parents[3] / "deploy" / "networkpolicies.yaml"


def policies() -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(POLICIES.read_text()) if one["kind"] == "NetworkPolicy"]


def test_an_api_server_takes_the_policies(plane: ControlPlane) -> None:
    plane.api.apply("/api/v1/namespaces/windowbox-system", next(yaml.safe_load_all(POLICIES.read_text())))
    for policy in policies():
        name = policy["metadata"]["name"]
        path = f"/apis/networking.k8s.io/v1/namespaces/windowbox-system/networkpolicies/{name}"
        plane.api.apply(path, policy)


def test_what_is_always_denied_is_excepted_from_whatever_is_wide() -> None:
    blocks = [
        to["ipBlock"]
        for policy in policies()
        for rule in policy["spec"]["egress"]
        for to in rule["to"]
        if "ipBlock" in to
    ]
    wide = {
        block["cidr"]: [ip_network(one) for one in block["except"]] for block in blocks if "except" in block
    }
    assert set(wide) == {"0.0.0.0/0", "::/0"}
    assert all(ip_network(b["cidr"]).num_addresses == 1 for b in blocks if "except" not in b)
    for denied in ALWAYS_DENIED:
        excepted = wide["0.0.0.0/0" if denied.version == 4 else "::/0"]
        assert any(denied.subnet_of(one) for one in excepted), denied  # type: ignore[arg-type]
