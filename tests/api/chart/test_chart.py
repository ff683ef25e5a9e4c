"""deploy/charts/windowbox as helm renders it, and what an API server says of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bus import permissions
from commands import installation
from sandbox.programs import binaries
from sandbox.servers.apiserver import ApiServer
from tests.support import helm
from tests.support.cases import cases
from tests.support.helm import Manifest, dry_run, of_kind, refusal, rendered
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from windowbox.rights import admissionpolicies, rbac
from windowbox.settings import imagevector, settings
from windowbox.settings.clustersettings import GrantSettings

RANGES = {"loadbalancer": {"ranges": [{"prefixes": ["198.18.255.0/24"]}]}}
EVERYTHING: dict[str, Any] = {
    "edge": {"enabled": True}, "admit": {"enabled": True}, "bind": {"enabled": True},
    "rbac": {"provider": True}, "operator": {"enabled": True},
    "nats": {"replicas": 3}, "settings": RANGES, "imageVectorOverwrite": {"images": []},
    "work": [
        {"name": "records", "pools": ["dnsrecord"], "autoscaling": {"type": "hpa"}},
        {"name": "rest", "replicas": 2},
    ],
    "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}}],
}  # fmt: skip
GARDENER = {
    "gardener": {"version": "v1.150.0", "seed": {"name": "local"}},
    "usablePorts": [18080, 11250, 18081],
}
POLICY = "ValidatingAdmissionPolicy"
FOREIGN = {"ServiceMonitor", "PrometheusRule", "ScaledObject", "VerticalPodAutoscaler"}
"""Kinds of programs that are not here: Prometheus' operator, KEDA, and the autoscaler."""


