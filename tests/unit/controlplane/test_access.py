"""The kubeconfig by which a Shoot joins."""

from __future__ import annotations

import base64
import json

import pytest
import yaml

from tests.support.cases import cases
from tests.unit.controlplane import doors
from tests.unit.controlplane.doors import Doors
from windowbox.errors import Malformed
from windowbox.models.objects import Object
from workers.kinds.controlplane import controlplaneaccess


@cases(
    "server, reached",
    {
        "service": ("https://kube-apiserver", "https://kube-apiserver.shoot--a--b.svc"),
        "port": ("https://kube-apiserver:443", "https://kube-apiserver.shoot--a--b.svc:443"),
        "full-name": ("https://api.example.com", "https://api.example.com"),
        "address": ("https://10.0.0.1:6443", "https://10.0.0.1:6443"),
        "address-of-ipv6": ("https://[fd00::1]:6443", "https://[fd00::1]:6443"),
        "this-host": ("https://localhost:6443", "https://localhost:6443"),
        "no-address": ("https://[fd00::1", "https://[fd00::1"),
        "no-port": ("https://a:b", "https://a:b"),
    },
)
def test_a_server_gets_a_name_for_other_namespaces(server: str, reached: str) -> None:
    assert controlplaneaccess.reachable(server, "shoot--a--b") == reached


def test_a_kubeconfig_without_a_server_is_none() -> None:
    assert (
        controlplaneaccess.kubeconfig({"clusters": [{"name": "a", "cluster": {}}]}, "shoot--a--b", {}) is None
    )


def _secret(kubeconfig: bytes, **metadata: str) -> Object:
    return Object(
        {
            "metadata": {"name": "generic-token-kubeconfig", "namespace": "shoot--a--b", **metadata},
            "data": {"kubeconfig": base64.b64encode(kubeconfig).decode()},
        }
    )


NOW = "2026-09-01T00:00:00+00:00"
GENERIC = _secret(b"clusters: [{name: a, cluster: {server: 'https://kube-apiserver'}}]")
WITHOUT_SERVER = _secret(b"clusters: [{name: a, cluster: {}}]")


def _with_token(server: str) -> Object:
    """The Secret as the token requestor leaves it, with keys in another order."""
    made = controlplaneaccess.kubeconfig({"clusters": [{"cluster": {"server": server}}]}, "shoot--a--b", {})
    assert made is not None
    made["users"][0]["user"] = {"token": "given"}
    return _secret(json.dumps(made).encode(), resourceVersion="7")


@pytest.mark.parametrize("generic", [GENERIC, WITHOUT_SERVER, None], ids=["same", "no-server", "missing"])
def test_an_existing_kubeconfig_keeps_its_token(generic: Object | None) -> None:
    found = _with_token("https://kube-apiserver")
    made = controlplaneaccess.wanted("shoot--a--b", found, generic)
    assert made["data"] == found.raw["data"]
    assert made["metadata"]["resourceVersion"] == "7"


def test_a_kubeconfig_for_another_server_is_replaced() -> None:
    made = controlplaneaccess.wanted("shoot--a--b", _with_token("https://elsewhere"), GENERIC)
    kubeconfig = yaml.safe_load(base64.b64decode(made["data"]["kubeconfig"]))
    assert kubeconfig["clusters"][0]["cluster"] == {"server": "https://kube-apiserver.shoot--a--b.svc"}
    assert kubeconfig["users"][0]["user"] == {"token": "given"}
    assert made["metadata"]["resourceVersion"] == "7"


def test_a_new_secret_has_no_version() -> None:
    made = controlplaneaccess.wanted("shoot--a--b", None, GENERIC)
    assert "resourceVersion" not in made["metadata"]
    assert "data" not in controlplaneaccess.wanted("shoot--a--b", None, None)


@cases(
    "kubeconfig, why",
    {
        "aliases": (b"a: &a [1]\nb: [*a, *a]", "aliases are not allowed"),
        "deep": (b"[" * 5000, "5000 lines, keys and lists"),
        "large": (b"x" * 70_000, "70000 bytes"),
        "empty": (b"", "not a mapping"),
    },
)
def test_a_hostile_kubeconfig_is_refused_by_the_name_of_its_secret(kubeconfig: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=f"Secret shoot--a--b/generic-token-kubeconfig.*{why}"):
        controlplaneaccess.parsed(_secret(kubeconfig))


def test_a_kubeconfig_may_name_the_file_of_a_token() -> None:
    text = b"users: [{name: a, user: {tokenFile: /var/run/token}}]"
    assert controlplaneaccess.parsed(_secret(text))["users"][0]["user"] == {"tokenFile": "/var/run/token"}


MISSING = "waiting for Secret shoot--a--b/generic-token-kubeconfig to have a kubeconfig that names a server"


@pytest.mark.parametrize(
    ("leads", "dues"), [(False, [(30.0, MISSING)]), (True, [])], ids=["missing", "there"]
)
async def test_a_missing_generic_kubeconfig_requeues(leads: bool, dues: list[tuple[float, str]]) -> None:
    """Secrets are not watched."""
    world = Doors({}, access={"changed": False, "leads": leads}, secrets={"changed": False}, clock=NOW)
    run = doors.run(world)
    await doors.actuator().reconcile(run)
    assert run.dues == dues
