"""Denials name the object that they are about, its field, the value and a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.admitted import admitted, answered, refusal
from tests.support.cases import cases
from tests.support.rules import rule
from tests.unit.webhooks.test_admission_namespaced import namespaced
from tests.unit.webhooks.test_admission_shoots import KUBECONFIG, secret, shoot
from tests.unit.webhooks.test_controlplane import (
    KUBELET_FILE,
    NAMESPACE,
    SYSCTL_FILE,
    cluster,
    config,
    deployment,
    file,
)

SHOOT = f"the Shoot in Cluster {NAMESPACE}: "
STORED = "the stored object (oldObject): "
TAKE_OUT = "; to repair it, take the entry out of spec.{} in one update, and add it in another"
GOOD = {
    "kubelet": config(file(KUBELET_FILE, "failSwapOn: true")),
    "unit": config(units=[{"name": "kubelet.service", "content": "[A]\nB=1\n"}]),
    "sysctl": config(file(SYSCTL_FILE, "a = 1")),
}


@rule("WW-47")
@cases(
    "kind old denied",
    (
        "kubelet",
        "kubelet",
        config(file(KUBELET_FILE, "failSwapOn: many")),
        f"file {KUBELET_FILE} is not a KubeletConfiguration: failSwapOn is 'many': it has to be true or "
        f"false{TAKE_OUT.format('files')}",
    ),
    (
        "unit",
        "unit",
        config(units=[{"name": "kubelet.service", "content": "[A]\nB"}]),
        f"unit kubelet.service cannot be read: the line 'B' has no ={TAKE_OUT.format('units')}",
    ),
    (
        "sysctl",
        "sysctl",
        config(file(SYSCTL_FILE, "x", "gzip")),
        f"file {SYSCTL_FILE}: encoding 'gzip' is unknown: make it b64 or empty{TAKE_OUT.format('files')}",
    ),
)
def test_an_unreadable_stored_entry_denies_until_it_is_out(kind: str, old: Any, denied: str) -> None:
    assert refusal("controlplane", GOOD[kind], found=cluster(), old=old) == STORED + denied
    # As the remedy says.
    assert answered("controlplane", config(), found=cluster(), old=old).allowed
    assert answered("controlplane", GOOD[kind], found=cluster(), old=config()).allowed


@rule("WW-47")
@pytest.mark.parametrize("kind", GOOD)
def test_a_readable_stored_entry_is_no_reason_to_deny(kind: str) -> None:
    assert admitted("controlplane", GOOD[kind], found=cluster(), old=GOOD[kind]) == admitted(
        "controlplane", GOOD[kind], found=cluster()
    )


@cases(
    "webhook object old denied",
    (
        "secret",
        "secrets.validator",
        secret(KUBECONFIG),
        {**secret(), "data": "x"},
        "data is not an object, but str",
    ),
    (
        "shoot",
        "validator",
        shoot(),
        {**shoot(), "spec": {"networking": []}},
        "spec.networking is not an object, but list",
    ),
    (
        "config",
        "controlplane",
        GOOD["unit"],
        {**config(), "spec": {"units": {}}},
        "units is not a list of objects, but dict",
    ),
)
def test_a_stored_object_of_a_wrong_type_is_named(webhook: str, object: Any, old: Any, denied: str) -> None:
    assert refusal(webhook, object, old=old, found=cluster()) == STORED + denied


def of_pools(*versions: Any) -> dict[str, Any]:
    return cluster(
        *({"name": name, "kubernetes": {"version": v}} for name, v in zip("ab", versions, strict=True))
    )


@cases(
    "pool found denied",
    ("of-the-Shoot", "a", cluster(version="latest"), "spec.kubernetes.version is 'latest'"),
    ("none", "a", cluster(version=""), "spec.kubernetes.version is ''"),
    (
        "of-the-pool",
        "b",
        of_pools("1.36.0", "latest"),
        "spec.provider.workers[1].kubernetes.version of worker pool 'b' is 'latest'",
    ),
    (
        "of-the-pool-empty",
        "a",
        of_pools("", "1.36.0"),
        "spec.provider.workers[0].kubernetes.version of worker pool 'a' is ''",
    ),
)
def test_a_bad_version_is_named_with_its_pool(pool: str, found: Any, denied: str) -> None:
    given = config()
    given["metadata"]["labels"]["worker.gardener.cloud/pool"] = pool
    remedy = ": make it a semantic version such as 1.36.3"
    assert refusal("controlplane", given, found=found) == SHOOT + denied + remedy


@pytest.mark.parametrize("version", [None, "1.35.1"])
def test_a_pool_may_have_a_version_of_its_own(version: str | None) -> None:
    given = config()
    given["metadata"]["labels"]["worker.gardener.cloud/pool"] = "a"
    assert answered("controlplane", given, found=of_pools(version, "of another pool")).allowed


@pytest.mark.parametrize(
    ("version", "allowed"),
    [
        *((one, True) for one in ("1", "v1.2", "1.2.3-alpha.1+b.01", "01.002.3", "1.2.3--", "1.2-0.a01")),
        *(
            (one, False)
            for one in ("1.2.3-", "1.2.3-a..b", "1.2.3-01", "1.2.3-a.", "1.2.3+", "1.2.3+a..b", "1.2.")
        ),
        *((one, False) for one in ("V1.2", "1.2.3.4", " 1.2.3", "1.2.3\n", "99999999999999999999.1", "1.٢")),
    ],
)
def test_versions_are_read_as_gardener_reads_them(version: str, allowed: bool) -> None:
    assert answered("controlplane", config(), found=cluster(version=version)).allowed == allowed


@cases(
    "webhook object found denied",
    (
        "no-Shoot",
        "controlplane",
        deployment("machine-controller-manager"),
        {"spec": {"shoot": "x"}},
        f"Cluster {NAMESPACE}: spec.shoot is not an object, but str",
    ),
    (
        "no-workers",
        "controlplane",
        deployment("machine-controller-manager"),
        {"spec": {"shoot": {"spec": {"provider": {"workers": {}}}}}},
        f"{SHOOT}workers is not a list of objects, but dict",
    ),
    (
        "no-parent",
        "validator",
        namespaced(None),
        {"spec": "x"},
        "the parent CloudProfile: spec is not an object, but str",
    ),
    (
        "no-Seed",
        "networkpolicy",
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "allow-to-private-networks", "namespace": f"infra-{NAMESPACE}"},
        },
        {"spec": {"seed": []}},
        f"Cluster {NAMESPACE}: spec.seed is not an object, but list",
    ),
    (
        "no-spec",
        "calico-self-hosted-shoot",
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "calico-node"}},
        {"spec": {"shoot": {"spec": 1}}},
        "the Shoot in Cluster kube-system: spec is not an object, but int",
    ),
    (
        "no-Service",
        "dnsconfig",
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"}},
        {"spec": 1},
        "Service gardener-extension-provider-local-coredns/coredns: spec is not an object, but int",
    ),
)
def test_another_object_that_cannot_be_read_is_named(
    webhook: str, object: Any, found: Any, denied: str
) -> None:
    assert refusal(webhook, object, found=found) == denied
