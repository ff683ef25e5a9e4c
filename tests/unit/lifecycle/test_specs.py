"""Specs that would hold the event loop while they are parsed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases import cases
from windowbox.errors import Malformed
from windowbox.models.gardener.bastion import BastionSpec
from windowbox.models.gardener.dnsrecord import DNSRecordSpec
from windowbox.models.gardener.operatingsystemconfig import OperatingSystemConfigSpec
from windowbox.models.gardener.worker import WorkerSpec
from windowbox.models.objects import Object
from workers.core.lifecycle.actuators import MOST_PARTS, parsed_spec
from workers.kinds.exposure import exposurepool

_RECORD = {"name": "a", "recordType": "A", "values": [], "secretRef": {}}
_SOURCES = [{"ipBlock": {"cidr": "10.0.0.0/8"}}]


@cases(
    "model spec",
    ("bastion", BastionSpec, {"ingress": _SOURCES * 2_500}),
    ("files", OperatingSystemConfigSpec, {"files": [{"path": "/a", "content": {}}] * 2_500}),
    ("pools", WorkerSpec, {"pools": [{"name": "a"}] * 5_000}),
    ("deep", WorkerSpec, {"pools": [[[{"name": "a"}] * 5_000]]}),
)
def test_a_spec_of_thousands_of_parts_is_not_parsed(model: Any, spec: dict[str, Any]) -> None:
    with pytest.raises(Malformed, match=rf"^spec has more than {MOST_PARTS:,} parts: take some out$"):
        parsed_spec(model, Object({"spec": {"type": "local", **spec}}))


@cases(
    "model spec",
    ("bastion", BastionSpec, {"ingress": _SOURCES * 2_499, "userData": ""}),
    ("values", DNSRecordSpec, _RECORD | {"values": ["10.0.0.1"] * 20_000}),
    ("provider-configuration", DNSRecordSpec, _RECORD | {"providerConfig": {"a": [{}] * 9_000}}),
)
def test_a_spec_of_fewer_parts_is_parsed(model: Any, spec: dict[str, Any]) -> None:
    parsed_spec(model, Object({"spec": {"type": "local", **spec}}))


def test_thousands_of_endpoints_are_not_parsed() -> None:
    with pytest.raises(Malformed, match=r"^spec.endpoints has more than 5,000 parts: take some out$"):
        exposurepool.parsed({"port": 443, "endpoints": [{"addresses": []}] * 6_000})
