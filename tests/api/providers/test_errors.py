"""Provider Secrets that are wrong: the status of their Infrastructure, and no trace of their content."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox import processes
from sandbox.servers import certificates
from tests.api.providers.tenants import bound, changed, finish, infrastructure, nobody, refused, served
from tests.support import livefiles
from tests.support.cases import cases, long
from tests.support.kindworld import CLOUDPROVIDER, Client, KindWorld
from tests.support.markers import Markers
from tests.support.proxy import proxy
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from tests.support.tenantconfigs import of, program, with_user
from windowbox.models.objects import Object
from windowbox.models.refs import INFRASTRUCTURES, NAMESPACES, SECRETS
from windowbox.rights import rbac

pytestmark = [pytest.mark.serves("infrastructure"), pytest.mark.asyncio(loop_scope="module")]

UNAUTHENTICATED, UNAUTHORIZED = "ERR_INFRA_UNAUTHENTICATED", "ERR_INFRA_UNAUTHORIZED"
MALFORMED = "ERR_CONFIGURATION_PROBLEM"
SLOW, NEIGHBOURS = 24, 4
"""More than run at once, and those that are served beside them."""
EVENTS = "/api/v1/namespaces/{}/events"


def user(**credentials: Any) -> Callable[[KindWorld], bytes]:
    return lambda world: with_user(world.kubeconfig(), **credentials)


def server(url: str) -> Callable[[KindWorld], bytes]:
    return lambda world: world.kubeconfig().replace(world.plane.url.encode(), url.encode())


def other_authority(world: KindWorld) -> bytes:
    content = yaml.safe_load(world.kubeconfig())
    pem = certificates.authority(world.plane.kubeconfig.parent / "stranger").certificate.read_bytes()
    content["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(pem).decode()
    return yaml.safe_dump(content).encode()


def closed(world: KindWorld) -> bytes:
    return server(f"https://127.0.0.1:{processes.free_port()}")(world)


def shows(found: Object, code: str | None, text: str) -> None:
    error = found.status["lastError"]
    assert error.get("codes") == ([code] if code else None)
    assert re.search(text, error["description"])


NO_FILES = r"users\[0\].user.tokenFile is not allowed"
UNREACHED = "no usable connection"


@cases(
    "kubeconfig code text",
    ("B.17-401", user(token="unknown"), UNAUTHENTICATED, "Unauthorized"),
    ("B.17-403", lambda world: nobody(world.plane), UNAUTHORIZED, "cannot"),
    ("B.17+K-1-no-yaml", lambda _: b"a: [", MALFORMED, "the kubeconfig is not YAML"),
    long("B.17+K-1-empty-mapping", lambda _: b"{}", MALFORMED, "unusable kubeconfig"),
    long("B.17+K-1-no-url", server("ftp://a"), MALFORMED, "kubeconfig's server is no URL"),
    ("B.17+K-1-file", user(tokenFile="/var/run/token"), MALFORMED, NO_FILES),
    ("K-1-nobody-listens", closed, None, UNREACHED),
    ("K-1-not-trusted", other_authority, None, UNREACHED),
)
async def test_an_error_of_a_kubeconfig_is_reported(
    world: KindWorld, kubeconfig: Callable[[KindWorld], bytes], code: str | None, text: str
) -> None:
    shoot = await world.shoot(kubeconfig=kubeconfig(world))
    shows(await refused(shoot), code, text)
    assert await shoot.get(NAMESPACES, f"infra-{shoot.namespace}") is None
    page = await world.kube.page(SECRETS, limit=5000)
    assert not [one for one in page.items if one["metadata"]["namespace"] == f"infra-{shoot.namespace}"]


@rule("B.17", "K-1")
async def test_a_secret_without_a_kubeconfig_is_named(world: KindWorld) -> None:
    without = "no kubeconfig found in provider secret"
    for secret, text in (("absent", 'secrets "absent" not found'), ("other", without)):
        shoot = await world.shoot()
        await shoot.secret("other", kubekonfig=b"x")
        shows(await refused(shoot, secret), UNAUTHENTICATED, text)


@rule("K-1")
async def test_no_program_of_a_tenant_runs(world: KindWorld, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    found = await refused(await world.shoot(kubeconfig=user(exec=program(trace))(world)))
    shows(found, MALFORMED, r"users\[0\].user.exec is not allowed in a kubeconfig from a Secret")
    assert not trace.exists()


@rule("K-2", "B.35")
async def test_an_empty_kubeconfig_means_the_runtime_cluster_where_the_settings_say_so(
    world: KindWorld,
) -> None:
    shoot = await world.shoot("shoot--own--empty", kubeconfig=b"")
    # By itself, a worker may make no namespaces.
    shows(await refused(shoot), UNAUTHORIZED, "system:windowbox:worker")
    with bound(world.plane, "worker", "provider"):
        other = await world.shoot(kubeconfig=b"")
        shows(await refused(other), UNAUTHENTICATED, "an empty one is refused")
        assert await other.get(NAMESPACES, f"infra-{other.namespace}") is None
        await shoot.ask(INFRASTRUCTURES, "local")
        await shoot.until_ready(INFRASTRUCTURES, "local")
        assert await shoot.get(NAMESPACES, f"infra-{shoot.namespace}")
        await finish(shoot)


@rule("K-1")
async def test_a_renewed_secret_counts_from_the_next_run_on(world: KindWorld) -> None:
    shoot = await world.shoot(kubeconfig=user(token="outdated")(world))
    await refused(shoot)
    await shoot.secret(CLOUDPROVIDER, kubeconfig=world.kubeconfig())
    await shoot.ask(INFRASTRUCTURES, "local")
    await shoot.until_ready(INFRASTRUCTURES, "local")
    await shoot.secret(CLOUDPROVIDER, kubeconfig=user(token="revoked")(world))
    await shoot.delete(INFRASTRUCTURES, "local")
    shows(await shoot.until_failed(INFRASTRUCTURES, "local"), UNAUTHENTICATED, "Unauthorized")
    await shoot.secret(CLOUDPROVIDER, kubeconfig=world.kubeconfig())
    await shoot.ask(INFRASTRUCTURES, "local")
    await shoot.until_gone(INFRASTRUCTURES, "local")


@pytest.mark.parametrize(
    "resource",
    ["namespaces", *(pytest.param(one, marks=pytest.mark.long) for one in ("networkpolicies", "ippools"))],
)
async def test_each_right_of_the_provider_is_needed(world: KindWorld, resource: str) -> None:
    rules = [
        {**rule, "resources": [one for one in rule["resources"] if one != resource]}
        for rule in rbac.RULES["provider"]
    ]
    shoot = await world.shoot()
    with changed(world.plane, "provider", [rule for rule in rules if rule["resources"]]):
        shows(await refused(shoot), UNAUTHORIZED, f'resource "{resource}"')
    await shoot.ask(INFRASTRUCTURES, "local")
    await shoot.until_ready(INFRASTRUCTURES, "local")
    await finish(shoot)


@pytest.mark.parametrize("slow", ["from-the-start", pytest.param("later", marks=pytest.mark.long)])
async def test_neighbours_of_a_slow_provider_are_served_while_it_hangs(world: KindWorld, slow: str) -> None:
    async with proxy(int(world.plane.url.rpartition(":")[2])) as between:
        kubeconfig = server(f"https://127.0.0.1:{between.port}")(world)
        hanging = await asyncio.gather(*(world.shoot(kubeconfig=kubeconfig) for _ in range(SLOW)))
        neighbours = await asyncio.gather(*(world.shoot() for _ in range(NEIGHBOURS)))
        if slow == "later":
            await served(await world.shoot(kubeconfig=kubeconfig))
        between.hang()
        for shoot in (*hanging, *neighbours):
            await infrastructure(shoot)
        for shoot in neighbours:
            await shoot.until_ready(INFRASTRUCTURES, "local")
        states = [await shoot.get(INFRASTRUCTURES, "local") for shoot in hanging]
        assert "Succeeded" not in {found.last_operation.get("state") for found in states if found}


def private_key(plane: ControlPlane) -> str:
    content = yaml.safe_load(plane.kubeconfigs["provider"].read_text())
    return Path(content["users"][0]["user"]["client-key"]).read_text()


def unusable(plane: ControlPlane, markers: Markers) -> list[bytes]:
    """Kubeconfigs whose errors are reported."""
    script = {"command": "false", "args": [markers.new("argument")]}
    pair = {"client-certificate-data": markers.new("certificate"), "client-key-data": "eA=="}
    return [
        with_user(of(plane), token=markers.new("unknown token")),
        with_user(of(plane), token=f"{markers.new('broken token')}\nand more"),
        with_user(of(plane), username="a", password=markers.new("password")),
        with_user(of(plane), exec=script),
        with_user(of(plane), **pair),
        f"{{{markers.new('nonsense')}: ]".encode(),
        markers.new("no mapping").encode(),
        yaml.safe_dump({"current-context": markers.new("context")}).encode(),
        of(plane).replace(plane.url.encode(), f"ftp://{markers.new('server')}".encode()),
    ]


@rule("K-1")
async def test_no_content_of_provider_secrets_is_kept_or_shown(
    world: KindWorld, other: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    markers = Markers()
    markers.texts["private key"] = private_key(other).splitlines()[1]
    shoots: list[Client] = [await world.shoot(kubeconfig=of(other))]
    await served(*shoots)
    for number, kubeconfig in enumerate(unusable(other, markers)):
        shoots.append(await world.shoot())
        await shoots[-1].secret(f"wrong-{number}", kubeconfig=kubeconfig)
        await refused(shoots[-1], f"wrong-{number}")
        await shoots[-1].secret(CLOUDPROVIDER, kubeconfig=kubeconfig)
    await world.quiet()
    namespaces = [shoot.namespace for shoot in shoots]
    paths = [path for one in namespaces for path in (INFRASTRUCTURES.path(one), EVENTS.format(one))]
    written = "".join(json.dumps(world.plane.api.read(path)) for path in paths)
    kept, logged = livefiles.contents(world.nats.store), caplog.text.encode()
    assert all(namespace.encode() in kept for namespace in namespaces)  # the search would find what is there
    assert all(namespace.encode() in logged for namespace in namespaces[1:])
    assert [markers.in_(text) for text in (kept, logged, written.encode())] == [set(), set(), set()]
