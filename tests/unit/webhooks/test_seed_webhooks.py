"""What happens to NetworkPolicies, Prometheuses and Gardener's API server on seeds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.admitted import admitted, answered, refusal
from tests.support.cases import cases
from tests.support.rules import rule
from windowbox.settings.webhooksettings import PrometheusSettings, WebhookSettings

NODES = "172.18.0.0/24"
LABEL = "networking.gardener.cloud/to-private-networks"


def seed(nodes: str | None = NODES) -> dict[str, Any]:
    return {"spec": {"seed": {"spec": {"networks": {"nodes": nodes}}}}}


def policy(*excepted: str, name: str = "allow-to-private-networks", **metadata: Any) -> dict[str, Any]:
    block = {"cidr": "172.16.0.0/12", "except": list(excepted)}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": "shoot--local--local", **metadata},
        "spec": {"egress": [{"to": [{"ipBlock": block}, {"podSelector": {}}]}, {"ports": []}]},
    }


def exceptions(found: Any) -> Any:
    return found["spec"]["egress"][0]["to"][0]["ipBlock"].get("except", "none")


@rule("WW-50")
def test_other_policies_are_allowed_without_a_lookup() -> None:
    given = policy(NODES, name="allow-to-dns")
    assert admitted("networkpolicy", given, failure="must not be asked") == given


@cases(
    "given left",
    ("I-5+WW-53+WW-54-the-only-one", [NODES], "none"),
    ("WW-53-one-of-two", [NODES, "10.0.0.0/8"], ["10.0.0.0/8"]),
    ("WW-55-twice", ["10.0.0.0/8", NODES, NODES], ["10.0.0.0/8"]),
    ("WW-55-nothing-else", [NODES, NODES], "none"),
    ("WW-53-a-part-of-it", ["172.18.0.0/25"], ["172.18.0.0/25"]),
)
def test_the_nodes_of_the_seed_are_no_exception(given: list[str], left: Any) -> None:
    assert exceptions(admitted("networkpolicy", policy(*given), found=seed())) == left


@rule("WW-52")
@pytest.mark.parametrize(
    "found",
    [{"spec": {}}, {"spec": {"seed": None}}, {"spec": {"seed": {"spec": {"networks": {}}}}}, seed(None)],
)
def test_a_seed_without_a_range_of_nodes_changes_nothing(found: dict[str, Any]) -> None:
    assert admitted("networkpolicy", policy(NODES), found=found) == policy(NODES)


@rule("WW-51")
def test_a_cluster_that_cannot_be_read_denies_in_the_words_of_the_api() -> None:
    assert refusal("networkpolicy", policy(NODES), failure="clusters is forbidden") == "clusters is forbidden"


@rule("WW-3")
def test_policies_under_deletion_are_changed_too() -> None:
    given = policy(NODES, deletionTimestamp="2026-01-01T00:00:00Z")
    assert exceptions(admitted("networkpolicy", given, found=seed())) == "none"


def prometheus(name: str, **spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "monitoring.coreos.com/v1", "kind": "Prometheus"}
    return {**head, "metadata": {"name": name, "namespace": "garden"}, "spec": spec}


REMOTE = WebhookSettings(
    prometheus=PrometheusSettings(
        remote_write_urls=("http://a/write", "http://b/write"), external_labels={"job": "x", "new": "y"}
    )
)


@rule("WW-60")
def test_other_prometheuses_stay_as_they_are() -> None:
    assert admitted("prometheus", prometheus("shoot"), settings=REMOTE) == prometheus("shoot")


@rule("WW-61")
@pytest.mark.parametrize("name", ["garden", "longterm"])
def test_those_of_the_garden_only_end_sooner(name: str) -> None:
    found = admitted("prometheus", prometheus(name, remoteWrite=[1]), settings=REMOTE)
    assert found["spec"] == {"remoteWrite": [1], "terminationGracePeriodSeconds": 60}


@rule("WW-62", "WW-63", "WW-64")
def test_that_of_the_seed_writes_to_all_urls_in_their_order() -> None:
    given = prometheus("seed", externalLabels={"job": "old", "seed": "local"})
    found = admitted("prometheus", given, settings=REMOTE)["spec"]
    assert found["externalLabels"] == {"job": "x", "seed": "local", "new": "y"}
    assert found["podMetadata"] == {"labels": {LABEL: "allowed"}}
    assert [one["url"] for one in found["remoteWrite"]] == ["http://a/write", "http://b/write"]
    assert found["remoteWrite"][1]["writeRelabelConfigs"] == [
        {"sourceLabels": ["job"], "regex": "gardenlet", "action": "keep"},
        {"sourceLabels": ["__name__"], "regex": "(up|flow_.+|gardenlet_.+)", "action": "keep"},
    ]


@rule("WW-63", "WW-64", "WW-65")
def test_without_urls_that_of_the_seed_writes_nowhere() -> None:
    given = prometheus("seed", remoteWrite=[{"url": "stale"}], podMetadata={"labels": {"a": "b"}})
    assert admitted("prometheus", given)["spec"] == {
        "podMetadata": {"labels": {"a": "b", LABEL: "allowed"}},
        "terminationGracePeriodSeconds": 60,
    }


def api_server(seconds: Any = None, **pod: Any) -> dict[str, Any]:
    spec = {"template": {"spec": pod}} | ({} if seconds is None else {"minReadySeconds": seconds})
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "any"}, "spec": spec}


@rule("WW-70", "WW-71")
@pytest.mark.parametrize(("given", "found"), [(30, 5), (6, 5), (5, 5), (3, 3), (0, 0), (None, None)])
def test_new_pods_are_ready_within_five_seconds(given: int | None, found: int | None) -> None:
    assert admitted("rollout-speedup", api_server(given))["spec"].get("minReadySeconds") == found


@rule("WW-72", "WW-73")
def test_probes_and_grace_are_short() -> None:
    probe = {"httpGet": {"path": "/"}, "periodSeconds": 1, "initialDelaySeconds": 0}
    given = api_server(
        terminationGracePeriodSeconds=0,
        containers=[{"name": "a", "readinessProbe": probe}, {"name": "b", "livenessProbe": probe}],
        initContainers=[{"name": "c", "readinessProbe": probe}],
    )
    short = {"httpGet": {"path": "/"}, "periodSeconds": 5, "initialDelaySeconds": 3}
    assert admitted("rollout-speedup", given)["spec"]["template"]["spec"] == {
        "terminationGracePeriodSeconds": 3,
        "containers": [{"name": "a", "readinessProbe": short}, {"name": "b", "livenessProbe": probe}],
        "initContainers": [{"name": "c", "readinessProbe": probe}],
    }


def test_a_deployment_of_a_wrong_type_cannot_be_decoded() -> None:
    assert answered("rollout-speedup", api_server("30")).code == 400
    assert answered("rollout-speedup", api_server(containers={})).code == 400
