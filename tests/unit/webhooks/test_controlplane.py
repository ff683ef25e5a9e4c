"""Mutations of control planes' objects. Denials name object, field, value and remedy."""

from __future__ import annotations

import base64
import copy
from typing import Any

import pytest

from tests.support.admissionexamples import DRIVER
from tests.support.admitted import DELETED, Json, admitted, answered, refusal, resource
from tests.support.cases import cases
from tests.support.rules import rule
from tests.unit.webhooks.test_admission_shoots import KUBECONFIG, secret, shoot
from tests.unit.webhooks.test_cloudprofiles import namespaced

NAMESPACE = "shoot--local--local"
MANAGER = "machine-controller-manager"
KUBELET_FILE = "/var/lib/kubelet/config/kubelet"
SYSCTL_FILE = "/etc/sysctl.d/99-k8s-general.conf"


def cluster(*workers: Json, version: str = "1.36.0") -> Json:
    spec = {"kubernetes": {"version": version}, "provider": {"workers": list(workers)}}
    return {"kind": "Cluster", "metadata": {"name": NAMESPACE}, "spec": {"shoot": {"spec": spec}}}


SELF_HOSTED = cluster({"name": "one"}, {"name": "two", "controlPlane": {}})


def deployment(name: str, *containers: Json, namespace: str = NAMESPACE, metadata: Any = None) -> Json:
    pod = {"metadata": {}, "spec": {"containers": [{"name": "main"}, *containers]}}
    return resource("apps/v1 Deployment", name, namespace, metadata=metadata, spec={"template": pod})


def config(*files: Json, units: list[Any] | None = None, pool: str = "one") -> Json:
    labels = {"labels": {"worker.gardener.cloud/pool": pool}}
    spec = {"type": "local", "purpose": "reconcile", "files": list(files), "units": units or []}
    return resource("extensions.gardener.cloud/v1alpha1 OperatingSystemConfig", metadata=labels, spec=spec)


def file(path: str, data: str, encoding: str = "") -> Json:
    return {"path": path, "content": {"inline": {"encoding": encoding, "data": data}}}


def unit(content: str) -> Json:
    return {"name": "kubelet.service", "content": content}


def inline(found: Any, at: int = 0) -> str:
    return str(found["spec"]["files"][at]["content"]["inline"]["data"])


def containers(found: Any) -> list[Any]:
    return list(found["spec"]["template"]["spec"]["containers"])


def argument(container: Json, name: str) -> str:
    return next(str(one).partition("=")[2] for one in container["args"] if one.startswith(f"--{name}="))


@rule("WW-10")
@pytest.mark.parametrize(
    "name",
    [
        *("kube-apiserver", "virtual-garden-kube-apiserver", "kube-controller-manager", "cluster-autoscaler"),
        *("vpn-seed-server", "gardener-resource-manager", "anything-else"),
    ],
)
def test_other_deployments_stay_as_they_are(name: str) -> None:
    assert admitted("controlplane", deployment(name)) == deployment(name)


@rule("WW-11", "WW-15")
def test_the_scheduler_gets_its_probe_even_where_there_are_no_labels() -> None:
    found = admitted("controlplane", deployment("kube-scheduler"))
    assert found["spec"]["template"]["metadata"] == {"labels": {"injected-by": "provider-local"}}


NO_SHOOT = f"Cluster {NAMESPACE} contains no Shoot: gardenlet has to write it first"


@cases(
    "given more message",
    (
        "WW-13+WW-14-no-cluster",
        *(deployment(MANAGER), {"failure": "it is away"}, "failed reading Cluster: it is away"),
    ),
    ("WW-48-no-shoot", deployment(MANAGER), {"found": {"spec": {"shoot": None}}}, NO_SHOOT),
    ("WW-48-no-shoot-for-a-config", config(), {"found": {"spec": {"shoot": None}}}, NO_SHOOT),
    (
        "WW-25-no-image",
        *(deployment(MANAGER), {"found": cluster(), "images": {}}),
        f"could not find image {DRIVER}: add it to the image vector",
    ),
)
def test_objects_without_cluster_or_image_are_denied(given: Json, more: Json, message: str) -> None:
    assert refusal("controlplane", given, **more) == message


GENERIC = "/var/run/secrets/gardener.cloud/shoot/generic-kubeconfig/kubeconfig"


@rule("WW-20", "WW-21", "WW-22")
@cases(
    "found namespace target mounts",
    ("hosted", cluster({"name": "one"}), NAMESPACE, GENERIC, 1),
    ("self-hosted", SELF_HOSTED, "kube-system", "", 0),
    ("self-hosted-before-it-hosts-itself", SELF_HOSTED, NAMESPACE, "none", 0),
)
def test_the_driver_finds_its_kubeconfig(found: Json, namespace: str, target: str, mounts: int) -> None:
    made = admitted("controlplane", deployment(MANAGER, namespace=namespace), found=found)
    driver = containers(made)[-1]
    assert argument(driver, "target-kubeconfig") == target
    assert argument(driver, "namespace") == namespace
    assert len(driver.get("volumeMounts", [])) == mounts
    assert "volumes" not in made["spec"]["template"]["spec"]


