"""Flags and environment of Gardener's own provider-local."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.rules import rule
from windowbox.errors import Malformed
from windowbox.kinds import POOLS
from windowbox.settings import goflags, settings
from windowbox.settings.settings import Settings

VARIABLES = ("WEBHOOK_CONFIG_NAMESPACE", "GARDEN_KUBECONFIG", "SEED_NAME", "SHOOT_NAME", "SHOOT_NAMESPACE")


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def given(*arguments: str) -> dict[str, Any]:
    """Arguments of the Go program, as click hands them over."""
    found: dict[str, Any] = {}
    for argument in arguments:
        name, _, value = argument.removeprefix("--").partition("=")
        [flag] = [one for one in goflags.FLAGS if one.name == name]
        found.setdefault(flag.parameter, []).append(value or "true")
    return found


def loaded(*arguments: str) -> Settings:
    return settings.load(None, goflags.settings(given(*arguments)))


CHART = (
    "--extension-classes=seed,shoot", "--ignore-operation-annotation=false", "--disable-controllers=",
    "--heartbeat-namespace=extension-provider-local", "--heartbeat-renew-interval-seconds=30",
    "--backupbucket-local-dir=/dev/local-backupbuckets", "--gardener-version=v1.150.0",
    "--backupbucket-container-mount-path=/etc/gardener/local-backupbuckets",
    "--disable-webhooks=rollout-speedup", "--webhook-config-server-port=10250",
    "--webhook-config-service-port=443", "--webhook-config-namespace=extension-provider-local",
    "--metrics-bind-address=:8080", "--prometheus-remote-write-url=https://one.example,https://two.example",
    "--prometheus-remote-write-url=https://three.example", "--prometheus-external-labels=a=b,c=d,",
    "--health-bind-address=:8081", "--leader-election-namespace=extension-provider-local",
    "--dnsrecord-max-concurrent-reconciles=5", "--worker-max-concurrent-reconciles=5",
)  # fmt: skip
"""What Gardener's chart passes for a seed."""


@rule("WP-1")
def test_flags_of_gardeners_chart_are_understood() -> None:
    found = loaded(*CHART)
    assert found.work.classes == ("seed", "shoot")
    assert not found.work.ignore_operation_annotation
    assert (found.heartbeat.namespace, found.heartbeat.interval) == ("extension-provider-local", 30)
    assert found.heartbeat.holder == "provider-local"
    assert str(found.backup.root) == "/dev/local-backupbuckets"
    assert found.webhooks.address == "0.0.0.0:10250"
    assert (found.webhooks.service_port, found.webhooks.namespace) == (443, "extension-provider-local")
    assert found.webhooks.disabled == ("rollout-speedup",)
    assert found.webhooks.prometheus.remote_write_urls == tuple(
        f"https://{name}.example" for name in ("one", "two", "three")
    )
    assert found.webhooks.prometheus.external_labels == {"a": "b", "c": "d"}
    assert (found.metrics, found.probes) == ("0.0.0.0:8080", "0.0.0.0:8081")
    assert found.garden.version == "v1.150.0"


def test_flags_without_effect_are_listed() -> None:
    lines = goflags.without_effect(given(*CHART))
    concurrency = [f"--{kind}-max-concurrent-reconciles" for kind in ("dnsrecord", "worker")]
    assert [line.partition(" ")[0] for line in lines] == ["--leader-election-namespace", *concurrency]
    assert "work.concurrency" in lines[-1]
    assert "webhooks.garden_lease" in lines[0]


@pytest.mark.parametrize(
    ("arguments", "server"),
    [
        (("--webhook-config-server-host=127.0.0.1",), "127.0.0.1:443"),
        (("--webhook-config-server-host=::1", "--webhook-config-server-port=8443"), "[::1]:8443"),
        (("--webhook-config-server-port=8443",), "0.0.0.0:8443"),
    ],
)
def test_host_and_port_of_webhooks_are_one_address(arguments: tuple[str, ...], server: str) -> None:
    assert loaded(*arguments).webhooks.address == server


@pytest.mark.parametrize("flag", [one for one in goflags.FLAGS if one.remedy], ids=lambda one: one.name)
def test_unsupported_flags_are_refused_with_the_remedy(flag: goflags.Flag) -> None:
    with pytest.raises(Malformed, match=flag.name) as refused:
        goflags.settings(given(f"--{flag.name}=1"))
    assert flag.remedy in str(refused.value)


def test_settings_that_remedies_name_exist() -> None:
    for text in [flag.remedy + flag.reason for flag in goflags.FLAGS]:
        for section, name in re.findall(r"(webhooks|work)\.(\w+)", text):
            assert name in type(getattr(Settings(), section)).model_fields


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("--heartbeat-renew-interval-seconds=soon", "heartbeat-renew-interval-seconds 'soon'"),
        ("--ignore-operation-annotation=perhaps", "it is true or false"),
        ("--prometheus-external-labels=a", "'a' has no `=`"),
        ("--heartbeat-renew-interval-seconds=0", "heartbeat.interval"),
        ("--webhook-config-mode=pigeon", "webhooks.mode"),
        ("--disable-webhooks=nodes", "no webhook nodes"),
        ("--gardener-version=new", "garden.version"),
    ],
)
def test_a_wrong_value_is_refused_by_name(argument: str, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        loaded(argument)


@rule("WP-3")
def test_controllers_are_pools() -> None:
    chosen = goflags.pools(given("--controllers=backupbucket,backupentry,dnsrecord,local-ext-shoot"))
    assert chosen == ("backupbucket", "backupentry", "dnsrecord", "local-ext-shoot")
    without = goflags.pools(given("--disable-controllers=selfhostedshootexposure,healthcheck"))
    assert {*POOLS} - {*without} == {"exposure"}
    both = goflags.pools(given("--controllers=worker,bastion", "--disable-controllers=bastion"))
    assert both == ("worker",)
    assert goflags.pools({}) == ()


@pytest.mark.parametrize(
    ("name", "why"),
    [("dns", "no controller 'dns'; there are: backupbucket"), ("healthcheck", "no controller is left")],
)
def test_a_choice_without_a_known_controller_is_refused(name: str, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        goflags.pools(given(f"--controllers={name}"))


@rule("WP-2")
def test_environment_that_gardener_sets_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, f"/of/{name}")
    found = settings.load(None)
    assert found.webhooks.namespace == "/of/WEBHOOK_CONFIG_NAMESPACE"
    assert str(found.garden.kubeconfig) == "/of/GARDEN_KUBECONFIG"
    assert found.garden.seed == "/of/SEED_NAME"
    assert (found.garden.shoot, found.garden.shoot_namespace) == ("/of/SHOOT_NAME", "/of/SHOOT_NAMESPACE")


def test_our_own_settings_win_over_gardeners_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEED_NAME", "theirs")
    monkeypatch.setenv("WINDOWBOX_GARDEN__SEED", "ours")
    assert settings.load(None).garden.seed == "ours"
    assert settings.load(None, {"garden": {"seed": "flag"}}).garden.seed == "flag"
