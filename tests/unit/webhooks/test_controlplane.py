"""What happens to the objects of control planes."""

from __future__ import annotations

import base64
import copy
from typing import Any

import pytest

from tests.support.admitted import admitted, refusal
from tests.support.cases import cases
from tests.support.rules import rule

NAMESPACE = "shoot--local--local"
DRIVER = "machine-controller-manager-provider-local"
KUBELET_FILE = "/var/lib/kubelet/config/kubelet"
SYSCTL_FILE = "/etc/sysctl.d/99-k8s-general.conf"


def cluster(*workers: dict[str, Any], version: str = "1.36.0") -> dict[str, Any]:
    shoot = {"kubernetes": {"version": version}, "provider": {"workers": list(workers)}}
    return {"kind": "Cluster", "metadata": {"name": NAMESPACE}, "spec": {"shoot": {"spec": shoot}}}


SELF_HOSTED = cluster({"name": "one"}, {"name": "two", "controlPlane": {}})


def deployment(
    name: str, *containers: dict[str, Any], namespace: str = NAMESPACE, **metadata: Any
) -> dict[str, Any]:
    pod = {"metadata": {}, "spec": {"containers": [{"name": "main"}, *containers]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"template": pod},
    }


def config(
    *files: dict[str, Any], units: list[Any] | None = None, purpose: str = "reconcile"
) -> dict[str, Any]:
    return {
        "apiVersion": "extensions.gardener.cloud/v1alpha1",
        "kind": "OperatingSystemConfig",
        "metadata": {"name": "any", "namespace": NAMESPACE, "labels": {"worker.gardener.cloud/pool": "one"}},
        "spec": {"type": "local", "purpose": purpose, "files": list(files), "units": units or []},
    }


def file(path: str, data: str, encoding: str = "", **content: Any) -> dict[str, Any]:
    return {"path": path, "content": {"inline": {"encoding": encoding, "data": data}, **content}}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def inline(found: Any, at: int = 0) -> str:
    data = found["spec"]["files"][at]["content"]["inline"]["data"]
    assert isinstance(data, str)
    return data


def containers(found: Any) -> list[Any]:
    return list(found["spec"]["template"]["spec"]["containers"])


def argument(container: dict[str, Any], name: str) -> str:
    arguments: list[str] = container["args"]
    return next(one.partition("=")[2] for one in arguments if one.startswith(f"--{name}="))


@rule("WW-10")
@pytest.mark.parametrize(
    "name",
    [
        "kube-apiserver",
        "virtual-garden-kube-apiserver",
        "kube-controller-manager",
        "cluster-autoscaler",
        "vpn-seed-server",
        "gardener-resource-manager",
        "anything-else",
    ],
)
def test_other_deployments_stay_as_they_are(name: str) -> None:
    assert admitted("controlplane", deployment(name)) == deployment(name)


@rule("WW-11", "WW-15")
def test_the_scheduler_gets_its_probe_even_where_there_are_no_labels() -> None:
    found = admitted("controlplane", deployment("kube-scheduler"))
    assert found["spec"]["template"]["metadata"] == {"labels": {"injected-by": "provider-local"}}


@rule("WW-13", "WW-14")
def test_without_its_cluster_the_manager_is_denied() -> None:
    message = refusal("controlplane", deployment("machine-controller-manager"), failure="it is away")
    assert message == "failed reading Cluster: it is away"


@rule("WW-48")
@pytest.mark.parametrize("object", [deployment("machine-controller-manager"), config()])
def test_a_cluster_without_a_shoot_denies(object: dict[str, Any]) -> None:
    found = {"spec": {"shoot": None}}
    assert refusal("controlplane", object, found=found) == (
        f"Cluster {NAMESPACE} contains no Shoot: gardenlet has to write it first"
    )


