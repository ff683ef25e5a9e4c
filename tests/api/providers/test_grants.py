"""What each role may not do in the cluster, and Secrets that it may work with by namespace."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sandbox import files
from sandbox.servers import certificates, kubeconfigs
from tests.api.providers.tenants import finish, refused, served
from tests.support.cases import cases
from tests.support.kindworld import kind_world
from tests.support.natsserver import NatsServer
from tests.support.running import eventually, running
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Forbidden
from windowbox.kinds import POOLS
from windowbox.models.refs import MANAGED_RESOURCES, NAMESPACES, NETWORK_POLICIES, SECRETS, Resource
from windowbox.rights import rbac
from windowbox.rights.granting import Granting
from windowbox.settings.clustersettings import GrantSettings

ROOT = Path(__file__).parents[3]
ROLES = ("watcher", "worker", "patcher", "granter")
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False)
RULES = Resource("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", False)
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
Asked = tuple[str, str, str]
"""A verb, a group, and a resource or subresource."""

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def strict(other: ControlPlane) -> Iterator[ControlPlane]:
    """A cluster with the rights of `deploy/rbac.yaml`: elsewhere in tests, the roles read all Secrets."""
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    paths = [f"{bindings}/{rbac.user(role)}:secrets" for role in rbac.SECRET_RULES]
    former = [other.api.read(path) for path in paths]
    for path in paths:
        other.api.request("DELETE", path).read()
    yield other
    for one in former:
        name = one["metadata"]["name"]
        other.api.create(bindings, {**one, "metadata": {"name": name}})


@pytest_asyncio.fixture
async def admin(strict: ControlPlane) -> AsyncIterator[Kube]:
    async with kube.from_file(strict.kubeconfig) as opened:
        yield opened


@pytest_asyncio.fixture
async def granter(strict: ControlPlane) -> AsyncIterator[Kube]:
    async with kube.from_file(kubeconfig_of(strict, "granter")) as opened:
        yield opened


def kubeconfig_of(plane: ControlPlane, role: str) -> Path:
    user = certificates.client(plane.api.ca, plane.kubeconfig.parent / "pki", rbac.user(role))
    path = plane.kubeconfig.with_name(f"{role}.kubeconfig")
    files.write_private(path, kubeconfigs.text(plane.api.url, plane.api.ca, user))
    return path


async def namespace(admin: Kube, prefix: str) -> str:
    name = f"{prefix}{next(_numbers)}"
    await admin.create(NAMESPACES, "", {"metadata": {"name": name}})
    return name


def known(plane: ControlPlane) -> set[tuple[str, str]]:
    """Every group and resource that the API server serves."""
    versions = [("", "/api/v1")]
    for group in plane.api.read("/apis")["groups"]:
        versions += [(group["name"], f"/apis/{one['groupVersion']}") for one in group["versions"]]
    return {
        (group, resource["name"])
        for group, path in versions
        for resource in plane.api.read(path).get("resources") or ()
    }


async def allowed(admin: Kube, role: str, namespace: str, asked: set[Asked], name: str = "") -> set[Asked]:
    """What of this the role may do in the namespace."""
    room = asyncio.Semaphore(16)

    async def may(verb: str, group: str, resource: str) -> bool:
        kind, _, part = resource.partition("/")
        attributes = {"verb": verb, "group": group, "resource": kind, "subresource": part, "version": "*"}
        spec = {
            "user": rbac.user(role),
            "groups": ["system:authenticated"],
            "resourceAttributes": {**attributes, "namespace": namespace, "name": name},
        }
        async with room:
            answer = await admin.create(REVIEWS, "", {"spec": spec})
        return bool(answer.status["allowed"])

    inquiries = sorted(asked)
    answers = await asyncio.gather(*(may(*one) for one in inquiries))
    return {one for one, yes in zip(inquiries, answers, strict=True) if yes}


def rules(*of: list[dict[str, Any]]) -> set[Asked]:
    """What rules allow of all objects of a kind."""
    return {
        (verb, group, resource)
        for rule in itertools.chain(*of)
        if not rule.get("resourceNames")
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


EVERYBODY = {
    ("create", "authorization.k8s.io", "selfsubjectaccessreviews"),
    ("create", "authorization.k8s.io", "selfsubjectrulesreviews"),
    ("create", "authentication.k8s.io", "selfsubjectreviews"),
}
"""What Kubernetes lets all users do: ask about themselves."""


async def held(strict: ControlPlane, role: str, namespace: str) -> set[Asked]:
    """All that the API server says the role may do in the namespace, with objects of any name."""
    async with kube.from_file(kubeconfig_of(strict, role)) as opened:
        answer = await opened.create(RULES, "", {"spec": {"namespace": namespace}})
    assert not answer.status["incomplete"]
    return rules(answer.status["resourceRules"])


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_may_do_nothing_but_what_its_rules_say(
    strict: ControlPlane, admin: Kube, granter: Kube, role: str
) -> None:
    ours, theirs = await namespace(admin, "shoot--walk"), await namespace(admin, "elsewhere")
    everywhere, in_ours = await granted(granter, role)

    async def all_granted() -> bool:  # the API server hears of new bindings a moment later
        return await held(strict, role, ours) == in_ours

    await eventually(all_granted)
    assert await held(strict, role, theirs) == everywhere
    assert await held(strict, role, "kube-system") == everywhere


async def test_bootstrap_tokens_are_the_only_readable_shoot_secrets(
    strict: ControlPlane, admin: Kube
) -> None:
    everywhere = rules(rbac.RULES["target"]) | EVERYBODY
    assert await held(strict, "target", await namespace(admin, "tenant")) == everywhere
    tokens = {("get", "", "secrets"), ("create", "", "secrets"), ("delete", "", "secrets")}
    assert await held(strict, "target", "kube-system") == everywhere | tokens


async def granted(granter: Kube, role: str) -> tuple[set[Asked], set[Asked]]:
    """What the role may do in all namespaces, and in those of Shoots, once these are granted."""
    await Granting(granter, GrantSettings(namespaces=("shoot--*",))).once()
    everywhere = rules(rbac.granter() if role == "granter" else rbac.RULES[role]) | EVERYBODY
    return everywhere, everywhere | rules(rbac.SECRET_RULES.get(role, []))


@pytest.mark.long  # the tests above read the rules by which the API server answers
@pytest.mark.parametrize("role", [*ROLES, "target"])
async def test_each_request_is_answered_by_these_rules(
    strict: ControlPlane, admin: Kube, granter: Kube, role: str
) -> None:
    every = {(verb, *kind) for verb in VERBS for kind in known(strict)}
    assert len(every) > 800
    for place in (await namespace(admin, "shoot--every"), "kube-system"):
        await granted(granter, role)

        async def agreed(place: str = place) -> bool:
            return await allowed(admin, role, place, every) == await held(strict, role, place)

        await eventually(agreed)


@pytest.mark.parametrize("role", ROLES)
@cases(
    "asked name",
    ("secrets-elsewhere", ("get", "", "secrets"), "kubeconfig"),
    ("all-secrets", ("list", "", "secrets"), ""),
    ("exec", ("create", "", "pods/exec"), "p"),
    ("kubelets", ("get", "", "nodes/proxy"), "n"),
    ("tokens-of-accounts", ("create", "", "serviceaccounts/token"), "default"),
    ("impersonation", ("impersonate", "", "users"), "admin"),
    ("escalation", ("escalate", "rbac.authorization.k8s.io", "clusterroles"), ""),
    ("admin", ("bind", "rbac.authorization.k8s.io", "clusterroles"), "cluster-admin"),
    ("binding-all", ("create", "rbac.authorization.k8s.io", "clusterrolebindings"), ""),
    ("a-service", ("patch", "", "services"), "web"),
    ("a-namespace", ("delete", "", "namespaces"), "kube-system"),
    ("certificates", ("create", "certificates.k8s.io", "certificatesigningrequests"), ""),
)
async def test_no_role_may(admin: Kube, role: str, asked: Asked, name: str) -> None:
    assert await allowed(admin, role, "kube-system", {asked}, name) == set()


@pytest.mark.parametrize("role", ["watcher", "worker", "patcher"])
async def test_secrets_are_read_by_namespace(
    strict: ControlPlane, admin: Kube, granter: Kube, role: str
) -> None:
    ours, theirs = await namespace(admin, "shoot--read"), await namespace(admin, "elsewhere")
    for space in (ours, theirs):
        await admin.create(SECRETS, space, {"metadata": {"name": "a"}})
    await Granting(granter, GrantSettings(namespaces=("shoot--*",))).once()
    async with kube.from_file(kubeconfig_of(strict, role)) as opened:

        async def read() -> bool:
            try:
                return (await opened.get(SECRETS, ours, "a")).name == "a"
            except Forbidden:
                return False

        await eventually(read)
        with pytest.raises(Forbidden):
            await opened.get(SECRETS, theirs, "a")
        with pytest.raises(Forbidden):
            await opened.page(SECRETS)


async def test_the_granter_may_bind_no_other_role(admin: Kube, granter: Kube) -> None:
    ours = await namespace(admin, "shoot--bind")
    binding = rbac.namespaced(ours)[0]
    for role in ("cluster-admin", "admin", rbac.user("worker")):
        other = {**binding, "roleRef": {**binding["roleRef"], "name": role}}
        with pytest.raises(Forbidden, match="attempting to grant"):
            await granter.create(BINDINGS, ours, other)


async def test_the_granter_may_grant_in_its_namespaces_only(admin: Kube, granter: Kube) -> None:
    ours, theirs = await namespace(admin, "shoot--ours"), await namespace(admin, "elsewhere")
    for place in (theirs, "kube-system"):
        for binding in rbac.namespaced(place):
            with pytest.raises(Forbidden, match=r"in the namespaces of grant\.namespaces only"):
                await granter.create(BINDINGS, place, binding)
    for binding in rbac.namespaced(ours):
        assert (await granter.create(BINDINGS, ours, binding)).name == binding["metadata"]["name"]


async def test_the_granter_may_grant_to_the_roles_only(admin: Kube, granter: Kube) -> None:
    ours = await namespace(admin, "shoot--holders")
    watchers, workers, _ = rbac.namespaced(ours)
    for subject in (
        *watchers["subjects"],
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": rbac.user("granter")},
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": rbac.user("worker")},
        {"kind": "ServiceAccount", "namespace": "default", "name": "default"},
    ):
        for subjects in ([subject], [*workers["subjects"], subject]):
            with pytest.raises(Forbidden, match="to its own process only"):
                await granter.create(BINDINGS, ours, {**workers, "subjects": subjects})
    await granter.create(BINDINGS, ours, workers)
    name = workers["metadata"]["name"]
    with pytest.raises(Forbidden, match="to its own process only"):
        await granter.merge(BINDINGS, ours, name, {"subjects": watchers["subjects"]})


async def test_a_worker_writes_no_foreign_policies_and_bundles(
    strict: ControlPlane, admin: Kube, granter: Kube
) -> None:
    ours, theirs = await namespace(admin, "shoot--guarded"), await namespace(admin, "elsewhere")
    await Granting(granter, GrantSettings()).once()
    policy: dict[str, Any] = {"metadata": {"name": "foreign"}, "spec": {"podSelector": {}}}
    version = f"{MANAGED_RESOURCES.group}/{MANAGED_RESOURCES.version}"
    bundle: dict[str, Any] = {
        "apiVersion": version,
        "kind": MANAGED_RESOURCES.kind,
        "spec": {"secretRefs": []},
    }
    bundle |= {"metadata": {"name": "foreign"}}
    for place in (ours, theirs):
        await admin.create(NETWORK_POLICIES, place, policy)
        await admin.create(MANAGED_RESOURCES, place, bundle)
    labels = {"metadata": {"labels": {"app.kubernetes.io/name": "local-ext-shoot"}}}
    mine = {**policy, "metadata": {"name": "mine", **labels["metadata"]}}
    async with kube.from_file(kubeconfig_of(strict, "worker")) as worker:

        async def granted() -> bool:
            try:
                return (await worker.create(NETWORK_POLICIES, ours, mine)).name == "mine"
            except Forbidden:
                return False

        await eventually(granted)
        for resource in (NETWORK_POLICIES, MANAGED_RESOURCES):
            for place in (ours, theirs):
                with pytest.raises(Forbidden):
                    await worker.remove(resource, place, "foreign")
                with pytest.raises(Forbidden):
                    await worker.merge(resource, place, "foreign", labels)
        with pytest.raises(Forbidden, match="their own NetworkPolicies only"):
            await worker.create(NETWORK_POLICIES, ours, {**policy, "metadata": {"name": "cut-off"}})
        assert await worker.remove(NETWORK_POLICIES, ours, "mine")
        for name in POOLS["controlplane"].owned_names:
            await worker.create(MANAGED_RESOURCES, ours, {**bundle, "metadata": {"name": name}})
            assert await worker.remove(MANAGED_RESOURCES, ours, name)


async def test_bindings_that_are_no_longer_granted_are_deleted(admin: Kube, granter: Kube) -> None:
    stays, goes = await namespace(admin, "shoot--stays"), await namespace(admin, "shoot--goes")
    theirs = {**rbac.namespaced(goes)[0], "metadata": {"name": "of-a-person", "namespace": goes}}
    await admin.create(BINDINGS, goes, theirs)
    await Granting(granter, GrantSettings(namespaces=("shoot--*",))).once()
    await Granting(granter, GrantSettings(namespaces=(stays,))).once()
    await Granting(granter, GrantSettings(namespaces=(stays,))).once()
    names = {f"windowbox-{role}-secrets" for role in ("watcher", "worker", "patcher")}
    assert {one["metadata"]["name"] for one in await _bindings(admin, stays)} == names
    assert [one["metadata"]["name"] for one in await _bindings(admin, goes)] == ["of-a-person"]


async def _bindings(admin: Kube, namespace: str) -> list[dict[str, Any]]:
    return (await admin.page(BINDINGS._replace(within=namespace))).items


async def test_workers_serve_granted_namespaces_and_report_what_they_lack_elsewhere(
    strict: ControlPlane, granter: Kube, nats: NatsServer
) -> None:
    granting = Granting(granter, GrantSettings(namespaces=("shoot--granted*",)))
    async with kind_world(strict, nats, "infrastructure") as world, running(granting.run()):
        ours, theirs = await world.shoot("shoot--granted--a"), await world.shoot("shoot--denied--a")
        await served(ours)
        found = await refused(theirs)
        assert found.status["lastError"]["codes"] == ["ERR_INFRA_UNAUTHORIZED"]
        assert 'secrets "cloudprovider" is forbidden' in found.status["lastError"]["description"]
        await finish(ours)


def test_the_file_of_rights_is_up_to_date() -> None:
    assert (ROOT / "deploy" / "rbac.yaml").read_text() == rbac.text(), "run `make generate`"


@pytest.mark.parametrize("role", ["watcher", "worker", "patcher"])
def test_only_provider_credentials_write_namespaces_pods_and_services(role: str) -> None:
    kinds, reads = {"namespaces", "pods", "services"}, {"get", "list", "watch"}
    found = [rule for rule in rbac.RULES[role] if kinds & {*rule["resources"]}]
    assert [rule for rule in found if not reads >= {*rule["verbs"]}] == []


@pytest.mark.parametrize("role", ["watcher", "worker", "patcher"])
def test_clients_by_file_may_learn_which_cluster_is_theirs(role: str) -> None:
    rules = [one for one in rbac.RULES[role] if "namespaces" in one["resources"] and "get" in one["verbs"]]
    assert [one.get("resourceNames") for one in rules] in ([["kube-system"]], [None])


def test_no_role_may_do_everything() -> None:
    for role, rules in rbac.RULES.items():
        for rule in rules:
            assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"]), role