AUTOSCALER = resource(
    "autoscaling.k8s.io/v1 VerticalPodAutoscaler", f"{MANAGER}-vpa", NAMESPACE, spec={"resourcePolicy": {}}
)


@cases(
    "given stored",
    ("none-is-added", deployment(MANAGER), deployment(MANAGER)),
    ("an-earlier-one-goes", deployment(MANAGER, {"name": DRIVER}), deployment(MANAGER)),
    ("no-policy-for-it", AUTOSCALER, AUTOSCALER),
)
def test_where_windowbox_creates_machines_there_is_no_driver(given: Json, stored: Json) -> None:
    assert admitted("controlplane", given, driver=False) == stored


@rule("WW-23", "WW-24")
def test_a_stale_driver_is_replaced_in_its_place() -> None:
    stale = {"name": DRIVER, "image": "old", "env": [{"name": "A"}], "terminationMessagePath": "/x"}
    made = containers(
        admitted("controlplane", deployment(MANAGER, stale, {"name": "after"}), found=cluster())
    )
    assert [one["name"] for one in made] == ["main", DRIVER, "after"]
    assert made[0] == {"name": "main"}
    assert not made[1].keys() & {"env", "terminationMessagePath"}


@rule("WW-23")
def test_a_driver_with_the_same_requests_stays_as_it_is() -> None:
    made = admitted("controlplane", deployment(MANAGER), found=cluster())
    containers(made)[-1]["resources"]["requests"] = {"cpu": "0.01", "memory": "20480Ki"}
    assert not answered("controlplane", made, found=cluster()).patch
    containers(made)[-1]["resources"]["requests"]["cpu"] = "11m"
    changed = containers(admitted("controlplane", made, found=cluster()))[-1]
    assert changed["resources"]["requests"] == {"cpu": "10m", "memory": "20480Ki"}


POLICY = {"containerName": DRIVER, "controlledValues": "RequestsOnly"}
OFF, OFF_OURS = {"containerName": "*", "mode": "Off"}, {"containerName": DRIVER, "mode": "Off"}


@cases(
    "given policies",
    ("WW-30+WW-32-no-policies", None, [POLICY]),
    ("WW-32-empty", {}, [POLICY]),
    ("WW-31-after-all-others", {"containerPolicies": [OFF]}, [OFF, POLICY]),
    ("WW-31-replaced", {"containerPolicies": [OFF_OURS, {"a": 1}]}, [POLICY, {"a": 1}]),
)
def test_the_autoscaler_leaves_limits_alone(given: Any, policies: list[Any]) -> None:
    spec = {} if given is None else {"resourcePolicy": given}
    scaler = resource("autoscaling.k8s.io/v1 VerticalPodAutoscaler", f"{MANAGER}-vpa", spec=spec)
    assert admitted("controlplane", scaler)["spec"]["resourcePolicy"]["containerPolicies"] == policies


@rule("WW-40")
def test_only_the_first_file_and_unit_of_a_name_count() -> None:
    files = file(KUBELET_FILE, "failSwapOn: true"), file(KUBELET_FILE, "not: [yaml")
    given = config(*files, units=[unit("[A]\nB=1"), unit("x=")])
    found = admitted("controlplane", given, found=cluster())
    assert "failSwapOn: false" in inline(found)
    assert inline(found, 1) == "not: [yaml"
    assert [one["content"] for one in found["spec"]["units"]] == ["[A]\nB=1\n", "x="]


@rule("WW-40")
@pytest.mark.parametrize("content", [{"imageRef": {"image": "a"}}, {"secretRef": {"name": "a"}}, {}])
def test_files_that_are_not_inline_are_left_alone(content: Json) -> None:
    given = config({"path": KUBELET_FILE, "content": content}, units=[{"name": "kubelet.service"}])
    assert admitted("controlplane", given, found=cluster()) == given


BAD_UNIT = "unit kubelet.service cannot be read: "
NO_TEXT = f"file {KUBELET_FILE}: its data is not base64 of a text: "
NO_CONFIG = f"file {KUBELET_FILE} is not a KubeletConfiguration: "


