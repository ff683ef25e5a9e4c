"""Bindings, and Shoots for the mutator, in forms that only the extension's own code tells apart."""

from __future__ import annotations

from typing import Any

import pytest

from clouds import table
from clouds.frame import admission
from clouds.frame.cloud import Json

_AWS = table.cloud("aws")
_GROUP = "aws.provider.extensions.gardener.cloud/v1alpha1"
_METADATA = {"name": "credentials", "namespace": "garden-dev"}
_DATA = {"accessKeyID": "QUtJQUlPU0ZPRE5ON0VYQU1QTEU=", "secretAccessKey": "YWFh" * 14}
_REFERENCE = {"apiVersion": "v1", "kind": "Secret", "name": "credentials"}


def _find(kind: str, namespace: str, name: str) -> Json | None:
    there = (kind, namespace, name) == ("Secret", "garden-dev", "credentials")
    return {"metadata": _METADATA, "data": _DATA} if there else None


@pytest.mark.parametrize(
    ("about", "field"), [("secretbinding", "secretRef"), ("credentialsbinding", "credentialsRef")]
)
def test_the_secret_of_a_binding_is_in_its_own_namespace_by_default(about: str, field: str) -> None:
    """ALL-6"""
    binding = {"metadata": _METADATA, "provider": {"type": "aws"}, field: _REFERENCE}

    assert admission.problems(_AWS, about, binding, None, _find) == []


def test_a_secret_binding_may_not_lose_its_provider() -> None:
    """ALL-6: the extension crashes."""
    new: dict[str, Any] = {"metadata": _METADATA, "secretRef": _REFERENCE}
    old = new | {"provider": {"type": "aws"}}

    [problem] = admission.problems(_AWS, "secretbinding", new, old, _find)

    assert (problem.path, problem.type) == ("provider", "Required")
    assert admission.problems(_AWS, "secretbinding", old, new, _find) == []


@pytest.mark.parametrize("zones", [["a", None], [None]])
def test_the_mutator_takes_a_control_plane_config_without_kind(zones: list[str | None]) -> None:
    """AWS-X8: it decodes into that kind. Null in a list of texts is an empty one."""
    workers = [{"name": "pool", "zones": zones}]
    provider = {"type": "aws", "workers": workers, "controlPlaneConfig": {"apiVersion": _GROUP}}
    shoot = {"metadata": _METADATA, "spec": {"provider": provider, "networking": {"ipFamilies": [None]}}}

    found = admission.mutated(_AWS, shoot, None, _find)["spec"]["provider"]

    assert found["controlPlaneConfig"]["kind"] == "ControlPlaneConfig"
    assert found["controlPlaneConfig"]["cloudControllerManager"] == {"useCustomRouteController": True}
    assert found["workers"][0]["zones"] == [zone or "" for zone in zones]
