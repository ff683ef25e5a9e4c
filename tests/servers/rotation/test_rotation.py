"""Clients whose kubeconfig changes while they run: new credentials are used, another cluster is not."""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from bus.clusters.clusters import clusters
from bus.clusters.registry import Member, Registry
from bus.transport.connection import Bus
from sandbox.servers import certificates
from tests.support import loopback, webserver
from tests.support.running import eventually, running
from windowbox.clients.kubernetes import credentials, kube, kubeconfigs
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Malformed, PermanentError
from windowbox.models.refs import NAMESPACES


class Cluster:
    """An API server that has the namespace kube-system, and tells with which token it is read."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.host = ""
        self.tokens: list[str] = []
        self.knows_nobody = False

    async def get(self, request: web.Request) -> web.Response:
        self.tokens.append(request.headers["Authorization"].removeprefix("Bearer "))
        if self.knows_nobody:
            return web.json_response({"kind": "Status", "message": "Unauthorized"}, status=401)
        metadata = {"name": "kube-system", "uid": self.uid}
        return web.json_response({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


@contextlib.asynccontextmanager
async def served(*uids: str) -> AsyncIterator[list[Cluster]]:
    async with contextlib.AsyncExitStack() as stack:
        made = [Cluster(uid) for uid in uids]
        for cluster in made:
            reading = web.get("/api/v1/namespaces/kube-system", cluster.get)
            cluster.host = await stack.enter_async_context(webserver.serving(reading))
        yield made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kubeconfig"


def write(file: Path, host: str, token: str = "first", current: str = "one", **others: str) -> None:
    """A kubeconfig with a context for this server, and for others."""
    clusters = {current: host, **others}
    content = {
        "clusters": [{"name": name, "cluster": {"server": host}} for name, host in clusters.items()],
        "users": [{"name": "me", "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "me"}} for name in clusters],
        "current-context": current,
    }
    replace(file, yaml.safe_dump(content).encode())


def replace(file: Path, content: bytes) -> None:
    new = file.with_suffix(".new")
    new.write_bytes(content)
    new.rename(file)


def trust(file: Path, number: int, **certificate: str) -> None:
    """Add to the server of this number in a kubeconfig."""
    content = yaml.safe_load(file.read_text())
    content["clusters"][number]["cluster"] |= {k.replace("_", "-"): v for k, v in certificate.items()}
    file.write_text(yaml.safe_dump(content))


async def read(api: Kube) -> str:
    return (await api.get(NAMESPACES, "", "kube-system")).uid


async def uses(api: Kube, cluster: Cluster, token: str) -> None:
    """Wait until the cluster is read with this token."""

    async def look() -> bool:
        return await read(api) == cluster.uid and token in cluster.tokens

    await eventually(look)


@contextlib.asynccontextmanager
async def opened(
    file: Path, *uids: str, context: str | None = None
) -> AsyncIterator[tuple[Kube, list[Cluster]]]:
    """A client of the first of these clusters."""
    async with served(*uids) as clusters:
        write(file, clusters[0].host)
        async with kube.from_file(file, context) as api:
            yield api, clusters


async def test_an_unused_context_may_name_missing_files(file: Path) -> None:
    async with served("a") as (one,):
        write(file, one.host, old="https://127.0.0.1:1")
        trust(file, 1, certificate_authority="/gone.crt")
        async with kube.from_file(file) as api:
            assert await read(api) == "a"


async def test_another_current_context_leads_to_no_other_cluster(file: Path) -> None:
    async with served("a", "b") as (one, other):
        write(file, one.host, other=other.host)
        async with kube.from_file(file) as api:
            write(file, other.host, "second", "other", one=one.host)
            await uses(api, one, "second")
        assert other.tokens == []


async def test_another_clusters_kubeconfig_is_not_used(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(file, "a", "b") as (api, (one, other)):
        write(file, other.host, "second")
        await eventually(lambda: "for that is another cluster; restart this process" in caplog.text)
        assert (await read(api), api.host) == ("a", one.host)
        write(file, one.host, "third")
        await uses(api, one, "third")


async def test_an_incomparable_server_is_not_used(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(file, "a") as (api, _):
        write(file, "http://127.0.0.1:1")
        await eventually(lambda: "it is unknown whether that is the same cluster" in caplog.text)
        assert await read(api) == "a"


async def test_a_member_stays_the_same_cluster_until_it_leaves(
    bus: Bus, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry, member = Registry(bus), Member(id="lab", file=str(file))
    async with served("a", "b") as (one, other):
        write(file, one.host)
        async with (
            kube.from_file(file) as runtime,
            running(registry.run()),
            clusters(runtime, registry, loopback.SETTINGS, {"lab": file}) as there,
        ):
            await registry.join(member)
            await eventually(lambda: "lab" in registry.members)
            api = await there.get("lab")
            write(file, other.host)
            await eventually(lambda: caplog.text.count("for that is another cluster") == 2)
            one.knows_nobody = True
            with pytest.raises(PermanentError, match="Unauthorized"):
                await read(api)
            for _ in range(2):
                with pytest.raises(Malformed, match=f"leads to {other.host} instead of {one.host}"):
                    await there.get("lab")
            await registry.leave("lab")
            await eventually(lambda: there._hosts == {})
            await registry.join(member)
            await eventually(lambda: "lab" in registry.members)
            assert await read(await there.get("lab")) == "b"


async def test_the_same_cluster_may_move_to_another_address(file: Path) -> None:
    async with opened(file, "a", "a") as (api, (_, other)):
        write(file, other.host, "second")
        await eventually(lambda: api.host == other.host)
        await read(api)
        assert set(other.tokens) == {"second"}


@pytest.mark.parametrize("refused_first", [False, True], ids=["known", "refused at first"])
async def test_a_cluster_may_move_though_its_former_server_is_gone(
    file: Path, monkeypatch: pytest.MonkeyPatch, refused_first: bool
) -> None:
    if refused_first:
        monkeypatch.setattr("windowbox.clients.kubernetes.rotation._LOOK", 0.05)
    async with served("a", "b") as (moved, foreign), contextlib.AsyncExitStack() as former:
        (one,) = await former.enter_async_context(served("a"))
        one.knows_nobody = refused_first
        write(file, one.host)
        async with kube.from_file(file) as api:
            await eventually(lambda: bool(one.tokens))  # it has been asked which cluster it is
            one.knows_nobody = False
            asked = len(one.tokens)
            if refused_first:
                await eventually(lambda: len(one.tokens) > asked)
            await former.aclose()
            write(file, foreign.host)
            await eventually(lambda: bool(foreign.tokens))
            write(file, moved.host)
            await eventually(lambda: api.host == moved.host)
            assert await read(api) == "a"


@pytest.mark.parametrize("context", [None, "one"], ids=["current", "configured"])
async def test_a_renamed_context_is_followed_unless_it_was_configured(
    file: Path, caplog: pytest.LogCaptureFixture, context: str | None
) -> None:
    async with opened(file, "a", context=context) as (api, (one,)):
        write(file, one.host, "second", "renamed")
        if context is None:
            await uses(api, one, "second")
        else:
            await eventually(lambda: "changed credentials are not used" in caplog.text)
            assert await read(api) == "a"
            assert "second" not in one.tokens


async def test_inline_certificates_leave_no_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    descriptors, folder = [], tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    for number in range(5):
        authority = certificates.authority(tmp_path / str(number)).certificate
        write(file, "https://127.0.0.1:1")
        trust(file, 0, certificate_authority_data=base64.b64encode(authority.read_bytes()).decode())
        found = await credentials.read(file, None)
        assert found.configuration.ssl_ca_cert
        assert found.trust == kubeconfigs.trust("https://127.0.0.1:1", True, authority)
        descriptors.append(len(os.listdir("/proc/self/fd")))
    assert descriptors[-1] <= descriptors[1]  # fewer, if garbage was collected meanwhile
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("grace", [0.01, 600.0])
async def test_former_connections_are_closed_later(
    file: Path, monkeypatch: pytest.MonkeyPatch, grace: float
) -> None:
    monkeypatch.setattr("windowbox.clients.kubernetes.rotation._GRACE", grace)
    async with opened(file, "a", "a") as (api, (_, other)):
        former = api._session
        write(file, other.host)
        await eventually(lambda: api._session is not former)
        if grace < 1:
            await eventually(lambda: former.closed)
        else:
            assert not former.closed
        assert await read(api) == "a"
        last = api._session
    assert former.closed
    assert last.closed


_UNUSABLE = {
    "bytes that are no text": b"\xff\xfe\xff",
    "no mapping": b"[]",
    "nothing": b"",
    "a certificate that is not base64": b"""