@cases(
    "given why",
    ("WW-41-an-option-without-a-value", unit("[A]\nno option"), BAD_UNIT),
    ("WW-41-text-after-the-section", unit("[A] x\nB=1"), BAD_UNIT),
    ("WW-41-a-long-line", unit("[A]\nB=" + "x" * 2048), BAD_UNIT),
    *(
        (f"WW-42-not-base64-{at}", file(KUBELET_FILE, data, "b64"), NO_TEXT)
        for at, data in enumerate(("%%%", "YQ", "/w==", "é"))
    ),
    *(
        (f"WW-43-{name}", file(KUBELET_FILE, text), NO_CONFIG + why)
        for name, text, why in (
            ("another-kind", "kind: Pod", "kind is 'Pod': make it KubeletConfiguration"),
            ("no-yaml", "a: [", "line 2: "),
            ("a-list", "- a", "it has to be a mapping"),
            ("another-type", "failSwapOn: many", "failSwapOn is 'many': it has to be true or false"),
            ("a-list-of-one", "failSwapOn: [true]", "failSwapOn has to be true or false"),
        )
    ),
)
def test_unreadable_units_and_files_are_denied(given: Json, why: str) -> None:
    object = config(given) if "path" in given else config(units=[given])
    assert refusal("controlplane", object, found=cluster()).startswith(why)


@rule("WW-42")
@pytest.mark.parametrize("encoding", ["gzip", "gzip+b64", "B64", "none"])
@pytest.mark.parametrize("path", [KUBELET_FILE, SYSCTL_FILE])
def test_other_encodings_are_denied(path: str, encoding: str) -> None:
    message = refusal("controlplane", config(file(path, "x", encoding)), found=cluster())
    assert message == f"file {path}: encoding '{encoding}' is unknown: make it b64 or empty"


@rule("WW-44", "WW-46")
@pytest.mark.parametrize("encoding", ["", "b64"])
def test_text_of_gardenlet_changes_in_swap_alone(encoding: str) -> None:
    text = (
        "apiVersion: kubelet.config.k8s.io/v1beta1\nclusterDNS:\n- 10.4.0.10\nfailSwapOn: true\n"
        "kind: KubeletConfiguration\nmaxPods: 110\nsyncFrequency: 0s\n"
    )
    given = base64.b64encode(text.encode()).decode() if encoding else text
    asked = config({**file(KUBELET_FILE, given, encoding), "permissions": 384})
    found = admitted("controlplane", asked, found=cluster())
    after = base64.b64decode(inline(found)).decode() if encoding else inline(found)
    assert after == text.replace("failSwapOn: true", "failSwapOn: false")
    assert found["spec"]["files"][0]["permissions"] == 384


@cases(
    "data encoding after",
    ("plain", "a = 1", "", "a = 1"),
    ("b64", "YSA9\nIDE=\n", "b64", "YSA9IDE="),
    ("empty", "", "", ""),
)
def test_kernel_settings_keep_their_text(data: str, encoding: str, after: str) -> None:
    found = admitted("controlplane", config(file(SYSCTL_FILE, data, encoding)), found=cluster())
    assert inline(found) == after


@rule("WW-3", "WW-12")
def test_objects_under_deletion_or_changed_before_stay_as_they_are() -> None:
    manager = deployment(MANAGER, metadata=DELETED)
    assert admitted("controlplane", manager) == manager
    once = admitted("controlplane", deployment(MANAGER), found=cluster())
    assert admitted("controlplane", copy.deepcopy(once), found=cluster()) == once


SHOOT = f"the Shoot in Cluster {NAMESPACE}: "
STORED = "the stored object (oldObject): "
TAKE_OUT = "; to repair it, take the entry out of spec.{} in one update, and add it in another"
GOOD = {
    "kubelet": config(file(KUBELET_FILE, "failSwapOn: true")),
    "unit": config(units=[unit("[A]\nB=1\n")]),
    "sysctl": config(file(SYSCTL_FILE, "a = 1")),
}


@rule("WW-47")
@cases(
    "kind old denied field",
    (
        "kubelet",
        *("kubelet", config(file(KUBELET_FILE, "failSwapOn: many"))),
        f"file {KUBELET_FILE} is not a KubeletConfiguration: failSwapOn is 'many': it has to be true or "
        "false",
        "files",
    ),
    (
        "unit",
        *("unit", config(units=[unit("[A]\nB")])),
        *("unit kubelet.service cannot be read: the line 'B' has no =", "units"),
    ),
    (
        "sysctl",
        *("sysctl", config(file(SYSCTL_FILE, "x", "gzip"))),
        *(f"file {SYSCTL_FILE}: encoding 'gzip' is unknown: make it b64 or empty", "files"),
    ),
)
def test_an_unreadable_stored_entry_denies_until_removed(
    kind: str, old: Json, denied: str, field: str
) -> None:
    message = refusal("controlplane", GOOD[kind], found=cluster(), old=old)
    assert message == STORED + denied + TAKE_OUT.format(field)
    # As the remedy says.
    assert answered("controlplane", config(), found=cluster(), old=old).allowed
    assert answered("controlplane", GOOD[kind], found=cluster(), old=config()).allowed