@pytest.fixture(scope="module")
def api(plane: ControlPlane) -> Iterator[ApiServer]:
    """With the namespace of the release, which admits restricted Pods only."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    path = f"/api/v1/namespaces/{helm.NAMESPACE}"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": helm.NAMESPACE}}
    restricted = namespace | {"metadata": {"name": helm.NAMESPACE, "labels": labels}}
    plane.api.apply(path, restricted)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    plane.api.apply(f"{path}/serviceaccounts/default", account)
    yield plane.api
    plane.api.apply(path, namespace)


@pytest.mark.parametrize(
    ("files", "values"),
    [
        pytest.param((), {}, id="defaults"),
        *(pytest.param((file,), {}, id=file.stem) for file in helm.PRESETS),
        pytest.param((), EVERYTHING, id="everything"),
        pytest.param((), EVERYTHING | GARDENER, id="as-gardenlet-renders-it"),
    ],
)
def test_the_api_server_takes_every_manifest(
    api: ApiServer, files: tuple[Path, ...], values: dict[str, Any]
) -> None:
    manifests = rendered(*files, **values)
    assert len({(one["kind"], one["metadata"]["name"]) for one in manifests}) == len(manifests)
    refused = {}
    for one in manifests:
        if one["kind"] == "Pod":
            one = _pod(one["metadata"]["name"], one["spec"])
        if one["kind"] not in FOREIGN and (error := dry_run(api, one)):
            refused[f"{one['kind']} {one['metadata']['name']}"] = error
    assert refused == {}


@rule("WF-70", "WF-71", "WF-72")
def test_api_servers_reach_webhooks_where_gardener_makes_network_policies() -> None:
    services = of_kind(rendered(**EVERYTHING | GARDENER), "Service")
    service = services["gardener-extension-provider-local"]
    prefix = "networking.resources.gardener.cloud/"
    annotations = service["metadata"]["annotations"]
    # The port of the Pods, not that of the Service.
    pods = [{"protocol": "TCP", "port": 11250}]
    assert [one["port"] for one in service["spec"]["ports"]] == [443]
    assert json.loads(annotations[f"{prefix}from-world-to-ports"]) == pods
    assert json.loads(annotations[f"{prefix}from-all-webhook-targets-allowed-ports"]) == pods
    assert annotations[f"{prefix}pod-label-selector-namespace-alias"] == "extensions"


def test_pods_of_webhooks_answer_until_proxies_know_that_they_end() -> None:
    pod = helm.pod(rendered(**EVERYTHING), "windowbox-admit")
    # The server needs two seconds for callers that it sends away, and ten for the last answers.
    assert pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"] in range(
        5, pod["terminationGracePeriodSeconds"] - 15
    )


@pytest.mark.parametrize("process", ["windowbox-admit", "windowbox-patch", "windowbox-work-records"])
def test_statuses_of_pods_keep_the_last_lines_of_processes_that_have_failed(process: str) -> None:
    container = helm.pod(rendered(**EVERYTHING), process)["containers"][0]
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_pods_are_restricted_but_for_the_edge(api: ApiServer) -> None:
    refused = {}
    for owner in rendered(**EVERYTHING):
        name, template = owner["metadata"]["name"], owner.get("spec", {}).get("template")
        if owner["kind"] == "Pod" or template:
            spec = (template or owner)["spec"]
            for claim in owner["spec"].get("volumeClaimTemplates", []):
                spec["volumes"].append({"name": claim["metadata"]["name"], "emptyDir": {}})
            if error := dry_run(api, _pod(name, spec)):
                refused[name] = error
    assert refused.keys() == {"windowbox-edge", "windowbox-envoy"}
    assert all("violates PodSecurity" in error for error in refused.values())


def test_roles_have_exactly_the_rights_of_the_table() -> None:
    manifests = rendered(**EVERYTHING)
    roles = {name: one["rules"] for name, one in of_kind(manifests, "ClusterRole").items()}
    wanted = {
        rbac.user(role): rbac.RULES[role] for role in ("watcher", "worker", "patcher", "admit", "provider")
    }
    wanted |= {f"{rbac.user(role)}:secrets": rules for role, rules in rbac.SECRET_RULES.items()}
    assert roles == wanted | {rbac.user("granter"): rbac.granter()}
    assert of_kind(manifests, "Role")["windowbox-admit"]["rules"] == rbac.OWN_SECRET_RULES["admit"]


@pytest.mark.parametrize("name", ["windowbox", "second"])
def test_policies_bind_the_accounts_to_the_namespaces_of_the_settings(name: str) -> None:
    patterns = ["garden", "shoot--a?--*"]
    settings = {"grant": {"namespaces": patterns}}
    manifests = rendered(settings=settings, rbac={"name": name}, fullnameOverride=name)
    accounts = {
        role: f"{helm.NAMESPACE}/{name}-{command}"
        for role, command in (("watcher", "watch"), ("worker", "work"), ("patcher", "patch"))
    }
    granting = GrantSettings(namespaces=tuple(patterns), name=name, service_accounts=accounts)
    users = {
        role: f"system:serviceaccount:{account.replace('/', ':')}"
        for role, account in {**accounts, "granter": f"{helm.NAMESPACE}/{name}-grant"}.items()
    }
    holders = {f"system:{name}:{role}:secrets": users[role] for role in rbac.SECRET_RULES}
    found = {**of_kind(manifests, POLICY), **of_kind(manifests, f"{POLICY}Binding")}
    assert found.keys() == {f"{name}-granter", f"{name}-worker"}
    for wanted in admissionpolicies.manifests(users["granter"], users["worker"], holders, granting):
        made = of_kind(manifests, wanted["kind"])[wanted["metadata"]["name"]]
        assert _parsed(made["spec"]) == _parsed(wanted["spec"])


def _parsed(spec: Manifest) -> Manifest:
    """JSON in expressions is compared by its values."""
    for variable in spec.get("variables", []):
        if variable["expression"][0] in "[{":
            variable["expression"] = json.loads(variable["expression"])
    return spec


def test_without_a_granter_there_is_no_policy_for_it() -> None:
    assert of_kind(rendered(grant={"enabled": False}), POLICY).keys() == {"windowbox-worker"}


def test_helm_grants_all_namespaces_without_a_granter() -> None:
    manifests = rendered(settings={"grant": {"namespaces": ["*"]}})
    bound = {
        name: [one["name"] for one in binding["subjects"]]
        for name, binding in of_kind(manifests, "ClusterRoleBinding").items()
        if name.endswith(":secrets")
    }
    commands = {"watcher": "watch", "worker": "work", "patcher": "patch"}
    assert bound == {
        f"{rbac.user(role)}:secrets": [f"windowbox-{commands[role]}"] for role in rbac.SECRET_RULES
    }
    assert of_kind(manifests, POLICY).keys() == {"windowbox-worker"}
    assert not [one for one in manifests if one["metadata"]["name"].startswith("windowbox-grant")]


def test_each_role_runs_as_an_account_of_its_own() -> None:
    manifests = rendered(**EVERYTHING)
    bound = {
        name: [(one["kind"], one["namespace"], one["name"]) for one in binding["subjects"]]
        for name, binding in of_kind(manifests, "ClusterRoleBinding").items()
    }
    accounts = {
        "watcher": "watch", "worker": "work", "patcher": "patch", "admit": "admit", "granter": "grant",
        "provider": "work",
    }  # fmt: skip
    assert bound == {
        rbac.user(role): [("ServiceAccount", helm.NAMESPACE, f"windowbox-{account}")]
        for role, account in accounts.items()
    }
    pods = {name: one["spec"]["template"]["spec"] for name, one in of_kind(manifests, "Deployment").items()}
    assert {name: pod["serviceAccountName"] for name, pod in pods.items()} == {
        "windowbox-watch": "windowbox-watch", "windowbox-work-records": "windowbox-work",
        "windowbox-work-rest": "windowbox-work", "windowbox-patch": "windowbox-patch",
        "windowbox-edge": "windowbox-edge", "windowbox-admit": "windowbox-admit",
        "windowbox-grant": "windowbox-grant", "windowbox-operator": "windowbox-operator",
    }  # fmt: skip
    assert not pods["windowbox-edge"]["automountServiceAccountToken"]


def test_one_pod_does_what_three_did() -> None:
    manifests = rendered(run={"enabled": True}, bind={"enabled": True}, rbac={"provider": True})
    assert of_kind(manifests, "Deployment").keys() == {"windowbox-run", "windowbox-grant"}
    assert "windowbox-run" in of_kind(manifests, "ServiceAccount")
    for role in ("watcher", "worker", "patcher", "provider"):
        [subject] = of_kind(manifests, "ClusterRoleBinding")[rbac.user(role)]["subjects"]
        assert subject["name"] == "windowbox-run"
    [policy] = [one for one in of_kind(manifests, "NetworkPolicy").items() if one[0].endswith("nameservers")]
    assert "run" in policy[1]["spec"]["podSelector"]["matchExpressions"][0]["values"]
    spec = helm.pod(manifests, "windowbox-run")
    variables = {one["name"]: one for one in spec["containers"][0]["env"]}
    assert variables["WINDOWBOX_NATS__USER"]["value"] == "runner"
    assert variables["WINDOWBOX_NATS__PASSWORD"]["valueFrom"]["secretKeyRef"]["key"] == "worker"
    assert "WINDOWBOX_DNS__ZONES" in variables
    roles = of_kind(manifests, "ConfigMap")["windowbox-nats"]["data"]["roles.conf"]
    assert roles == permissions.configuration(runner=True)
    server = helm.pod(manifests, "windowbox-nats", "StatefulSet")["containers"][0]["env"]
    [password] = [one for one in server if one["name"] == "PASSWORD_OF_RUNNER"]
    assert password["valueFrom"]["secretKeyRef"]["key"] == "worker"


def test_a_second_release_has_names_of_its_own() -> None:
    first, second = rendered(), rendered(rbac={"name": "second"}, fullnameOverride="second")
    names = [{(one["kind"], one["metadata"]["name"]) for one in manifests} for manifests in (first, second)]
    assert names[0].isdisjoint(names[1])
    granter = of_kind(second, "ClusterRole")["system:second:granter"]["rules"]
    assert granter == json.loads(json.dumps(rbac.granter()).replace("windowbox", "second"))


@pytest.mark.parametrize("replicas", [1, 3])
def test_users_of_the_bus_have_the_permissions_that_exist(replicas: int, tmp_path: Path) -> None:
    [data] = [one["data"] for one in of_kind(rendered(nats={"replicas": replicas}), "ConfigMap").values()]
    assert data["roles.conf"] == permissions.configuration(clustered=replicas > 1)
    for name, key in installation.server_certificate(["windowbox-nats"]).items():
        (tmp_path / name).write_bytes(key)
    here = str(tmp_path)
    for name, text in data.items():
        (tmp_path / name).write_text(text.replace("/etc/nats-tls", here).replace("/data", here))
    passwords = {
        f"NATS_{role.upper()}_PASSWORD": f'"{word.decode()}"'
        for role, word in installation.passwords().items()
    }
    checked = subprocess.run(
        [binaries.find("nats-server"), "-t", "--config", tmp_path / "nats-server.conf"],
        env={"POD_NAME": "windowbox-nats-0", **passwords},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "is valid" in checked.stdout + checked.stderr, checked.stderr


def test_processes_take_the_settings_that_they_are_given(tmp_path: Path) -> None:
    given = {
        "settings": RANGES | {"work": {"concurrency": 7}},
        "work": [{"settings": {"work": {"concurrency": 9}}}],
    }
    found = _settings(rendered(**(EVERYTHING | given)), tmp_path)
    assert found["watch"].work.concurrency == 7
    assert found["work-all"].work.concurrency == 9
    assert found["work-all"].loadbalancer.edge == found["edge"].loadbalancer.edge == "separate"
    assert found["admit"].webhooks.namespace == found["work-all"].webhooks.namespace == helm.NAMESPACE
    assert found["grant"].grant.service_accounts["worker"] == f"{helm.NAMESPACE}/windowbox-work"


@cases(
    "injected priority",
    ("seed", {"seed": {"name": "local"}}, "gardener-system-900"),
    ("self-hosted-shoot", {"shoot": {"name": "local"}}, "gardener-system-900"),
    (
        "runtime-cluster",
        {"runtimeCluster": {"enabled": "true", "priorityClassName": "gardener-garden-system-200"}},
        "gardener-garden-system-200",
    ),
    ("elsewhere", {}, None),
)
def test_pods_have_the_priority_that_gardener_gives_extensions(
    injected: dict[str, Any], priority: str | None
) -> None:
    manifests = rendered(**EVERYTHING, gardener=injected)
    found = of_kind(manifests, "StatefulSet") | of_kind(manifests, "Deployment")
    del found["windowbox-operator"]  # a shell for people
    pods = [one["spec"]["template"]["spec"] for one in found.values()]
    assert {one.get("priorityClassName") for one in pods} == {priority}


def test_only_workers_get_a_kubeconfig_of_the_garden() -> None:
    kinds = {"Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"}
    label = "extensions.gardener.cloud/inject-garden-kubeconfig"
    injected = {
        one["metadata"]["name"]
        for one in rendered(**EVERYTHING | GARDENER)
        if one["kind"] in kinds and one["metadata"]["labels"].get(label) != "false"
    }
    assert injected == {"windowbox-work-records", "windowbox-work-rest"}


@rule("WP-37")
def test_injected_values_of_gardenlet_reach_the_processes(tmp_path: Path) -> None:
    injected = {
        "version": "v1.150.0", "gardenlet": {"featureGates": {"X": True}},
        "garden": {"clusterIdentity": "garden"}, "seed": {"name": "local"}, "selfHostedShootCluster": True,
    }  # fmt: skip
    manifests = rendered(**EVERYTHING | GARDENER | {"gardener": injected})
    found = _settings(manifests, tmp_path)
    assert {one.garden.version for name, one in found.items() if name != "grant"} == {"v1.150.0"}
    assert found["work-rest"].heartbeat.namespace == helm.NAMESPACE
    assert found["admit"].webhooks.self_hosted
    assert found["admit"].webhooks.address == "0.0.0.0:11250"
    [container] = helm.pod(manifests, "windowbox-work-rest")["containers"]
    assert {"name": "WINDOWBOX_METRICS", "value": "0.0.0.0:18080"} in container["env"]


@rule("IV-1")
def test_images_are_overwritten_as_in_gardeners_chart(tmp_path: Path) -> None:
    name, ref = "cloud-controller-manager-local", "registry.example/ccm:1"
    manifests = rendered(imageVectorOverwrite={"images": [{"name": name, "ref": ref}]})
    file = _settings(manifests, tmp_path)["work-all"].images.overwrite
    pod = helm.pod(manifests, "windowbox-work-all")
    sources = {one["name"]: one.get("configMap", {}).get("name") for one in pod["volumes"]}
    mounts = {one["mountPath"]: sources[one["name"]] for one in pod["containers"][0]["volumeMounts"]}
    assert file
    content = of_kind(manifests, "ConfigMap")[mounts[str(file.parent)]]["data"][file.name]
    (tmp_path / file.name).write_text(content)
    assert imagevector.load(tmp_path / file.name).image(name) == ref


def test_keys_of_zones_are_for_workers_alone(tmp_path: Path) -> None:
    key = {"name": "k", "secret": "c2VjcmV0"}
    zones = [{"name": "example.org", "servers": ["192.0.2.53"], "key": key}]
    found = _settings(rendered(settings={"dns": {"zones": zones}}), tmp_path)
    assert {name for name, one in found.items() if one.dns.zones} == {"work-all"}


@cases(
    "values reason",
    ("a-value", {"netwrokPolicies": {}}, "'netwrokPolicies' not allowed"),
    ("a-setting", {"settings": {"dsn": {}}}, "'dsn' not allowed"),
    ("a-setting-of-the-chart", {"settings": {"nats": {}}}, "'nats' not allowed"),
    ("in-a-group", {"work": [{"pool": "dnsrecord"}]}, "'pool' not allowed"),
    ("a-pool", {"work": [{"pools": ["dns"]}]}, "value must be one of"),
    ("two-groups-of-one-name", {"work": [{}, {}]}, "the name all is there twice"),
    ("a-way-to-scale", {"work": [{"autoscaling": {"type": "a"}}]}, "value must be one of"),
    ("two-ways-to-scale", {"work": [{"autoscaling": {"type": ["hpa", "keda"]}}]}, "work/0/autoscaling/type"),
    ("keda-without-pools", {"work": [{"autoscaling": {"type": "keda"}}]}, "needs pools"),
    ("edge-without-ranges", {"edge": {"enabled": True}}, "settings.loadbalancer.ranges"),
    ("a-bus-without-passwords", {"nats": {"enabled": False}}, "nats.existingSecret"),
    ("a-bus-without-url", {"nats": {"enabled": False, "existingSecret": "x"}}, "nats.url"),
    ("two-servers", {"nats": {"replicas": 2}}, "value must be one of"),
)
def test_invalid_values_are_refused_by_name(values: dict[str, Any], reason: str) -> None:
    assert reason in refusal(**values)


def test_images_are_pinned_and_come_from_one_registry() -> None:
    digest = f"sha256:{'0' * 64}"
    values = {
        "global": {"imageRegistry": "registry.example"},
        "image": {"digest": digest},
        "bind": {"enabled": True},
    }
    images = {
        container["image"]
        for one in rendered(**values)
        for container in one.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
    }
    assert images == {
        f"registry.example/windowbox@{digest}",
        "registry.example/nats:2.15.2-alpine",
        "registry.example/internetsystemsconsortium/bind9:9.18",
    }


def _settings(manifests: list[Manifest], folder: Path) -> dict[str, settings.Settings]:
    """What each process reads, by the name of its Deployment."""
    found = {}
    for name, secret in of_kind(manifests, "Secret").items():
        file = folder / f"{name}.yaml"
        file.write_text(secret["stringData"]["settings.yaml"])
        found[name.removeprefix("windowbox-").removesuffix("-settings")] = settings.load(file)
    return found


def _pod(name: str, spec: dict[str, Any]) -> Manifest:
    left_out = ("serviceAccountName", "priorityClassName")
    spec = {key: value for key, value in spec.items() if key not in left_out} | {"restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