@rule("WW-20", "WW-21", "WW-22")
@cases(
    "found namespace target mounts",
    (
        "hosted",
        cluster({"name": "one"}),
        NAMESPACE,
        "/var/run/secrets/gardener.cloud/shoot/generic-kubeconfig/kubeconfig",
        1,
    ),
    ("self-hosted", SELF_HOSTED, "kube-system", "", 0),
    ("self-hosted-before-it-hosts-itself", SELF_HOSTED, NAMESPACE, "none", 0),
)
def test_the_driver_finds_its_kubeconfig(
    found: dict[str, Any], namespace: str, target: str, mounts: int
) -> None:
    manager = deployment("machine-controller-manager", namespace=namespace)
    made = admitted("controlplane", manager, found=found)
    driver = containers(made)[-1]
    assert argument(driver, "target-kubeconfig") == target
    assert argument(driver, "namespace") == namespace
    assert len(driver.get("volumeMounts", [])) == mounts
    assert "volumes" not in made["spec"]["template"]["spec"]


@rule("WW-23", "WW-24")
def test_a_driver_that_is_there_is_replaced_at_its_place() -> None:
    stale = {"name": DRIVER, "image": "old", "env": [{"name": "A"}], "terminationMessagePath": "/x"}
    manager = deployment("machine-controller-manager", stale, {"name": "after"})
    made = containers(admitted("controlplane", manager, found=cluster()))
    assert [one["name"] for one in made] == ["main", DRIVER, "after"]
    assert made[0] == {"name": "main"}
    assert "env" not in made[1]
    assert "terminationMessagePath" not in made[1]


@rule("WW-25")
def test_without_its_image_the_manager_is_denied() -> None:
    manager = deployment("machine-controller-manager")
    message = refusal("controlplane", manager, found=cluster(), images={})
    assert message == f"could not find image {DRIVER}: add it to the image vector"


POLICY = {"containerName": DRIVER, "controlledValues": "RequestsOnly"}


@cases(
    "spec policies",
    ("WW-30+WW-32-no-policies", {}, [POLICY]),
    ("WW-32-empty", {"resourcePolicy": {}}, [POLICY]),
    (
        "WW-31-after-all-others",
        {"resourcePolicy": {"containerPolicies": [{"containerName": "*", "mode": "Off"}]}},
        [{"containerName": "*", "mode": "Off"}, POLICY],
    ),
    (
        "WW-31-replaced",
        {"resourcePolicy": {"containerPolicies": [{"containerName": DRIVER, "mode": "Off"}, {"a": 1}]}},
        [POLICY, {"a": 1}],
    ),
)
def test_the_autoscaler_leaves_limits_alone(spec: dict[str, Any], policies: list[Any]) -> None:
    scaler = {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "machine-controller-manager-vpa", "namespace": NAMESPACE},
        "spec": spec,
    }
    assert admitted("controlplane", scaler)["spec"]["resourcePolicy"]["containerPolicies"] == policies


@rule("WW-40")
def test_only_the_first_file_and_unit_of_a_name_count() -> None:
    given = config(
        file(KUBELET_FILE, "failSwapOn: true"),
        file(KUBELET_FILE, "not: [yaml"),
        units=[
            {"name": "kubelet.service", "content": "[A]\nB=1"},
            {"name": "kubelet.service", "content": "x="},
        ],
    )
    found = admitted("controlplane", given, found=cluster())
    assert "failSwapOn: false" in inline(found)
    assert inline(found, 1) == "not: [yaml"
    assert [unit["content"] for unit in found["spec"]["units"]] == ["[A]\nB=1\n", "x="]


@rule("WW-40")
@pytest.mark.parametrize("content", [{"imageRef": {"image": "a"}}, {"secretRef": {"name": "a"}}, {}])
def test_files_that_are_not_inline_are_left_alone(content: dict[str, Any]) -> None:
    given = config({"path": KUBELET_FILE, "content": content}, units=[{"name": "kubelet.service"}])
    assert admitted("controlplane", given, found=cluster()) == given