clusters: [{name: one, cluster: {server: "https://127.0.0.1:1", certificate-authority-data: "="}}]
users: [{name: me, user: {token: a}}]
contexts: [{name: one, context: {cluster: one, user: me}}]
current-context: one
""",
    "a server that is a number": b"""
clusters: [{name: one, cluster: {server: 1}}]
contexts: [{name: one, context: {cluster: one}}]
current-context: one
""",
}


@pytest.mark.parametrize("content", _UNUSABLE.values(), ids=_UNUSABLE.keys())
async def test_after_an_unusable_kubeconfig_later_credentials_are_used(
    file: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    async with opened(file, "a") as (api, (one,)):
        replace(file, content)
        await eventually(lambda: "changed credentials are not used" in caplog.text)
        assert await read(api) == "a"
        write(file, one.host, "second")
        await uses(api, one, "second")


async def test_a_bug_in_reading_does_not_end_the_rotation(
    file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests, failures = credentials.digests, [RuntimeError("a bug")]

    async def failing(kubeconfig: Path | None) -> object:
        if failures:
            raise failures.pop()
        return await digests(kubeconfig)

    monkeypatch.setattr(credentials, "digests", failing)
    monkeypatch.setattr("windowbox.clients.kubernetes.rotation._LOOK", 0.05)
    async with opened(file, "a") as (api, (one,)):
        await eventually(lambda: "a bug" in caplog.text)
        write(file, one.host, "second")
        await uses(api, one, "second")


async def test_changes_are_found_without_events(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windowbox.clients.kubernetes.rotation._LOOK", 0.05)
    monkeypatch.setattr("windowbox.clients.kubernetes.rotation._opened", lambda folders: None)
    async with opened(file, "a") as (api, (one,)):
        await read(api)
        write(file, one.host, "second")
        await uses(api, one, "second")
