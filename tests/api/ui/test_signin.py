"""Signing in with tokens, about which the cluster is asked."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio
import yaml

from tests.support import pages
from tests.support.pages import World
from tests.support.roles import RoleServer
from tests.support.running import eventually
from tests.support.servers import ControlPlane
from ui import signin
from windowbox.clients.kubernetes import kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Refused
from windowbox.models.refs import Resource

BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")


@pytest_asyncio.fixture
async def world(roles: RoleServer, control_plane: ControlPlane) -> AsyncIterator[World]:
    """The page, which asks the cluster with the rights of its role."""
    async with kube.from_file(control_plane.kubeconfigs["ui"]) as ours:

        async def opened() -> Kube:
            return ours

        async with pages.served(roles, opened) as made:
            yield made


@pytest_asyncio.fixture
async def admin(control_plane: ControlPlane) -> AsyncIterator[Kube]:
    async with kube.from_file(control_plane.kubeconfig) as opened:
        yield opened


async def account(admin: Kube, *, viewer: bool) -> tuple[str, str]:
    """A new ServiceAccount, and a token of it."""
    name = f"person-{secrets.token_hex(4)}"
    await admin.create(ACCOUNTS, "default", {"metadata": {"name": name}})
    tokens = Resource("", "v1", f"serviceaccounts/{name}/token", "TokenRequest")
    token = (await admin.create(tokens, "default", {"spec": {}})).status["token"]
    if viewer:
        role = {"apiGroup": BINDINGS.group, "kind": "ClusterRole", "name": "system:windowbox:ui:viewer"}
        subject = {"kind": "ServiceAccount", "namespace": "default", "name": name}
        await admin.create(BINDINGS, "", {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})
    return name, token


def config(token: str) -> str:
    return yaml.safe_dump(
        {
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"user": "me", "cluster": "c"}}],
            # Its server is never asked.
            "clusters": [{"name": "c", "cluster": {"server": "https://evil.example.com"}}],
            "users": [{"name": "me", "user": {"token": token}}],
        }
    )


async def entered(world: World, text: str) -> tuple[int, str, int]:
    """Of an attempt to sign in: its status and text, and the status of the page after it."""
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(world.url, cookie_jar=jar) as client:
        async with client.post("/sign-in", data={"token": text}) as answer:
            status, said = answer.status, await answer.text()
        async with client.get("/", allow_redirects=False) as answer:
            return status, said, answer.status


async def test_a_viewer_signs_in_by_token_or_kubeconfig(world: World, admin: Kube) -> None:
    _, token = await account(admin, viewer=True)
    for text in (token, f"  {token}\n", config(token)):
        status, _, page = await entered(world, text)
        assert (status, page) == (200, 200)


async def test_who_has_no_right_to_look_is_told_how_to_get_it(world: World, admin: Kube) -> None:
    name, token = await account(admin, viewer=False)
    status, said, page = await entered(world, token)
    assert (status, page) == (403, 303)
    assert f"system:serviceaccount:default:{name} may not look at this page" in said
    assert "system:windowbox:ui:viewer" in said


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no-such-token", "the cluster does not know this token"),
        ("", "paste a token"),
        ("a: [", "neither a token nor a kubeconfig"),
        ("a: &a [x]\nb: [*a, *a]", "no token"),
        ("users:\n- name: me\n  user: {exec: {command: sh}}", "no token"),
        ("x" * 20_000, "the token is too long"),
    ],
)
async def test_what_is_no_good_token_is_refused_in_words(world: World, text: str, why: str) -> None:
    status, said, page = await entered(world, text)
    assert (status, page) == (403, 303)
    assert why in said


async def test_a_right_that_is_taken_away_ends_a_session(
    world: World, admin: Kube, control_plane: ControlPlane
) -> None:
    name, token = await account(admin, viewer=True)
    async with kube.from_file(control_plane.kubeconfigs["ui"]) as ours:
        _, still = await signin.signed_in(ours, token)
        assert await still()
        await admin.delete(BINDINGS, "", name)
        with pytest.raises(Refused):
            await eventually(lambda: _refused(ours, token))
        assert not await still()


async def _refused(ours: Kube, token: str) -> bool:
    """Raises Refused once the API server has learned that the right is gone."""
    await signin.signed_in(ours, token)
    return False
