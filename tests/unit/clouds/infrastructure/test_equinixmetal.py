"""Infrastructures of type equinixmetal: a key pair, and the addresses of machines."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from clouds.equinixmetal import checks
from clouds.frame.gardenobjects import Networking
from clouds.frame.infrastructure import Opening
from tests.support.cases import cases
from tests.support.cloudsites import planned
from tests.support.rules import rule
from windowbox.errors import Malformed

PROJECT = "0d60c06a-71a4-4bc4-bba3-0d7872a41e12"
KEY_ID = "71a3530e-6cd6-4ebf-9018-1be126d1c5c9"


@rule("EQX-I1", "ALL-F4")
def test_the_example_has_a_key_pair_and_a_state_of_terraform() -> None:
    found = planned("equinixmetal")

    assert [(one.kind, one.id, one.name) for one in found.objects] == [
        ("ssh-key", KEY_ID, "shoot--garden--example-ssh-publickey")
    ]
    assert found.provider_status == {
        "apiVersion": "equinixmetal.provider.extensions.gardener.cloud/v1alpha1",
        "kind": "InfrastructureStatus",
        "sshKeyID": KEY_ID,
    }
    assert found.state["encoding"] == "base64"
    state = json.loads(base64.b64decode(found.state["data"]))
    assert state["outputs"] == {"key_pair_id": {"value": KEY_ID, "type": "string"}}
    assert state["resources"][0]["instances"][0]["attributes"] == {
        "id": KEY_ID,
        "name": "shoot--garden--example-ssh-publickey",
        "project_id": PROJECT,
        "public_key": "ssh-rsa AAAA example",
    }
    assert (found.egress, found.networking) == ((), None)
    assert found.openings == (Opening("TCP"), Opening("UDP"))


@rule("EQX-I1")
def test_a_key_pair_stays_until_its_public_key_changes() -> None:
    first, again, other = (
        planned("equinixmetal", ssh_public_key=key)
        for key in ("ssh-rsa AAAA", "ssh-rsa AAAA", "ssh-rsa BBBB")
    )

    assert first == again
    assert first.objects[0].id != other.objects[0].id
    assert first.objects[0].properties != other.objects[0].properties


@rule("EQX-I1")
def test_the_config_is_not_read() -> None:
    assert planned("equinixmetal", {"networks": [{"of": "another cloud"}]}) == planned("equinixmetal")


@cases(
    "nodes cidr",
    ("of-the-shoot", "10.66.0.0/16", "10.66.0.0/16"),
    ("of-no-shoot", None, "10.250.0.0/16"),
)
def test_machines_have_addresses_of_the_node_network(nodes: str | None, cidr: str) -> None:
    found = planned("equinixmetal", networking=Networking(nodes=nodes))

    assert [(one.cidr, one.zone) for one in found.subnets] == [(cidr, "")]


@cases(
    "networking error",
    ("no-range", {"nodes": "10.66.0.0"}, 'spec.networking.nodes: Invalid value: "10.66.0.0": is no CIDR'),
    ("host-bits", {"nodes": "10.66.0.1/16"}, "spec.networking.nodes: .*canonical"),
    ("pods", {"pods": "10.240.0.0/12"}, "spec.networking.nodes: .* must not overlap .*spec.networking.pods"),
    ("services", {"services": "10.250.7.0/24"}, "must not overlap with .*spec.networking.services"),
)
def test_node_networks_that_cannot_be_used_are_refused(networking: dict[str, Any], error: str) -> None:
    with pytest.raises(Malformed, match=error):
        planned("equinixmetal", networking=Networking(**networking))


def test_a_shoot_without_ssh_is_refused() -> None:
    with pytest.raises(Malformed, match="sshPublicKey is missing"):
        planned("equinixmetal", ssh_public_key="")


@rule("EQX-S1")
def test_a_project_with_an_endless_id_is_refused() -> None:
    with pytest.raises(Malformed, match="projectID has more than 64 characters"):
        checks.account({"projectID": b"x" * 65})
