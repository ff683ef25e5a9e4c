"""Shoots, Secrets and WorkloadIdentities that the garden admits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.admitted import DELETED, Json, admitted, answered, refusal, resource
from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.settings.webhooksettings import WebhookSettings

MARK = {"extensions.gardener.cloud/processed-by": "admission-webhook-local-provider"}
ONE = {"name": "one"}
HOSTING = {"name": "two", "controlPlane": {}}


def shoot(nodes: Any = "10.0.0.0/16", *, workers: Any = (ONE,), metadata: Any = None, **spec: Any) -> Json:
    networking = {} if nodes is None else {"nodes": nodes}
    spec = {"networking": networking, "provider": {"type": "local", "workers": list(workers)}, **spec}
    return resource(
        "core.gardener.cloud/v1beta1 Shoot", "local", "garden-local", metadata=metadata, spec=spec
    )


@rule("AD-10")
@cases(
    "given found",
    ("none", None, MARK),
    ("others", {"a": "b"}, {"a": "b", **MARK}),
    ("another-value", dict.fromkeys(MARK, "me"), dict.fromkeys(MARK, "me")),
    ("an-empty-value", dict.fromkeys(MARK, ""), dict.fromkeys(MARK, "")),
)
def test_a_shoot_is_marked(given: dict[str, str] | None, found: dict[str, str]) -> None:
    metadata = {} if given is None else {"annotations": given}
    assert admitted("mutator", shoot(metadata=metadata))["metadata"]["annotations"] == found


@rule("AD-10")
def test_a_shoot_under_deletion_is_not_marked() -> None:
    assert admitted("mutator", shoot(metadata=DELETED)) == shoot(metadata=DELETED)


PATH = "spec.networking.nodes"
SELF_HOSTED: Json = {"workers": (ONE, HOSTING)}


@cases(
    "given range_",
    ("AD-42-all-of-it", shoot("10.0.0.0/16"), ""),
    ("AD-41-with-host-bits", shoot("10.0.7.9/24"), ""),
    ("AD-42-one-address", shoot("10.0.255.255/32"), ""),
    ("AD-42-too-wide", shoot("10.0.0.0/15"), "10.0.0.0/16"),
    ("AD-42-beside-it", shoot("10.1.0.0/16"), "10.0.0.0/16"),
    ("AD-42-IPv6", shoot("fd00:10:1:1ff::1/64"), ""),
    ("AD-42-IPv6-beside-it", shoot("fd00:10:1:200::/64"), "fd00:10:1:100::/56"),
    ("AD-42-hosted", shoot("172.18.0.0/24"), "10.0.0.0/16"),
    ("AD-43-self-hosted", shoot("172.18.0.0/24", **SELF_HOSTED), ""),
    ("AD-43-of-machines", shoot("10.0.0.0/16", **SELF_HOSTED), "172.18.0.0/24"),
    ("AD-43-IPv6", shoot("fd00:10:0:0:1::/80", **SELF_HOSTED), ""),
    ("AD-43-IPv6-beside-it", shoot("fd00:11::/64", **SELF_HOSTED), "fd00:10::/64"),
    ("AD-42-self-hosted-managed", shoot("10.0.0.0/16", **SELF_HOSTED, credentialsBindingName="x"), ""),
    ("AD-42-old-binding", shoot("172.18.0.0/24", **SELF_HOSTED, secretBindingName="x"), "10.0.0.0/16"),
    ("AD-42-binding-without-a-name", shoot("10.0.0.0/16", **SELF_HOSTED, credentialsBindingName=""), ""),
)
def test_nodes_are_in_the_range_of_machines_or_of_the_host(given: Json, range_: str) -> None:
    answer = answered("validator", given)
    if not range_:
        assert answer.allowed, answer.message
        return
    nodes = given["spec"]["networking"]["nodes"]
    assert answer.message == f'{PATH}: Invalid value: "{nodes}": nodes CIDR must be a subnet of {range_}'


@rule("AD-41")
@pytest.mark.parametrize("nodes", ["", "10.0.0.0", "10.0.0.0/016", "a/\n", "fd00::%eth0/64", "x" * 4_000])
def test_malformed_ranges_of_nodes_are_refused(nodes: str) -> None:
    message = refusal("validator", shoot(nodes))
    assert message.startswith(f'{PATH}: Invalid value: "')
    assert message.endswith('": nodes CIDR must be a valid CIDR')


@rule("AD-41")
def test_a_shoot_without_nodes_is_refused() -> None:
    for given in (shoot(None), shoot(networking=None)):
        assert refusal("validator", given) == f"{PATH}: Required value: nodes CIDR must not be empty"


BAD = "192.168.0.0/24"


@rule("I-4", "AD-40", "AD-44")
@cases(
    "given old allowed",
    ("under-deletion", shoot(BAD, metadata=DELETED), None, True),
    ("workerless", shoot(BAD, workers=()), None, True),
    ("as-it-was", shoot(BAD), shoot(BAD), True),
    ("changed", shoot(BAD), shoot(), False),
    ("added", shoot(BAD), shoot(None), False),
    ("never-there", shoot(None), shoot(None), True),
)
def test_only_new_ranges_of_nodes_are_checked(given: Any, old: Any, allowed: bool) -> None:
    assert answered("validator", given, old=old).allowed == allowed


LABELS = {"provider.shoot.gardener.cloud/local": "true"}


def secret(data: Any = None, labels: Any = LABELS) -> Json:
    fields = {"data": data} if data else {}
    return resource("v1 Secret", "local", "garden-local", metadata={"labels": labels}, **fields)


KUBECONFIG = {"kubeconfig": "eA=="}


@rule("AD-50")
@pytest.mark.parametrize("data", [None, {}, {"kubeconfig": ""}, {"kubeconfig": None}, {"other": "eA=="}])
def test_a_secret_needs_a_kubeconfig(data: Any) -> None:
    assert refusal("secrets.validator", secret(data)) == "kubeconfig is missing"
    assert refusal("secrets.validator", secret(data), old=secret(KUBECONFIG)) == "kubeconfig is missing"


@rule("AD-50")
@pytest.mark.parametrize("old", [secret(KUBECONFIG), secret(), None])
def test_the_content_of_a_kubeconfig_is_not_checked(old: Any) -> None:
    assert answered("secrets.validator", secret(KUBECONFIG), old=old).allowed


@rule("AD-50", "AD-2")
def test_an_unchanged_secret_may_lack_a_kubeconfig() -> None:
    old, removed = secret({"other": "eA=="}), secret({"other": "eA=="}, labels=None)
    assert answered("secrets.validator", secret({"other": "eA=="}, {**LABELS, "a": "b"}), old=old).allowed
    assert answered("secrets.validator", removed, old=old).allowed


@pytest.mark.parametrize("data", [None, {"kubeconfig": ""}, {"other": "eA=="}])
@pytest.mark.parametrize("labels", [None, {}, {"provider.shoot.gardener.cloud/local": "false"}])
def test_a_secret_that_is_labelled_later_needs_a_kubeconfig(data: Any, labels: Any) -> None:
    # Without the label, nobody asked about it before.
    assert refusal("secrets.validator", secret(data), old=secret(data, labels)) == "kubeconfig is missing"
    given = secret(KUBECONFIG)
    assert answered("secrets.validator", given, old=secret(KUBECONFIG, labels)).allowed


@rule("AD-50")
@pytest.mark.parametrize("value", ["eA", "e A==", "%", "eA=", 1, ["eA=="], "é"])
def test_secret_data_other_than_base64_is_refused(value: Any) -> None:
    answer = answered("secrets.validator", secret({**KUBECONFIG, "other": value}))
    assert (answer.code, answer.message) == (400, "data.other is not base64 of anything")


@rule("AD-50")
def test_another_base64_spelling_is_no_change() -> None:
    old = secret({"other": "eA\r\n==", "empty": None})
    assert answered("secrets.validator", secret({"other": "eA==", "empty": ""}), old=old).allowed


@rule("AD-51")
def test_for_old_gardeners_secrets_must_be_empty() -> None:
    old = WebhookSettings(empty_secrets=True)
    assert refusal("secrets.validator", secret(KUBECONFIG), settings=old) == "secret data should be empty"
    assert answered("secrets.validator", secret(), settings=old).allowed
    assert answered("secrets.validator", secret(KUBECONFIG), old=secret(KUBECONFIG), settings=old).allowed


@rule("AD-60")
@pytest.mark.parametrize(("config", "allowed"), [(None, True), ({}, False), ({"a": "b"}, False)])
def test_a_workload_identity_has_no_provider_config(config: Any, allowed: bool) -> None:
    system = {"type": "local", "providerConfig": config}
    identity = resource("security.gardener.cloud/v1alpha1 WorkloadIdentity", spec={"targetSystem": system})
    answer = answered("validator", identity)
    assert answer.allowed == allowed
    assert answer.message == ("" if allowed else "target system provider config must be empty")


@rule("AD-4")
@pytest.mark.parametrize("version", ["v1", "v1beta1", "v2alpha1"])
def test_any_version_of_a_shoot_is_checked(version: str) -> None:
    given = shoot(BAD) | {"apiVersion": f"core.gardener.cloud/{version}"}
    assert refusal("validator", given).startswith(PATH)
