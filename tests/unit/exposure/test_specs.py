"""Valid and invalid specs of exposures, and the objects created for them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases import cases
from windowbox.errors import Malformed
from windowbox.models.objects import Object
from workers.kinds.exposure import exposurepool
from workers.kinds.exposure.exposurepool import ExposureSpec


def spec(*addresses: tuple[str, str], **fields: Any) -> dict[str, Any]:
    spelled = [{"type": kind, "address": address} for kind, address in addresses]
    return {"port": 443, "endpoints": [{"nodeName": "node-0", "addresses": spelled}]} | fields


def secret(**fields: Any) -> dict[str, Any]:
    found = {"apiVersion": "v1", "kind": "Secret", "name": "cloudprovider", "namespace": "kube-system"}
    return {"credentialsRef": found | fields}


@cases(
    "addresses, found",
    {
        "SE-2-one": ([("InternalIP", "10.0.0.1")], ["10.0.0.1"]),
        "SE-2-host-name": ([("InternalIP", "10.0.0.1"), ("Hostname", "node-0")], ["10.0.0.1"]),
        "SE-2-outside": ([("ExternalIP", "10.0.0.1"), ("InternalIP", "fd00::1")], ["fd00::1"]),
        "A-7-not-used": ([("ExternalIP", "fe80::1"), ("InternalIP", "fd00::1")], ["fd00::1"]),
        "SE-2-twice": ([("InternalIP", "10.0.0.1"), ("InternalIP", "10.0.0.1")], ["10.0.0.1"]),
        "SE-2-names-alone": ([("ExternalDNS", "Node.Example.org")], []),
    },
)
def test_addresses_are_those_within_the_nodes_network(
    addresses: list[tuple[str, str]], found: list[str]
) -> None:
    assert [str(address) for address in exposurepool.parsed(spec(*addresses)).addresses] == found


@cases(
    "fields, complaint",
    {
        "A-7-port-0": ({"port": 0}, r"spec\.port: 0 "),
        "A-7-port-too-high": ({"port": 65536}, r"spec\.port: 65536 "),
        "A-7-no-endpoints": ({"endpoints": []}, r"spec\.endpoints is empty"),
        "A-7-no-node": ({"endpoints": [{"nodeName": "", "addresses": []}]}, r"endpoints\[0\]\.nodeName"),
    },
)
def test_an_invalid_field_is_named(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint):
        exposurepool.parsed(spec(("InternalIP", "10.0.0.1"), **fields))


@cases(
    "kind, address, complaint",
    {
        "A-7-unknown-type": ("Phone", "10.0.0.1", r"addresses\[0\]\.type: 'Phone'"),
        "A-7-no-ip": ("InternalIP", "10.0.0.300", r"address: '10\.0\.0\.300'"),
        "A-7-no-outer-ip": ("ExternalIP", "node-0", r"address: 'node-0'"),
        "A-7-no-name": ("Hostname", "no/name", r"address: 'no/name'"),
        "loopback": ("InternalIP", "127.0.0.1", "leads to no node"),
        "link-local": ("InternalIP", "fe80::1%eth0", "leads to no node"),
        "unspecified": ("InternalIP", "0.0.0.0", "leads to no node"),
        "zone": ("InternalIP", "fd00::1%eth0", "known to one machine alone"),
    },
)
def test_an_invalid_address_is_named(kind: str, address: str, complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint):
        exposurepool.parsed(spec((kind, address)))


@cases(
    "fields, complaint",
    {
        "K-3-unset": ({}, r"spec\.credentialsRef is not set"),
        "A-7-elsewhere": (secret(namespace="garden"), r"credentialsRef\.namespace: 'garden'"),
        "A-7-no-secret": (secret(kind="WorkloadIdentity"), r"credentialsRef\.kind"),
        "A-7-nameless": (secret(name=""), r"credentialsRef\.name is empty"),
    },
)
def test_credentials_are_a_secret_beside_the_exposure(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint):
        exposurepool.credentials(spec(**fields), "kube-system")
    assert exposurepool.credentials(spec(**secret()), "kube-system") == "cloudprovider"


@cases(
    "addresses, families, found",
    {
        "SE-2-one-family": (["10.0.0.1"], ["IPv4"], {"exposure-root-ipv4": ["10.0.0.1"]}),
        "SE-2-both": (
            ["10.0.0.1", "fd00::1"],
            ["IPv6", "IPv4"],
            {"exposure-root-ipv6": ["fd00::1"], "exposure-root-ipv4": ["10.0.0.1"]},
        ),
        "SE-2-not-asked-for": (["10.0.0.1", "fd00::1"], ["IPv4"], {"exposure-root-ipv4": ["10.0.0.1"]}),
        "SE-2-mapped-counts-as-IPv6": (
            ["10.0.0.1", "::ffff:10.0.0.2"],
            ["IPv4"],
            {"exposure-root-ipv4": ["10.0.0.1"]},
        ),
    },
)
def test_each_family_of_the_shoot_has_its_slice(
    addresses: list[str], families: list[str], found: dict[str, list[str]]
) -> None:
    request = exposurepool.parsed(spec(*(("InternalIP", address) for address in addresses)))
    made = exposurepool.slices("root", "infra-x", request, families)
    assert {one["metadata"]["name"]: [e["addresses"][0] for e in one["endpoints"]] for one in made} == found


@cases(
    "addresses, family, complaint",
    {
        "SE-2-no-IPv6": (["10.0.0.1"], "IPv6", "no InternalIP is of family IPv6"),
        "SE-2-no-IPv4": (["fd00::1"], "IPv4", "no InternalIP is of family IPv4"),
        "SE-2-mapped-is-no-IPv4": (["::ffff:10.0.0.1"], "IPv4", "no InternalIP is of family IPv4"),
        "SE-2-nothing": ([], "IPv4", "no InternalIP is of family IPv4"),
        "mapped-is-no-endpoint": (["::ffff:10.0.0.1"], "IPv6", r"write it as 10\.0\.0\.1"),
        "unknown-family": ([], "IPv5", "'IPv5' is neither IPv4 nor IPv6"),
    },
)
def test_a_family_without_a_usable_address_is_named(
    addresses: list[str], family: str, complaint: str
) -> None:
    request = exposurepool.parsed(spec(*(("InternalIP", address) for address in addresses)))
    with pytest.raises(Malformed, match=complaint):
        exposurepool.slices("root", "infra-x", request, [family])


@cases(
    "found, patch",
    {
        "as-wanted": ({"ports": [{"port": 443, "protocol": "TCP", "nodePort": 30001}]}, None),
        "nothing": ({}, None),
        "SE-1-foreign-selector": ({"selector": {"app": "x"}}, {"spec": {"selector": None}}),
        "foreign-port": (
            {"ports": [{"name": "https", "port": 8443, "protocol": "TCP"}]},
            {"spec": {"ports": [{"name": "https", "port": 443, "targetPort": 443, "protocol": "TCP"}]}},
        ),
    },
)
def test_conflicting_fields_of_the_service_are_removed(found: dict[str, Any], patch: Any) -> None:
    service = exposurepool.service("root", "infra-x", ExposureSpec(443, ()))
    assert exposurepool.excess(Object({"spec": found}), service) == patch
