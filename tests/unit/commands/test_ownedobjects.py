"""Owned objects of recorded runs, and the commands that show them: from values alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bus.messages import Call, Reason, RunRecord, Wish
from commands.journal import ownedobjects, timeline

NOW = datetime(2026, 9, 1, 10, 15, 31, tzinfo=UTC)
HOME = "infra-shoot--a--b"
PROVIDER = Call(
    door="provider",
    request={"secret": "shoot--a--b/cloudprovider"},
    answer={"cluster": "runtime", "mark": "m"},
)


def apply(kind: str, namespace: str, name: str, answer: Any = "uid", cluster: str = "runtime") -> Call:
    object = {"kind": kind, "metadata": {"namespace": namespace, "name": name}}
    return Call(door="apply", request={"cluster": cluster, "object": object}, answer=answer, effect=True)


def delete(what: str, answer: bool = True) -> Call:
    return Call(door="delete", request=what, answer=answer, effect=True)


def etcd(door: str, answer: bool = True) -> Call:
    request = {"secret": "shoot--a--b/etcd-backup", "of": "garden/credentials"}
    return Call(door=door, request=request, answer=answer, effect=True)


def run(*calls: Call, after: float = 0) -> RunRecord:
    return RunRecord(
        pool="infrastructure", key="k", wish=Wish(reason=Reason.EVENT), wish_sequence=1, delivery=1,
        started=NOW + timedelta(seconds=after), seconds=0.01, process="host/1", outcome="succeeded",
        calls=list(calls),
    )  # fmt: skip


def did(*runs: RunRecord) -> dict[str, str]:
    return {one.title: one.did for one in ownedobjects.objects(runs)}


NAMESPACE = apply("Namespace", "", HOME)
POLICY = apply("NetworkPolicy", HOME, "deny")


def test_each_object_is_shown_once_as_it_was_left() -> None:
    again = run(apply("NetworkPolicy", HOME, "deny"), after=60)
    [namespace, policy] = ownedobjects.objects([again, run(PROVIDER, NAMESPACE, POLICY)])
    assert (namespace.title, namespace.at) == (f"Namespace {HOME}", NOW)
    assert (policy.title, policy.at) == (f"NetworkPolicy {HOME}/deny", NOW + timedelta(seconds=60))


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        pytest.param([apply("Secret", HOME, "s", True)], {f"Secret {HOME}/s": "wrote"}, id="secret-written"),
        pytest.param([apply("Secret", HOME, "s", False)], {f"Secret {HOME}/s": "left alone"}, id="secret"),
        pytest.param([POLICY, delete(f"networkpolicies {HOME}/deny")],
                     {f"NetworkPolicy {HOME}/deny": "deleted"}, id="deleted"),
        pytest.param([POLICY, delete(f"networkpolicies {HOME}/deny", False)],
                     {f"NetworkPolicy {HOME}/deny": "found gone"}, id="gone-meanwhile"),
        pytest.param([POLICY, delete(f"networkpolicies {HOME}/deny"),
                      delete(f"networkpolicies {HOME}/deny", False)],
                     {f"NetworkPolicy {HOME}/deny": "deleted"}, id="deleted-and-looked-for-again"),
        pytest.param([delete("ippools nodes", False)], {}, id="never-there"),
        pytest.param([NAMESPACE, POLICY, delete(f"namespaces {HOME}")],
                     {f"Namespace {HOME}": "deleted",
                      f"NetworkPolicy {HOME}/deny": "gone with its namespace"}, id="taken-along"),
        pytest.param([etcd("tell")], {"Secret shoot--a--b/etcd-backup": "wrote"}, id="written-for-etcd"),
        pytest.param([etcd("tell"), etcd("take back")], {"Secret shoot--a--b/etcd-backup": "deleted"},
                     id="taken-back"),
        pytest.param([etcd("tell"), etcd("take back", False)], {"Secret shoot--a--b/etcd-backup": "wrote"},
                     id="of-another-by-now"),
        pytest.param([Call(door="look", request="services a/b"), Call(door="clock", request=None)], {},
                     id="looks"),
    ],
)  # fmt: skip
def test_the_last_change_of_an_object_is_shown(calls: list[Call], said: dict[str, str]) -> None:
    assert did(*(run(call, after=n) for n, call in enumerate(calls))) == said


def test_a_failure_is_shown_with_its_object() -> None:
    error = {"type": "Refused", "message": "no"}
    [one] = ownedobjects.objects([run(POLICY.model_copy(update={"answer": None, "error": error}))])
    [line] = ownedobjects.lines([one], "runtime")[:1]
    assert line.endswith("wrote NetworkPolicy infra-shoot--a--b/deny, but failed: Refused: no")


def test_hints_name_kubectl_or_the_load_balancer_story() -> None:
    [policy, service] = ownedobjects.objects([run(PROVIDER, POLICY, apply("Service", HOME, "bastion-x"))])
    assert policy.commands("runtime") == (f"kubectl -n {HOME} get networkpolicy deny -o yaml",)
    assert service.commands("runtime") == (
        f"kubectl -n {HOME} get service bastion-x -o yaml",
        f"windowbox trace service {HOME}/bastion-x",
    )


def test_hints_for_other_clusters_name_the_secret() -> None:
    [one] = ownedobjects.objects([run(PROVIDER, apply("Service", HOME, "web", cluster="provider-1"))])
    secret = "kubectl -n shoot--a--b get secret cloudprovider -o jsonpath='{.data.kubeconfig}' | base64 -d"
    assert one.commands("runtime") == (
        f"kubectl --kubeconfig <({secret}) -n {HOME} get service web -o yaml",
        f"windowbox trace service {HOME}/web --cluster provider-1",
    )


def test_objects_elsewhere_name_their_cluster() -> None:
    [one] = ownedobjects.objects([run(delete(f"services {HOME}/web (provider-1)"), after=0)])
    assert (one.cluster, one.did) == ("provider-1", "deleted")
    assert " in provider-1" in ownedobjects.lines([one], "runtime")[0]


def test_a_deleted_object_has_no_commands() -> None:
    [one] = ownedobjects.objects([run(delete(f"namespaces {HOME}"))])
    assert one.commands("runtime") == ()
    assert one.as_json("runtime")["commands"] == []


def test_a_run_summary_names_changed_objects() -> None:
    calls = (PROVIDER, NAMESPACE, Call(door="look", request="services a/b"), delete("ippools nodes"))
    [moment] = timeline.moments([], [run(*calls)])
    assert list(moment.details[1:]) == [
        "provider cluster runtime, from the Secret shoot--a--b/cloudprovider",
        f"wrote Namespace {HOME}",
        "deleted IPPool nodes",
    ]
