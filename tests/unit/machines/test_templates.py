"""Which changes of a template replace machines."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.machinefacts import template
from tests.support.rules import rule
from workers.machines import templates

_NODES: dict[str, Any] = {
    "nodeTemplate": {"metadata": {"labels": {"a": "1"}}, "spec": {"taints": [{"key": "k"}]}}
}


def with_metadata(**metadata: Any) -> dict[str, Any]:
    return {**template(), "metadata": {"labels": {"name": "pool"}, **metadata}}


@pytest.mark.parametrize(
    ("other", "same"),
    [
        pytest.param(template(), True, id="C4-nothing"),
        pytest.param(template("big"), False, id="C4-class"),
        pytest.param(with_metadata(labels={"name": "pool", "x": "y"}), False, id="C4-labels"),
        pytest.param(
            with_metadata(labels={"name": "pool", "machine-template-hash": "1"}), True, id="C4-hash-label"
        ),
        pytest.param(with_metadata(annotations={"x": "y"}), False, id="C4-annotations"),
        pytest.param(with_metadata(creationTimestamp=None), True, id="C4-null-of-go"),
        pytest.param(template(providerID="x"), False, id="C4-provider-id"),
        pytest.param(template(**_NODES), True, id="C4-node-template"),
        pytest.param(template(drainTimeout="1h", maxEvictRetries=3), True, id="C4-configuration"),
        pytest.param(
            {**template(), "spec": {"class": {"kind": "Other", "name": "small"}}}, True, id="C4-kind"
        ),
        pytest.param(
            {**template(), "spec": {"class": {"apiGroup": "x", "kind": "MachineClass", "name": "small"}}},
            False,
            id="C4-api-group",
        ),
    ],
)
def test_some_changes_replace_machines(other: dict[str, Any], same: bool) -> None:
    assert templates.same(template(), other) is same


@rule("C4")
def test_a_copy_takes_away_what_is_no_longer_there() -> None:
    found = template(drainTimeout="1h", nodeTemplate={"metadata": {"labels": {"a": "1", "b": "2"}}})["spec"]
    patch = templates.differences(found, template(**_NODES, healthTimeout="5m"))
    assert patch == {
        "drainTimeout": None,
        "healthTimeout": "5m",
        "nodeTemplate": {"metadata": {"labels": {"a": "1", "b": None}}, "spec": {"taints": [{"key": "k"}]}},
    }


@rule("C4")
def test_only_the_kind_of_a_class_is_copied() -> None:
    found = {"class": {"kind": "AWSMachineClass", "name": "old", "apiGroup": "x"}}
    assert templates.differences(found, template("new")) == {"class": {"kind": "MachineClass"}}
