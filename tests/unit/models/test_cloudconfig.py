"""The file of cloud-controller-manager-local, decoded strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.errors import Malformed
from windowbox.models.gardener import cloudconfig

HEAD = "apiVersion: local.provider.gardener.cloud/v1alpha1\nkind: CloudProviderConfig\n"


@rule("LB-8-config")
def test_a_file_is_understood(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        f"{HEAD}runtimeCluster:\n  namespace: infra-a\n  kubeconfig: /var/run/kubeconfig\n"
        "loadBalancer:\n  image: registry.example/envoy:v1.37.0\n"
    )
    config = cloudconfig.load(file)
    assert config.runtime_cluster is not None
    assert config.runtime_cluster.namespace == "infra-a"
    assert config.runtime_cluster.kubeconfig == "/var/run/kubeconfig"
    assert config.load_balancer.image == "registry.example/envoy:v1.37.0"


@rule("LB-8-config")
def test_only_the_head_is_required() -> None:
    config = cloudconfig.parsed(HEAD.encode(), "config")
    assert config.runtime_cluster is None
    assert config.load_balancer.image is None


UNKNOWN = "loadBalancer.images is unknown (it is ['a']): take it out, or correct its name"


@cases(
    "text words",
    ("unknown", f"{HEAD}colour: red", "colour is unknown (it is 'red'): take it out"),
    ("unknown-within", f"{HEAD}loadBalancer: {{images: [a]}}", UNKNOWN),
    ("case", f"{HEAD}loadbalancer: {{}}", "loadbalancer is unknown"),
    ("our-spelling", f"{HEAD}load_balancer: {{}}", "load_balancer is unknown"),
    ("missing", f"{HEAD}runtimeCluster: {{}}", "runtimeCluster.namespace is missing: add it"),
    ("empty", f"{HEAD}runtimeCluster: {{namespace: ''}}", "runtimeCluster.namespace is empty"),
    ("type", f"{HEAD}loadBalancer: {{image: 1}}", "loadBalancer.image is 1: "),
    ("version", "kind: CloudProviderConfig", "apiVersion is missing: add it"),
    ("other", HEAD.replace("a1", "a2"), "make it 'local.provider.gardener.cloud/v1alpha1'"),
    ("twice", f"{HEAD}kind: Other", "kind is given twice"),
    ("list", "[]", "config has to be a mapping"),
    ("nothing", "", "config has to be a mapping"),
    ("no-yaml", "a: [", "config is not YAML"),
)
@rule("LB-8-config")
def test_errors_name_field_value_and_remedy(text: str, words: str) -> None:
    with pytest.raises(Malformed) as error:
        cloudconfig.parsed(text.encode(), "config")
    assert words in str(error.value)


@rule("LB-8-config")
def test_a_missing_file_is_reported_with_its_setting(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match=r"config\.yaml cannot be read: .*; set loadbalancer\.cloud_config"):
        cloudconfig.load(tmp_path / "config.yaml")
