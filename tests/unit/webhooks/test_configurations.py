"""The configurations by which API servers call our webhooks."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.rights import rbac
from windowbox.rights import webhookconfigurations as configurations
from windowbox.settings.webhooksettings import WebhookSettings

EXTENSION = "gardener-extension-provider-local"
SERVICE = f"https://{EXTENSION}.extension-local"
CHART = WebhookSettings(namespace="extension-local", service_port=443)
OWNER = {"metadata": {"name": "extension-local", "uid": "u-1"}}
SEED = ["controlplane", "networkpolicy", "prometheus", "rollout-speedup"]
ALL = sorted([*SEED, "calico-self-hosted-shoot", "node", "shoot"])


def with_changes(**changes: Any) -> WebhookSettings:
    return WebhookSettings.model_validate({**CHART.model_dump(), **changes})


def names(made: list[dict[str, Any]]) -> list[str]:
    return [entry["name"].removesuffix(".local.extensions.gardener.cloud") for entry in made[0]["webhooks"]]


@rule("WW-1")
@cases(
    "make changes wanted",
    ("seed", configurations.for_seed, {}, SEED),
    ("shoot", configurations.for_shoot, {}, ["node", "shoot"]),
    ("self-hosted+WF-12", configurations.for_seed, {"self_hosted": True}, ALL),
    (
        "shoot-of-a-self-hosted+WF-12",
        *(configurations.for_shoot, {"self_hosted": True}),
        ["calico-self-hosted-shoot", "node", "shoot"],
    ),
    ("WW-2", configurations.for_seed, {"disabled": ["rollout-speedup"]}, SEED[:3]),
    ("historical", configurations.for_seed, {"dnsconfig": True}, ["controlplane", "dnsconfig", *SEED[1:]]),
)
def test_order_of_entries(make: Any, changes: Any, wanted: list[str]) -> None:
    assert names(make(with_changes(**changes), b"")) == wanted


@rule("WF-8", "WW-2")
def test_a_star_disables_all_webhooks_and_unknown_names_are_refused() -> None:
    assert configurations.for_seed(with_changes(disabled=["*"]), b"") == []
    with pytest.raises(ValidationError, match="there is no webhook nodes"):
        with_changes(disabled=["nodes"])


@rule("WF-1", "WF-2", "WF-22", "WF-4", "WF-5")
def test_the_configuration_of_a_seed() -> None:
    (made,) = configurations.for_seed(CHART, b"PEM", OWNER)
    assert made["kind"] == "MutatingWebhookConfiguration"
    assert made["metadata"] == yaml.safe_load(f"""
        name: {EXTENSION}
        labels: {{remediation.webhook.shoot.gardener.cloud/exclude: "true"}}
        ownerReferences:
        - {{apiVersion: v1, kind: Namespace, name: extension-local, uid: u-1, controller: true,
            blockOwnerDeletion: false}}
        """)
    assert made["webhooks"][1] == yaml.safe_load(f"""
        name: networkpolicy.local.extensions.gardener.cloud
        clientConfig:
          service: {{namespace: extension-local, name: {EXTENSION}, path: /networkpolicy, port: 443}}
          caBundle: {base64.b64encode(b"PEM").decode()}
        rules:
        - {{operations: [CREATE, UPDATE], apiGroups: [networking.k8s.io], apiVersions: [v1],
            resources: [networkpolicies]}}
        namespaceSelector:
          matchExpressions: [{{key: seed.gardener.cloud/provider, operator: In, values: [local]}}]
        matchPolicy: Exact
        failurePolicy: Fail
        sideEffects: None
        timeoutSeconds: 10
        admissionReviewVersions: [v1, v1beta1]
        """)


@rule("WF-1", "WF-5")
def test_the_configuration_of_a_shoot() -> None:
    (made,) = configurations.for_shoot(CHART, b"")
    node, shoot = made["webhooks"]
    assert made["metadata"]["name"] == f"{EXTENSION}-shoot"
    assert "ownerReferences" not in made["metadata"]
    assert (node["failurePolicy"], node["timeoutSeconds"]) == ("Ignore", 5)
    assert (shoot["failurePolicy"], shoot["timeoutSeconds"]) == ("Fail", 10)
    assert node["rules"][0]["resources"] == ["nodes/*"]
    assert "namespaceSelector" not in node
    assert shoot["objectSelector"] == {"matchLabels": {"app": "kubernetes", "role": "proxy"}}


def test_mutators_that_must_not_fail_are_called_again() -> None:
    (made,) = configurations.for_seed(with_changes(self_hosted=True, second_calls=True), b"PEM")
    entries = {entry["name"].partition(".")[0]: entry for entry in made["webhooks"]}
    again = [f"{name}-again" for name in ("controlplane", "networkpolicy", "prometheus", "shoot")]
    assert set(entries) == {*ALL, *again, "rollout-speedup-again"}
    first, second = entries["controlplane"], entries["controlplane-again"]
    assert (first["failurePolicy"], second["failurePolicy"]) == ("Ignore", "Fail")
    assert first["matchConditions"] == second["matchConditions"]
    assert second["clientConfig"]["service"]["path"] == "/again/controlplane"
    # Connections are shared by clients with the same authorities.
    assert base64.b64decode(second["clientConfig"]["caBundle"]) == b"PEM\n"
    assert entries["node"]["failurePolicy"] == "Ignore"


def test_validators_are_called_once() -> None:
    _, validating = configurations.for_garden(with_changes(second_calls=True), b"")
    assert [entry["failurePolicy"] for entry in validating["webhooks"]] == ["Fail", "Fail"]


@rule("WF-1")
def test_the_names_in_the_runtime_cluster_of_a_garden() -> None:
    (made,) = configurations.for_seed(with_changes(runtime=True), b"")
    first = made["webhooks"][0]
    assert made["metadata"]["name"] == f"{EXTENSION}-runtime"
    assert first["name"] == "controlplane.local-runtime.extensions.gardener.cloud"
    assert first["clientConfig"]["service"]["name"] == f"{EXTENSION}-runtime"


@rule("WF-10", "WF-11")
@cases(
    "settings seed shoot",
    ("service", {"mode": "service"}, 443, f"{SERVICE}:443"),
    ("without-port", {"mode": "service", "service_port": 0}, 10250, f"{SERVICE}:10250"),
    ("url", {"mode": "url", "url": "127.0.0.1:9443"}, "https://127.0.0.1:9443", "https://127.0.0.1:9443"),
    ("url-service", {"mode": "url-service"}, f"{SERVICE}:443", f"{SERVICE}:443"),
)
def test_client_modes(settings: Any, seed: int | str, shoot: str) -> None:
    changed = with_changes(**settings)
    client = configurations.for_seed(changed, b"")[0]["webhooks"][0]["clientConfig"]
    if isinstance(seed, int):
        assert client["service"]["port"] == seed
    else:
        assert client["url"] == f"{seed}/controlplane"
    client = configurations.for_shoot(changed, b"")[0]["webhooks"][0]["clientConfig"]
    assert client["url"] == f"{shoot}/node"


@rule("WF-3", "WF-7")
def test_the_configurations_of_a_garden() -> None:
    mutating, validating = configurations.for_garden(CHART, b"", OWNER)
    kinds = [one["kind"].removesuffix("WebhookConfiguration") for one in (mutating, validating)]
    assert kinds == ["Mutating", "Validating"]
    named = {one["metadata"]["name"] for one in (mutating, validating)}
    assert named == {"gardener-extension-admission-local"}
    assert [entry["name"] for entry in validating["webhooks"]] == [
        "secrets.validator.admission-local.extensions.gardener.cloud",
        "validator.admission-local.extensions.gardener.cloud",
    ]
    assert mutating["webhooks"][0]["clientConfig"]["service"]["path"] == "/webhooks/mutate"
    resources = [one["resources"] for one in mutating["webhooks"][0]["rules"]]
    assert sorted(resources) == [["namespacedcloudprofiles/status"], ["shoots"]]
    assert all(entry["failurePolicy"] == "Fail" for entry in validating["webhooks"])


IN_CLUSTER = [EXTENSION, f"{EXTENSION}.extension-local", f"{EXTENSION}.extension-local.svc"]


@cases(
    "settings hosts",
    ("service", {}, IN_CLUSTER),
    ("address", {"mode": "url", "url": "127.0.0.1:9443"}, ["127.0.0.1"]),
    ("address-v6", {"mode": "url", "url": "[::1]:9443"}, ["::1"]),
    ("name", {"mode": "url", "url": "hooks.garden"}, ["hooks.garden"]),
)
def test_hosts_of_the_certificate(settings: Any, hosts: list[str]) -> None:
    changed = with_changes(**settings)
    assert configurations.hosts(changed, configurations.names(changed)) == hosts


@pytest.mark.parametrize("role", ["admit", "admission"])
def test_configurations_of_other_names_are_out_of_reach(role: str) -> None:
    rules = [one for one in rbac.RULES[role] if one["apiGroups"] == ["admissionregistration.k8s.io"]]
    assert rules
    for granted in rules:
        assert granted["verbs"] == ["create"] or granted["resourceNames"][0].startswith("gardener-extension-")