@rule("WW-41")
@cases(
    "content",
    ("an-option-without-a-value", "[A]\nno option"),
    ("text-after-the-section", "[A] x\nB=1"),
    ("a-long-line", "[A]\nB=" + "x" * 2048),
)
def test_a_unit_that_systemd_would_misread_is_denied(content: str) -> None:
    given = config(units=[{"name": "kubelet.service", "content": content}])
    message = refusal("controlplane", given, found=cluster())
    assert message.startswith("unit kubelet.service cannot be read: ")


@rule("WW-42")
@pytest.mark.parametrize("encoding", ["gzip", "gzip+b64", "B64", "none"])
@pytest.mark.parametrize("path", [KUBELET_FILE, SYSCTL_FILE])
def test_other_encodings_are_denied(path: str, encoding: str) -> None:
    message = refusal("controlplane", config(file(path, "x", encoding)), found=cluster())
    assert message == f"file {path}: encoding '{encoding}' is unknown: make it b64 or empty"


@rule("WW-42")
@pytest.mark.parametrize("data", ["%%%", "YQ", "/w==", "é"])
def test_what_is_not_base64_of_a_text_is_denied(data: str) -> None:
    message = refusal("controlplane", config(file(KUBELET_FILE, data, "b64")), found=cluster())
    assert message.startswith(f"file {KUBELET_FILE}: its data is not base64 of a text: ")


@rule("WW-44", "WW-46")
@pytest.mark.parametrize("encoding", ["", "b64"])
def test_text_of_gardenlet_changes_in_swap_alone(encoding: str) -> None:
    text = (
        "apiVersion: kubelet.config.k8s.io/v1beta1\nclusterDNS:\n- 10.4.0.10\nfailSwapOn: true\n"
        "kind: KubeletConfiguration\nmaxPods: 110\nsyncFrequency: 0s\n"
    )
    given = config({**file(KUBELET_FILE, encoded(text) if encoding else text, encoding), "permissions": 384})
    found = admitted("controlplane", given, found=cluster())
    data = inline(found)
    after = base64.b64decode(data).decode() if encoding else data
    assert after == text.replace("failSwapOn: true", "failSwapOn: false")
    assert found["spec"]["files"][0]["permissions"] == 384


@rule("WW-43")
@cases(
    "text why",
    ("another-kind", "kind: Pod", "kind is 'Pod': make it KubeletConfiguration"),
    ("no-yaml", "a: [", "line 2: "),
    ("a-list", "- a", "it has to be a mapping"),
    ("another-type", "failSwapOn: many", "failSwapOn is 'many': it has to be true or false"),
    ("a-list-of-one", "failSwapOn: [true]", "failSwapOn has to be true or false"),
)
def test_what_is_no_configuration_of_a_kubelet_is_denied(text: str, why: str) -> None:
    message = refusal("controlplane", config(file(KUBELET_FILE, text)), found=cluster())
    assert message.startswith(f"file {KUBELET_FILE} is not a KubeletConfiguration: {why}")


@cases(
    "data encoding after",
    ("plain", "a = 1", "", "a = 1"),
    ("b64", "YSA9\nIDE=\n", "b64", "YSA9IDE="),
    ("empty", "", "", ""),
)
def test_kernel_settings_keep_their_text(data: str, encoding: str, after: str) -> None:
    found = admitted("controlplane", config(file(SYSCTL_FILE, data, encoding)), found=cluster())
    assert inline(found) == after


@rule("WW-3")
def test_an_object_under_deletion_stays_as_it_is() -> None:
    manager = deployment("machine-controller-manager", deletionTimestamp="2026-01-01T00:00:00Z")
    assert admitted("controlplane", manager) == manager


@rule("WW-12")
def test_the_mutator_of_control_planes_is_idempotent() -> None:
    manager = deployment("machine-controller-manager")
    once = admitted("controlplane", manager, found=cluster())
    assert admitted("controlplane", copy.deepcopy(once), found=cluster()) == once
