"""Quantities that mean the same are no difference."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tests.support.admitted import admitted, answered
from tests.support.rules import rule
from tests.unit.webhooks.test_controlplane import cluster, containers, deployment
from tests.unit.webhooks.test_shoot_webhooks import node
from webhooks.mutators import quantities


@pytest.mark.parametrize(
    ("quantity", "number"),
    [
        ("1", "1"),
        ("1000m", "1"),
        (1, "1"),
        (0.5, "0.5"),
        (".5", "0.5"),
        ("+5.", "5"),
        ("1e3", "1000"),
        ("1E3", "1000"),
        ("1E", "1000000000000000000"),
        ("1k", "1000"),
        ("1Ki", "1024"),
        ("0.5Gi", "536870912"),
        ("100n", "0.0000001"),
    ],
)
def test_a_quantity_has_a_value(quantity: object, number: str) -> None:
    assert quantities.value(quantity) == Decimal(number)


@pytest.mark.parametrize(
    "text", [None, True, "", "m", "1 m", "1mi", "1e", "1e9999", "0x1", "١", "1" * 101, {}]
)
def test_what_is_no_quantity_has_no_value(text: object) -> None:
    assert quantities.value(text) is None


@rule("WW-81")
@pytest.mark.parametrize(
    ("cpu", "memory"), [("100", "100Gi"), (100, "102400Mi"), ("100000m", "107374182400"), ("1e2", "100.0Gi")]
)
def test_a_node_of_the_same_capacity_stays_as_it_is(cpu: Any, memory: Any) -> None:
    capacity = {"cpu": cpu, "memory": memory, "pods": "110"}
    found = node({"providerID": "one"}, {"capacity": capacity, "allocatable": capacity})
    assert not answered("node", found).patch


@rule("WW-23")
def test_a_driver_with_the_same_requests_stays_as_it_is() -> None:
    made = admitted("controlplane", deployment("machine-controller-manager"), found=cluster())
    containers(made)[-1]["resources"]["requests"] = {"cpu": "0.01", "memory": "20480Ki"}
    assert not answered("controlplane", made, found=cluster()).patch
    containers(made)[-1]["resources"]["requests"]["cpu"] = "11m"
    changed = containers(admitted("controlplane", made, found=cluster()))[-1]
    assert changed["resources"]["requests"] == {"cpu": "10m", "memory": "20480Ki"}