@rule("WW-47")
@pytest.mark.parametrize("good", GOOD.values(), ids=GOOD)
def test_a_readable_stored_entry_is_no_reason_to_deny(good: Json) -> None:
    found = admitted("controlplane", good, found=cluster(), old=good)
    assert found == admitted("controlplane", good, found=cluster())


@cases(
    "webhook object part denied",
    ("secret", "secrets.validator", secret(KUBECONFIG), {"data": "x"}, "data is not an object, but str"),
    (
        "shoot",
        *("validator", shoot(), {"spec": {"networking": []}}),
        "spec.networking is not an object, but list",
    ),
    (
        "config",
        *("controlplane", GOOD["unit"], {"spec": {"units": {}}}),
        "units is not a list of objects, but dict",
    ),
)
def test_a_mistyped_stored_object_is_named(webhook: str, object: Json, part: Json, denied: str) -> None:
    assert refusal(webhook, object, old={**object, **part}, found=cluster()) == STORED + denied


def of_pools(*versions: Any) -> Json:
    workers = zip("ab", versions, strict=True)
    return cluster(*({"name": name, "kubernetes": {"version": v}} for name, v in workers))


WORKERS = "spec.provider.workers"


@cases(
    "pool found denied",
    ("of-the-Shoot", "a", cluster(version="latest"), "spec.kubernetes.version is 'latest'"),
    ("none", "a", cluster(version=""), "spec.kubernetes.version is ''"),
    (
        "of-the-pool",
        *("b", of_pools("1.36.0", "latest")),
        f"{WORKERS}[1].kubernetes.version of worker pool 'b' is 'latest'",
    ),
    (
        "of-the-pool-empty",
        *("a", of_pools("", "1.36.0")),
        f"{WORKERS}[0].kubernetes.version of worker pool 'a' is ''",
    ),
)
def test_a_bad_version_is_named_with_its_pool(pool: str, found: Json, denied: str) -> None:
    remedy = ": make it a semantic version such as 1.36.3"
    assert refusal("controlplane", config(pool=pool), found=found) == SHOOT + denied + remedy


@pytest.mark.parametrize("version", [None, "1.35.1"])
def test_a_pool_may_set_its_own_version(version: str | None) -> None:
    assert answered("controlplane", config(pool="a"), found=of_pools(version, "of another pool")).allowed


@pytest.mark.parametrize("version", ["1", "v1.2", "1.2.3-alpha.1+b.01", "01.002.3", "1.2.3--", "1.2-0.a01"])
def test_versions_are_read_as_gardener_reads_them(version: str) -> None:
    assert answered("controlplane", config(), found=cluster(version=version)).allowed


@pytest.mark.parametrize(
    "version",
    [
        *("1.2.3-", "1.2.3-a..b", "1.2.3-01", "1.2.3-a.", "1.2.3+", "1.2.3+a..b", "1.2.", "V1.2", "1.2.3.4"),
        *(" 1.2.3", "1.2.3\n", "99999999999999999999.1", "1.٢"),
    ],
)
def test_versions_are_refused_as_gardener_refuses_them(version: str) -> None:
    assert not answered("controlplane", config(), found=cluster(version=version)).allowed


@cases(
    "webhook object found denied",
    (
        "no-Shoot",
        *("controlplane", deployment(MANAGER), {"spec": {"shoot": "x"}}),
        f"Cluster {NAMESPACE}: spec.shoot is not an object, but str",
    ),
    (
        "no-workers",
        *("controlplane", deployment(MANAGER), {"spec": {"shoot": {"spec": {"provider": {"workers": {}}}}}}),
        f"{SHOOT}workers is not a list of objects, but dict",
    ),
    (
        "no-parent",
        *("validator", namespaced(None), {"spec": "x"}),
        "the parent CloudProfile: spec is not an object, but str",
    ),
    (
        "no-Seed",
        "networkpolicy",
        resource("networking.k8s.io/v1 NetworkPolicy", "allow-to-private-networks", f"infra-{NAMESPACE}"),
        {"spec": {"seed": []}},
        f"Cluster {NAMESPACE}: spec.seed is not an object, but list",
    ),
    (
        "no-spec",
        *("calico-self-hosted-shoot", resource("apps/v1 DaemonSet", "calico-node", "")),
        {"spec": {"shoot": {"spec": 1}}},
        "the Shoot in Cluster kube-system: spec is not an object, but int",
    ),
    (
        "no-Service",
        *("dnsconfig", resource("v1 Pod"), {"spec": 1}),
        "Service gardener-extension-provider-local-coredns/coredns: spec is not an object, but int",
    ),
)
def test_an_unreadable_other_object_is_named(webhook: str, object: Json, found: Json, denied: str) -> None:
    assert refusal(webhook, object, found=found) == denied
