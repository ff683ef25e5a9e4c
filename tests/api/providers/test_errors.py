"""What is wrong with a provider Secret, as the status of an Infrastructure tells it."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox import processes
from sandbox.servers import certificates
from tests.api.providers import rights
from tests.api.providers.test_identities import nobody
from tests.support.kindworld import CLOUDPROVIDER, Client, KindWorld, failed
from tests.support.rules import rule
from windowbox.models.objects import Object
from windowbox.models.refs import INFRASTRUCTURES, NAMESPACES, SECRETS

pytestmark = pytest.mark.serves("infrastructure")


async def infrastructure(shoot: Client, name: str = "local", secret: str = CLOUDPROVIDER) -> None:
    reference = {"name": secret, "namespace": shoot.namespace}
    await shoot.create(INFRASTRUCTURES, name, {"region": "local", "secretRef": reference})


def user(world: KindWorld, **credentials: Any) -> bytes:
    """The kubeconfig with another user."""
    content = yaml.safe_load(world.kubeconfig())
    content["users"][0]["user"] = credentials
    return yaml.safe_dump(content).encode()


def server(world: KindWorld, url: str) -> bytes:
    return world.kubeconfig().replace(world.plane.url.encode(), url.encode())


def other_authority(world: KindWorld) -> bytes:
    content = yaml.safe_load(world.kubeconfig())
    pem = certificates.authority(world.plane.kubeconfig.parent / "stranger").certificate.read_bytes()
    content["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(pem).decode()
    return yaml.safe_dump(content).encode()


UNAUTHENTICATED, UNAUTHORIZED = "ERR_INFRA_UNAUTHENTICATED", "ERR_INFRA_UNAUTHORIZED"
MALFORMED = "ERR_CONFIGURATION_PROBLEM"


@pytest.mark.parametrize(
    ("kubeconfig", "code", "told"),
    [
        pytest.param(
            lambda world: user(world, token="unknown"), UNAUTHENTICATED, "Unauthorized", id="B.17-401"
        ),
        pytest.param(lambda world: nobody(world.plane), UNAUTHORIZED, "cannot", id="B.17-403"),
        pytest.param(lambda _: b"a: [", MALFORMED, "the kubeconfig is not YAML", id="B.17+K-1-no-yaml"),
        pytest.param(lambda _: b"{}", MALFORMED, "unusable kubeconfig", id="B.17+K-1-empty-mapping"),
        pytest.param(
            lambda world: server(world, "ftp://a"),
            MALFORMED,
            "the kubeconfig's server is no URL",
            id="B.17+K-1-no-url",
        ),
        pytest.param(
            lambda world: user(world, tokenFile="/var/run/token"),
            MALFORMED,
            r"users\[0\].user.tokenFile is not allowed",
            id="B.17+K-1-file",
        ),
        pytest.param(
            lambda world: server(world, f"https://127.0.0.1:{processes.free_port()}"),
            None,
            "no usable connection",
            id="K-1-nobody-listens",
        ),
        pytest.param(other_authority, None, "no usable connection", id="K-1-not-trusted"),
    ],
)
async def test_what_is_wrong_with_a_kubeconfig_is_told(
    world: KindWorld, kubeconfig: Callable[[KindWorld], bytes], code: str | None, told: str
) -> None:
    shoot = await world.shoot(kubeconfig=kubeconfig(world))
    await infrastructure(shoot)
    _tells(await shoot.until_failed(INFRASTRUCTURES, "local"), code, told)
    await _left_nothing(world, shoot)


@rule("B.17", "K-1")
async def test_a_secret_that_is_missing_is_named(world: KindWorld) -> None:
    shoot = await world.shoot()
    await infrastructure(shoot, secret="absent")
    found = await shoot.until_failed(INFRASTRUCTURES, "local")
    _tells(found, UNAUTHENTICATED, 'secrets "absent" not found')


@rule("B.17", "K-1")
async def test_a_secret_without_a_kubeconfig_is_named(world: KindWorld) -> None:
    shoot = await world.shoot()
    await shoot.secret("other", kubekonfig=b"x")
    await infrastructure(shoot, secret="other")
    found = await shoot.until_failed(INFRASTRUCTURES, "local")
    _tells(found, UNAUTHENTICATED, "no kubeconfig found in provider secret")


@rule("K-1")
async def test_no_program_of_a_tenant_runs(world: KindWorld, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    script = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", f"touch {shlex.quote(str(trace))}"],
        "interactiveMode": "Never",
    }
    shoot = await world.shoot(kubeconfig=user(world, exec=script))
    await infrastructure(shoot)
    found = await shoot.until_failed(INFRASTRUCTURES, "local")
    _tells(found, MALFORMED, r"users\[0\].user.exec is not allowed in a kubeconfig from a Secret")
    assert not trace.exists()


@rule("K-2", "B.35")
async def test_an_empty_kubeconfig_means_the_runtime_cluster(
    world: KindWorld,
) -> None:
    shoot = await world.shoot(kubeconfig=b"")
    await infrastructure(shoot)
    # By itself, a worker may make no namespaces.
    _tells(await shoot.until_failed(INFRASTRUCTURES, "local"), UNAUTHORIZED, "system:windowbox:worker")
    with rights.bound(world.plane, "worker", "provider"):
        await shoot.ask(INFRASTRUCTURES, "local")
        await shoot.until_ready(INFRASTRUCTURES, "local")
        assert await shoot.get(NAMESPACES, f"infra-{shoot.namespace}")
        await shoot.delete(INFRASTRUCTURES, "local")
        await shoot.until_gone(INFRASTRUCTURES, "local")


@rule("K-1")
async def test_a_renewed_secret_counts_from_the_next_run_on(world: KindWorld) -> None:
    shoot = await world.shoot(kubeconfig=user(world, token="outdated"))
    await infrastructure(shoot)
    await shoot.until_failed(INFRASTRUCTURES, "local")
    await shoot.secret(CLOUDPROVIDER, kubeconfig=world.kubeconfig())
    await shoot.ask(INFRASTRUCTURES, "local")
    await shoot.until_ready(INFRASTRUCTURES, "local")
    await shoot.secret(CLOUDPROVIDER, kubeconfig=user(world, token="revoked"))
    await shoot.delete(INFRASTRUCTURES, "local")
    found = await shoot.until(INFRASTRUCTURES, "local", failed)
    assert found
    _tells(found, UNAUTHENTICATED, "Unauthorized")
    await shoot.secret(CLOUDPROVIDER, kubeconfig=world.kubeconfig())
    await shoot.ask(INFRASTRUCTURES, "local")
    await shoot.until_gone(INFRASTRUCTURES, "local")


def _tells(found: Object, code: str | None, told: str) -> None:
    error = found.status["lastError"]
    assert error.get("codes") == ([code] if code else None)
    assert re.search(told, error["description"])


async def _left_nothing(world: KindWorld, shoot: Client) -> None:
    assert await shoot.get(NAMESPACES, f"infra-{shoot.namespace}") is None
    page = await world.kube.page(SECRETS, limit=5000)
    assert not [one for one in page.items if one["metadata"]["namespace"] == f"infra-{shoot.namespace}"]
