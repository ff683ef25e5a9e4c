"""By whose Secrets provider clusters may take part."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rules import rule
from windowbox.models.objects import Object
from windowbox.models.refs import (
    BASTIONS,
    EXPOSURES,
    INFRASTRUCTURES,
    RUNTIME,
    ObjectRef,
    Resource,
    SecretKey,
)
from workers.kinds.membership.providermembership import secret_of

HERE = SecretKey(namespace="a", name="cloudprovider")


@rule("K-3")
@pytest.mark.parametrize(
    ("kind", "spec", "secret"),
    [
        pytest.param(INFRASTRUCTURES, {"secretRef": {"name": "cloudprovider"}}, HERE, id="infrastructure"),
        pytest.param(
            INFRASTRUCTURES,
            {"secretRef": {"name": "x", "namespace": "b"}},
            SecretKey(namespace="b", name="x"),
            id="infrastructure-elsewhere",
        ),
        pytest.param(INFRASTRUCTURES, {"secretRef": None}, None, id="infrastructure-without"),
        pytest.param(BASTIONS, {}, HERE, id="bastion"),
        pytest.param(EXPOSURES, {"credentialsRef": {"name": "cloudprovider"}}, HERE, id="exposure"),
        pytest.param(EXPOSURES, {}, None, id="exposure-without"),
    ],
)
def test_the_secret_is_that_of_the_kind(
    kind: Resource, spec: dict[str, Any], secret: SecretKey | None
) -> None:
    ref = ObjectRef(RUNTIME, kind.id, "a", "local")
    assert secret_of(ref, Object({"spec": {"type": "local", **spec}})) == secret


@rule("T-2")
@pytest.mark.parametrize("kind", [INFRASTRUCTURES, BASTIONS, EXPOSURES], ids=lambda kind: kind.plural)
def test_secrets_of_what_others_serve_are_left_alone(kind: Resource) -> None:
    secret = {"name": "cloudprovider"}
    spec = {"type": "kubevirt", "secretRef": secret, "credentialsRef": secret}
    assert secret_of(ObjectRef(RUNTIME, kind.id, "a", "local"), Object({"spec": spec})) is None
