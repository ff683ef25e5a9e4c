"""Secrets on every way through windowbox, and then a search for them in all that it keeps and says."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from bus import streams, subjects
from bus.clusters.registry import Member, Registry
from bus.leases import presence
from bus.transport.connection import Bus, connected
from tests.e2e import client
from tests.e2e.client import Space, failed
from tests.e2e.witness import witnessing
from tests.support import forked, livefiles, servers
from tests.support.forked import Forked
from tests.support.markers import Markers
from tests.support.running import eventually
from tests.support.servers import ControlPlane, NameServer
from windowbox.errors import WindowboxError
from windowbox.models.refs import DNSRECORDS, NAMESPACES, SECRETS, ObjectRef, SecretKey
from windowbox.rights import rbac
from windowbox.settings.bussettings import Access

COMMANDS = {"watch": "watcher", "work": "worker", "patch": "patcher"}


async def test_no_secret_leaks_anywhere(
    control_plane: ControlPlane, named: NameServer, tmp_path: Path
) -> None:
    store, markers = tmp_path / "nats", Markers()
    store.mkdir()
    _let_the_watcher_list_secrets(control_plane)
    with servers.nats_server(store) as url, witnessing(control_plane.kubeconfig) as witness:
        space = client.space(control_plane.api, witness, named.zone)
        with _windowbox(url, control_plane, named, tmp_path):
            async with connected(Access(url)) as bus:
                await _mirror_a_secret(bus, space, markers)
                await _join_clusters(bus, space, control_plane, markers)
            _change_dns(space, named, markers)
            output = _metrics(tmp_path)
        written = _written(space)

    kept, said = livefiles.contents(store), _logs(tmp_path)
    assert named.zone.encode() in kept  # the search would find what is there
    assert space.namespace.encode() in said
    assert markers.in_(kept) == set()
    assert markers.in_(said) == set()
    assert markers.in_(output) == set()
    assert markers.in_(written) == set()


@pytest.mark.parametrize("before", ["", "a", "ab", "abc"])
@pytest.mark.parametrize("times", [0, 1, 2])
def test_the_search_finds_encoded_markers(before: str, times: int) -> None:
    markers = Markers()
    text = f"{before}{markers.new('here')} and more".encode()
    for _ in range(times):
        text = base64.b64encode(text)

    assert markers.in_(b"something " + text) == {"here"}


async def _mirror_a_secret(bus: Bus, space: Space, markers: Markers) -> None:
    applied = {"data": {"password": markers.new("last applied")}}
    _secret(
        space,
        "mirrored",
        {"password": markers.new("data")},
        {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(applied)},
    )
    await _seen(bus, ObjectRef("runtime", SECRETS.id, space.namespace, "mirrored"))
    _secret(space, "mirrored", {"password": markers.new("changed data")})


async def _join_clusters(bus: Bus, space: Space, plane: ControlPlane, markers: Markers) -> None:
    good = _inline(plane.kubeconfig, markers)
    program = {"exec": {"command": "false", "args": [markers.new("argument of a program")]}}
    _secret(space, "good", {"kubeconfig": yaml.safe_dump(good)})
    _secret(space, "program", {"kubeconfig": yaml.safe_dump({"users": [{"name": "x", "user": program}]})})
    _secret(space, "nonsense", {"kubeconfig": f"{{{markers.new('nonsense')}: ]"})
    _secret(space, "text", {"kubeconfig": markers.new("no mapping")})
    _secret(space, "wrong-key", {"other": markers.new("another key")})
    _secret(space, "no-clusters", {"kubeconfig": yaml.safe_dump({"current-context": markers.new("context")})})
    _secret(space, "certificate", {"kubeconfig": yaml.safe_dump(_broken_certificate(good, markers))})

    _secret(space, "token", {"kubeconfig": yaml.safe_dump(_broken_token(good, markers))})

    members = (
        "good", "program", "nonsense", "text", "wrong-key", "no-clusters", "certificate", "token", "missing",
    )  # fmt: skip
    for name in members:
        where = SecretKey(namespace=space.namespace, name=name)
        await Registry(bus).join(Member(id=name, secret=where, kinds=(NAMESPACES.id, SECRETS.id)))

    await _seen(bus, ObjectRef("good", SECRETS.id, space.namespace, "mirrored"))
    for name in set(members) - {"good"}:
        await _broken(bus, f"{name}/{NAMESPACES.id}")


def _change_dns(space: Space, named: NameServer, markers: Markers) -> None:
    """Records whose key is in a Secret: the right one, a wrong one, and what is none."""
    assert named.key
    markers.texts["key of the zone"] = named.key.secret
    right = {"TSIGKeyName": named.key.name, "TSIGSecret": named.key.secret}
    wrong = base64.b64encode(markers.new("wrong secret").encode()).decode()
    _secret(space, "right", right)
    _secret(space, "wrong", right | {"TSIGSecret": wrong})
    _secret(space, "not-base64", right | {"TSIGSecret": markers.new("not base64") + "!"})
    _secret(space, "algorithm", right | {"TSIGSecretAlgorithm": markers.new("algorithm")})
    _secret(space, "name", right | {"TSIGKeyName": f"{markers.new('name')} and more"})
    _secret(space, "incomplete", {"password": markers.new("incomplete")})

    record = _keyed(space, "right")
    record.until_ready()
    for name in ("not-base64", "algorithm", "name", "incomplete", "absent", "wrong"):
        _keyed(space, name).until(failed)
    record.ask("reconcile", values=["198.51.100.2"])
    record.delete()
    record.until_gone()


def _keyed(space: Space, secret: str) -> client.Record:
    reference = {"name": secret, "namespace": space.namespace}
    return space.record(space.name(secret), ["198.51.100.1"], secretRef=reference)


def _secret(
    space: Space, name: str, data: Mapping[str, str], annotations: Mapping[str, str] | None = None
) -> None:
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "data": encoded,
    }
    space.api.apply(SECRETS.path(space.namespace, name), manifest)


def _inline(kubeconfig: Path, markers: Markers) -> dict[str, Any]:
    """The kubeconfig with certificates and keys inside."""
    config: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
    (server,) = (entry["cluster"] for entry in config["clusters"])
    (user,) = (entry["user"] for entry in config["users"])
    for section in (server, user):
        for name in [name for name in section if name != "server"]:
            text = Path(section.pop(name)).read_bytes()
            section[f"{name}-data"] = base64.b64encode(text).decode()
            if name == "client-key":
                markers.texts["private key"] = text.decode().splitlines()[1]
    return config


def _broken_certificate(config: dict[str, Any], markers: Markers) -> dict[str, Any]:
    pem = f"-----BEGIN CERTIFICATE-----\n{markers.new('certificate')}\n-----END CERTIFICATE-----\n"
    encoded = base64.b64encode(pem.encode()).decode()
    user = {"client-certificate-data": encoded, "client-key-data": encoded}
    return config | {"users": [{"name": config["users"][0]["name"], "user": user}]}


def _broken_token(config: dict[str, Any], markers: Markers) -> dict[str, Any]:
    user = {"token": f"{markers.new('token')}\nand more"}
    return config | {"users": [{"name": config["users"][0]["name"], "user": user}]}


def _let_the_watcher_list_secrets(plane: ControlPlane) -> None:
    name, group = "test:list-secrets", "rbac.authorization.k8s.io"
    head = {"apiVersion": f"{group}/v1", "metadata": {"name": name}}
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}
    path = f"/apis/{group}/v1"
    plane.api.apply(f"{path}/clusterroles/{name}", head | {"kind": "ClusterRole", "rules": [rule]})
    binding = {
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": rbac.user("watcher")}],
    }
    plane.api.apply(f"{path}/clusterrolebindings/{name}", head | binding)


@contextlib.contextmanager
def _windowbox(url: str, plane: ControlPlane, named: NameServer, folder: Path) -> Iterator[None]:
    """One process of each role, telling all they can."""
    zone = {"name": named.zone, "servers": [named.address], "key_from_record": True}
    running: list[Forked] = []
    for command, role in COMMANDS.items():
        settings = folder / f"{command}.yaml"
        settings.write_text(
            yaml.safe_dump(
                {
                    "nats": {"url": url},
                    "cluster": {"kubeconfig": str(plane.kubeconfigs[role])},
                    "egress": {"allowed": ["127.0.0.0/8"]},
                    "watch": {"kinds": ["dnsrecords.extensions.gardener.cloud", "namespaces", "secrets"]},
                    "dns": {"zones": [zone], "patience": 1},
                    "log": {"level": "debug"},
                }
            )
        )
        log = folder / f"{command}.log"
        running.append(forked.start(command, "--settings", str(settings), log=log))
    try:
        yield
    finally:
        for process in running:
            process.end()


async def _seen(bus: Bus, ref: ObjectRef) -> None:
    """Wait until the bus knows the object."""
    subject = subjects.seen(ref)

    async def known() -> bool:
        with contextlib.suppress(WindowboxError):  # as long as there are no streams
            return await bus.last(streams.OBJECTS, subject) is not None
        return False

    await eventually(known)


async def _broken(bus: Bus, watch: str) -> None:
    """Wait until a watcher says that it cannot watch this."""

    async def output() -> bool:
        states = [p.get("watches", {}).get(watch, "") for p in await presence.processes(bus)]
        return any(state.startswith("broken") for state in states)

    await eventually(output)


def _metrics(folder: Path) -> bytes:
    """What all processes show to who asks over HTTP."""
    output = b""
    for command in COMMANDS:
        address = re.search(r"http://[0-9.:]+/metrics", (folder / f"{command}.log").read_text())
        assert address
        output += urllib.request.urlopen(address[0], timeout=60).read()
    return output


def _written(space: Space) -> bytes:
    """What people can read in the cluster, apart from the Secrets."""
    paths = (DNSRECORDS.path(space.namespace), f"/api/v1/namespaces/{space.namespace}/events")
    return b"".join(space.api.request("GET", path).read() for path in paths)


def _logs(folder: Path) -> bytes:
    return b"".join(livefiles.read(path) for path in folder.glob("*.log"))
