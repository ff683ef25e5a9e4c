"""Members that Namespaces, ControlPlanes and provider Secrets request, and checks of many clusters."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from bus.clusters.registry import MachinePlace, Member
from tests.support.cases import cases
from tests.support.rules import rule
from tests.support.running import soon
from windowbox.errors import Unreachable
from windowbox.models import refs
from windowbox.models.cloudfacts import CloudFacts
from windowbox.models.clouds import CLOUD_TYPES
from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, ObjectRef, Resource, SecretKey
from workers.core import joinannotations
from workers.core.joinannotations import Unusable
from workers.core.lifecycle import shootfacts
from workers.core.lifecycle.shootfacts import ShootFacts
from workers.kinds.membership import cloudof, clusterjoining
from workers.kinds.membership.clusterjoining import Change, ControlPlanes, Replicas, changes, undecided
from workers.kinds.membership.providermembership import Checks, secret_of

NAME = "shoot--local--a"
KUBECONFIG, MACHINES, JOIN = (f"cluster.windowbox/{name}" for name in ("kubeconfig", "machines", "join"))
ELSEWHERE: dict[str, Any] = {KUBECONFIG: "admin", MACHINES: "infra-a"}
GOING: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def namespace(
    annotations: dict[str, Any] | None = None, labels: dict[str, str] | None = None, **metadata: str
) -> Object:
    found: dict[str, Any] = {"name": NAME, "annotations": annotations, "labels": labels}
    return Object({"metadata": found | metadata})


def member(secret: str = "kubeconfig", key: str = "kubeconfig", machines: str = NAME) -> Member:
    place = SecretKey(namespace=NAME, name=secret, key=key)
    return Member(id=NAME, secret=place, machines=MachinePlace(namespace=machines), origin="namespace")


@cases(
    "found asked",
    ("no-mark", namespace(), None),
    ("annotation", namespace({KUBECONFIG: "admin"}), member("admin")),
    ("with-a-key", namespace({KUBECONFIG: " admin/config "}), member("admin", "config")),
    ("label", namespace(labels={JOIN: "true"}), member("usual")),
    ("label-that-says-no", namespace(labels={JOIN: "false"}), None),
    ("both", namespace({KUBECONFIG: "admin"}, {JOIN: "true"}), member("admin")),
    ("machines-elsewhere", namespace(ELSEWHERE), member("admin", machines="infra-a")),
    ("being-deleted", namespace({KUBECONFIG: "admin"}, **GOING), None),
)
def test_members_requested_by_namespaces(found: Object, asked: Member | None) -> None:
    assert joinannotations.requested_member(found, "usual") == asked


@cases(
    "found why",
    ("empty", namespace({KUBECONFIG: ""}), "write SECRET or SECRET/KEY"),
    ("a-path", namespace({KUBECONFIG: "other/ad/min"}), "write SECRET or SECRET/KEY"),
    ("half-a-key", namespace({KUBECONFIG: "admin/"}), "write SECRET or SECRET/KEY"),
    ("very-long", namespace({KUBECONFIG: "x" * 10_000}), "'" + "x" * 64 + "…'"),
    ("upper-case", namespace({KUBECONFIG: "UPPER"}), "'UPPER'"),
    ("machines", namespace({**ELSEWHERE, MACHINES: "a/b"}), "the name of a Namespace"),
    ("runtime", namespace({KUBECONFIG: "admin"}, name="runtime"), "can be called runtime"),
)
def test_invalid_annotations_are_explained(found: Object, why: str) -> None:
    asked = joinannotations.requested_member(found, "usual")
    assert isinstance(asked, Unusable)
    assert why in asked.why
    assert len(asked.why) < 200


def test_slices_are_watched_only_where_pods_are_reachable() -> None:
    kinds = (refs.SERVICES.id, refs.NODES.id)
    assert joinannotations.with_kinds(member(), direct=False).kinds == kinds
    assert joinannotations.with_kinds(member(), direct=True).kinds == (*kinds, refs.ENDPOINT_SLICES.id)


OURS, MOVED = member(), member("another")
THEIRS = Member(id=NAME, file="kubeconfig")


@cases(
    "wanted found all_known change",
    ("joins", OURS, None, True, Change(NAME, None, OURS)),
    ("joins-though-not-all-is-known", OURS, None, False, Change(NAME, None, OURS)),
    ("stays", OURS, OURS, True, None),
    ("moves", MOVED, OURS, True, Change(NAME, OURS, MOVED)),
    ("leaves", None, OURS, True, Change(NAME, OURS, None)),
    ("is-not-taken-for-gone", None, OURS, False, None),
    ("a-person-let-it-join", None, THEIRS, True, None),
    ("a-person-let-it-join-before", OURS, THEIRS, True, None),
)
def test_changes_of_members(
    wanted: Member | None, found: Member | None, all_known: bool, change: Change | None
) -> None:
    asked = {NAME: wanted} if wanted else {}
    there = {NAME: found} if found else {}
    assert changes(asked, there, all_known=["namespace"] if all_known else []) == ([change] if change else [])


BY_CONTROLPLANE = OURS.model_copy(update={"origin": "controlplane"})


@cases(
    "wanted found",
    ("no-mark-that-can-be-followed", None, OURS),
    ("with-a-control-plane", BY_CONTROLPLANE, OURS),
    ("with-a-control-plane-only", BY_CONTROLPLANE, None),
)
def test_clusters_that_are_left_alone_neither_join_nor_leave(
    wanted: Member | None, found: Member | None
) -> None:
    asked = {NAME: wanted} if wanted else {}
    there = {NAME: found} if found else {}
    everything = ["namespace", "controlplane"]
    assert changes(asked, there, all_known=everything)
    assert changes(asked, there, all_known=everything, left_alone={NAME}) == []


@cases(
    "found marked unknown stays",
    ("large-namespace", OURS, [], {"namespace": [NAME]}, True),
    ("without-its-mark", OURS, [], {"controlplane": [NAME]}, False),
    ("large-control-plane", BY_CONTROLPLANE, [], {"controlplane": [NAME]}, True),
    ("with-a-mark", BY_CONTROLPLANE, [NAME], {"controlplane": [NAME]}, False),
)
def test_no_cluster_leaves_because_an_object_is_too_large_for_the_bus(
    found: Member, marked: list[str], unknown: dict[str, list[str]], stays: bool
) -> None:
    assert undecided({NAME: found}, marked, unknown) == ({NAME} if stays else set())


FINALIZER = "extensions.gardener.cloud/controlplane"


def controlplane(type_: str = "local", finalizer: str = FINALIZER, **status: Any) -> Object:
    return Object({"metadata": {"finalizers": [finalizer]}, "spec": {"type": type_}, "status": status})


@cases(
    "found takes_part",
    ("reconciled", controlplane(observedGeneration=1), True),
    ("no-access-yet", controlplane(), False),
    ("of-another-provider", controlplane("other", observedGeneration=1), False),
    ("of-a-cloud", controlplane("aws", observedGeneration=1), True),
    ("of-a-cloud-of-others", controlplane("gcp", observedGeneration=1), False),
    ("handed-over", controlplane(finalizer="other", observedGeneration=1), False),
)
def test_a_shoot_is_a_member_while_its_control_plane_is_ours(found: Object, takes_part: bool) -> None:
    assert clusterjoining.taking_part(found, ["aws"]) is takes_part


def test_the_member_has_the_access_that_the_control_plane_makes() -> None:
    shoot = ShootFacts(technical_id="shoot--a--b", managed_infrastructure=True)
    made = clusterjoining.member("shoot--a--b", shoot)
    assert made.secret == SecretKey(namespace="shoot--a--b", name="shoot-access-windowbox")
    assert made.machines
    assert made.machines.namespace == "infra-shoot--a--b"


AWAKE = ShootFacts()
ENABLED = ShootFacts(hibernation_enabled=True)
COMPLETE = ShootFacts(hibernation_enabled=True, hibernated=True)
"""As gardenlet says when all has ended."""


@rule("C-7", "C-10")
@cases(
    "shoot server was_asleep asleep",
    ("C-7-machines-go-first", ENABLED, Replicas(1, 1), False, False),
    ("C-7-ended", ENABLED, Replicas(0, 1), False, True),
    ("C-7-still", ENABLED, Replicas(0, 0), True, True),
    ("C-7-its-server-counts-where-it-is-seen", COMPLETE, Replicas(1, 1), False, False),
    ("C-7-starting", AWAKE, Replicas(1, 0), True, True),
    ("C-7-awake-again", AWAKE, Replicas(1, 1), True, False),
    ("C-7-restarted", AWAKE, Replicas(1, 0), False, False),
    ("C-7-machines-go-first-elsewhere", ENABLED, None, False, False),
    ("C-7-ended-elsewhere", COMPLETE, None, False, True),
    ("C-7-still-elsewhere", ENABLED, None, True, True),
    ("C-7-awake-again-elsewhere", AWAKE, None, True, False),
)
def test_when_a_shoot_sleeps(
    shoot: ShootFacts, server: Replicas | None, was_asleep: bool, asleep: bool
) -> None:
    assert clusterjoining.is_asleep(shoot, server, was_asleep=was_asleep) is asleep


def cluster_of(provider: Any, **spec: Any) -> Object:
    return Object({"spec": {"shoot": {"spec": {"provider": provider, **spec}}}})


@cases(
    "cluster cloud",
    ("local", cluster_of({"type": "local"}), None),
    ("unknown", cluster_of({"type": "a-cloud-of-tomorrow"}), None),
    ("malformed", cluster_of(["aws"]), None),
    (
        "aws",
        cluster_of(
            {"type": "aws"},
            region="eu-central-1",
            networking={"nodes": "10.250.0.0/16", "pods": "100.96.0.0/11"},
        ),
        CloudFacts(type="aws", region="eu-central-1", networks=("10.250.0.0/16", "100.96.0.0/11")),
    ),
    (
        "hostile",
        cluster_of({"type": "aws"}, region="evil.example.com", networking={"nodes": ["x", "10.0.0.7/8"]}),
        CloudFacts(type="aws", networks=("10.0.0.0/8",)),
    ),
    (
        "OST-C7",
        cluster_of(
            {
                "type": "openstack",
                "controlPlaneConfig": {
                    "loadBalancerClasses": [{"name": "a"}, {"name": "b", "purpose": "default"}, {}, "c"]
                },
            }
        ),
        CloudFacts(type="openstack", classes=("b", "a")),
    ),
    (
        "OST-C7-without-default",
        cluster_of(
            {
                "type": "openstack",
                "controlPlaneConfig": {"loadBalancerClasses": [{"name": "a"}, {"name": "b"}]},
            }
        ),
        CloudFacts(type="openstack", classes=("a", "b")),
    ),
)
def test_the_cloud_of_a_shoot(cluster: Object, cloud: CloudFacts | None) -> None:
    facts = shootfacts.facts(cluster)
    assert cloudof.cloud_of(cluster, facts, CLOUD_TYPES) == cloud
    assert cloudof.cloud_of(cluster, facts, ["gcp"]) is None, "clouds.types does not list it"


def test_records_of_former_versions_have_no_cloud() -> None:
    former = b'{"id":"shoot--a--b","secret":{"namespace":"shoot--a--b","name":"access"}}'
    assert Member.model_validate_json(former).cloud is None


@pytest.mark.parametrize("asleep", [True, False])
def test_a_shoot_sleeps_as_before_while_the_bus_may_lack_something(asleep: bool) -> None:
    """A bus that was made anew holds neither Clusters nor API servers."""
    unread = ControlPlanes(cast(Any, None), lambda: None)
    made = clusterjoining.member("shoot--a--b", ShootFacts(technical_id="shoot--a--b"))
    before = made.model_copy(update={"asleep": asleep})
    assert unread.as_its_shoot(made, before) == before
    assert not unread.as_its_shoot(made, None).asleep


HERE = SecretKey(namespace="a", name="cloudprovider")


@rule("K-3")
@cases(
    "kind spec secret",
    ("infrastructure", refs.INFRASTRUCTURES, {"secretRef": {"name": "cloudprovider"}}, HERE),
    (
        "infrastructure-elsewhere",
        refs.INFRASTRUCTURES,
        {"secretRef": {"name": "x", "namespace": "b"}},
        SecretKey(namespace="b", name="x"),
    ),
    ("infrastructure-without", refs.INFRASTRUCTURES, {"secretRef": None}, None),
    ("bastion", refs.BASTIONS, {}, HERE),
    ("exposure", refs.EXPOSURES, {"credentialsRef": {"name": "cloudprovider"}}, HERE),
    ("exposure-without", refs.EXPOSURES, {}, None),
)
def test_each_kind_names_its_provider_secret(
    kind: Resource, spec: dict[str, Any], secret: SecretKey | None
) -> None:
    ref = ObjectRef(RUNTIME, kind.id, "a", "local")
    assert secret_of(ref, Object({"spec": {"type": "local", **spec}})) == secret


@rule("T-2")
@pytest.mark.parametrize(
    "kind", [refs.INFRASTRUCTURES, refs.BASTIONS, refs.EXPOSURES], ids=lambda kind: kind.plural
)
def test_secrets_of_other_providers_are_ignored(kind: Resource) -> None:
    secret = {"name": "cloudprovider"}
    spec = {"type": "kubevirt", "secretRef": secret, "credentialsRef": secret}
    assert secret_of(ObjectRef(RUNTIME, kind.id, "a", "local"), Object({"spec": spec})) is None


@pytest.mark.parametrize(("provider", "secret"), [("local", HERE), ("AWS", None), (None, None)])
def test_a_machine_class_of_a_cloud_names_no_cluster(provider: str | None, secret: SecretKey | None) -> None:
    ref = ObjectRef(RUNTIME, refs.MACHINE_CLASSES.id, "a", "small")
    given = {"provider": provider, "credentialsSecretRef": {"name": "cloudprovider", "namespace": "a"}}
    assert secret_of(ref, Object(given)) == secret


async def hang() -> None:
    await asyncio.Event().wait()


async def test_a_check_runs_while_a_hundred_hang() -> None:
    checks, answered = Checks(), asyncio.Event()

    async def answer() -> None:
        answered.set()

    async with checks.running():
        for number in range(100):
            checks.begin(number, hang)
        checks.begin("good", answer)
        await soon(answered.wait())


@pytest.mark.parametrize("error", [Unreachable("it does not answer"), KeyError("a bug")], ids=repr)
async def test_failed_checks_are_retried_later(error: Exception) -> None:
    checks, asked = Checks(), list[str]()

    async def fail() -> None:
        asked.append("bad")
        raise error

    async def answer() -> None:
        asked.append("good")

    async with checks.running():
        for _ in range(3):
            checks.begin("bad", fail)
            checks.begin("good", answer)
            await checks.settle()
    assert sorted(asked) == ["bad", "good", "good", "good"]


async def test_a_check_runs_once_at_a_time() -> None:
    checks, asked, gate = Checks(), list[int](), asyncio.Event()

    async def answer() -> None:
        asked.append(1)
        await gate.wait()

    async with checks.running():
        checks.begin("one", answer)
        await asyncio.sleep(0)
        checks.begin("one", answer)
        gate.set()
        await checks.settle()
    assert asked == [1]
