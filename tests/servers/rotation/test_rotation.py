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
from tests.support import loopback
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
        yield [await stack.enter_async_context(_serving(Cluster(uid))) for uid in uids]


@contextlib.asynccontextmanager
async def _serving(cluster: Cluster) -> AsyncIterator[Cluster]:
    application = web.Application()
    application.router.add_get("/api/v1/namespaces/kube-system", cluster.get)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    cluster.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield cluster
    finally:
        await runner.cleanup()


def write(file: Path, clusters: dict[str, str], current: str, token: str = "first") -> None:
    """A kubeconfig with a context for each of these clusters."""
    content = {
        "clusters": [{"name": name, "cluster": {"server": host}} for name, host in clusters.items()],
        "users": [{"name": "me", "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "me"}} for name in clusters],
        "current-context": current,
    }
    new = file.with_suffix(".new")
    new.write_text(yaml.safe_dump(content))
    new.rename(file)


async def read(api: Kube) -> str:
    return (await api.get(NAMESPACES, "", "kube-system")).uid


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_a_context_that_nobody_uses_may_name_missing_files(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    async with served("a") as (one,):
        write(file, {"one": one.host, "old": "https://127.0.0.1:1"}, "one")
        content = yaml.safe_load(file.read_text())
        content["clusters"][1]["cluster"]["certificate-authority"] = str(tmp_path / "gone.crt")
        file.write_text(yaml.safe_dump(content))
        async with kube.from_file(file) as api:
            assert await read(api) == "a"


async def test_another_current_context_leads_to_no_other_cluster(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    async with served("a", "b") as (one, other):
        hosts = {"one": one.host, "other": other.host}
        write(file, hosts, "one")
        async with kube.from_file(file) as api:
            write(file, hosts, "other", token="second")

            async def rotated() -> bool:
                assert await read(api) == "a"
                return "second" in one.tokens

            await eventually(rotated)
        assert other.tokens == []


async def test_a_kubeconfig_of_another_cluster_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "kubeconfig"
    async with served("a", "b") as (one, other):
        write(file, {"one": one.host}, "one")
        async with kube.from_file(file) as api:
            write(file, {"one": other.host}, "one", token="second")
            await eventually(lambda: "for that is another cluster; restart this process" in caplog.text)
            assert (await read(api), api.host) == ("a", one.host)
            write(file, {"one": one.host}, "one", token="third")

            async def rotated() -> bool:
                return await read(api) == "a" and "third" in one.tokens

            await eventually(rotated)


async def test_a_kubeconfig_of_a_server_that_cannot_be_compared_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "kubeconfig"
    async with served("a") as (one,):
        write(file, {"one": one.host}, "one")
        async with kube.from_file(file) as api:
            write(file, {"one": "http://127.0.0.1:1"}, "one")
            await eventually(lambda: "it is unknown whether that is the same cluster" in caplog.text)
            assert await read(api) == "a"


async def test_a_member_that_is_opened_again_is_the_same_cluster_until_it_leaves(
    bus: Bus, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "kubeconfig"
    registry, member = Registry(bus), Member(id="lab", file=str(file))
    async with served("a", "b") as (one, other):
        write(file, {"one": one.host}, "one")
        async with (
            kube.from_file(file) as runtime,
            running(registry.run()),
            clusters(runtime, registry, loopback.SETTINGS, {"lab": file}) as opened,
        ):
            await registry.join(member)
            await eventually(lambda: "lab" in registry.members)
            api = await opened.get("lab")
            write(file, {"one": other.host}, "one")
            await eventually(lambda: caplog.text.count("for that is another cluster") == 2)
            one.knows_nobody = True
            with pytest.raises(PermanentError, match="Unauthorized"):
                await read(api)
            for _ in range(2):
                with pytest.raises(Malformed, match=f"leads to {other.host} instead of {one.host}"):
                    await opened.get("lab")
            await registry.leave("lab")
            await eventually(lambda: opened._hosts == {})
            await registry.join(member)
            await eventually(lambda: "lab" in registry.members)
            assert await read(await opened.get("lab")) == "b"


async def test_the_same_cluster_may_move_to_another_address(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    async with served("a", "a") as (one, other):
        write(file, {"one": one.host}, "one")
        async with kube.from_file(file) as api:
            write(file, {"one": other.host}, "one", token="second")
            await eventually(lambda: api.host == other.host)
            await read(api)
        assert set(other.tokens) == {"second"}


@pytest.mark.parametrize("refused_first", [False, True], ids=["known", "refused at first"])
async def test_a_cluster_may_move_though_its_former_server_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused_first: bool
) -> None:
    if refused_first:
        monkeypatch.setattr("windowbox.clients.kubernetes.rotation._LOOK", 0.05)
    file = tmp_path / "kubeconfig"
    async with served("a", "b") as (moved, foreign), contextlib.AsyncExitStack() as former:
        (one,) = await former.enter_async_context(served("a"))
        one.knows_nobody = refused_first
        write(file, {"one": one.host}, "one")
        async with kube.from_file(file) as api:
            await eventually(lambda: bool(one.tokens))  # it has been asked which cluster it is
            one.knows_nobody = False
            told = len(one.tokens)
            if refused_first:
                await eventually(lambda: len(one.tokens) > told)
            await former.aclose()
            write(file, {"one": foreign.host}, "one")
            await eventually(lambda: bool(foreign.tokens))
            write(file, {"one": moved.host}, "one")
            await eventually(lambda: api.host == moved.host)
            assert await read(api) == "a"


@pytest.mark.parametrize(
    ("context", "follows"), [(None, True), ("one", False)], ids=["current", "configured"]
)
async def test_a_renamed_context_is_followed_unless_it_was_configured(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, context: str | None, follows: bool
) -> None:
    file = tmp_path / "kubeconfig"
    async with served("a") as (one,):
        write(file, {"one": one.host}, "one")
        async with kube.from_file(file, context) as api:
            write(file, {"renamed": one.host}, "renamed", token="second")

            async def rotated() -> bool:
                return await read(api) == "a" and "second" in one.tokens

            if follows:
                await eventually(rotated)
            else:
                await eventually(lambda: "changed credentials are not used" in caplog.text)
                assert not await rotated()


async def test_inline_certificates_leave_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, opened, folder = tmp_path / "kubeconfig", [], tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    for number in range(5):
        authority = certificates.authority(tmp_path / str(number)).certificate
        write(file, {"one": "https://127.0.0.1:1"}, "one")
        content = yaml.safe_load(file.read_text())
        content["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(
            authority.read_bytes()
        ).decode()
        file.write_text(yaml.safe_dump(content))
        found = await credentials.read(file, None)
        assert found.configuration.ssl_ca_cert
        assert found.trust == kubeconfigs.trust("https://127.0.0.1:1", True, authority)
        opened.append(descriptors())
    assert opened[-1] == opened[1]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("grace", [0.01, 600.0])
async def test_former_connections_are_closed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grace: float
) -> None:
    monkeypatch.setattr("windowbox.clients.kubernetes.rotation._GRACE", grace)
    file = tmp_path / "kubeconfig"
    async with served("a", "a") as (one, other):
        write(file, {"one": one.host}, "one")
        async with kube.from_file(file) as api:
            former = api._session
            write(file, {"one": other.host}, "one")
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
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    file = tmp_path / "kubeconfig"
    async with served("a") as (one,):
        write(file, {"one": one.host}, "one")
        async with kube.from_file(file) as api:
            file.write_bytes(content)
            await eventually(lambda: "changed credentials are not used" in caplog.text)
            assert await read(api) == "a"
            write(file, {"one": one.host}, "one", token="second")

            async def rotated() -> bool:
                return await read(api) == "a" and "second" in one.tokens

            await eventually(rotated)


async def test_a_bug_in_reading_does_not_end_the_rotation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kubeconfig"
    digests = credentials.digests
    failures = [RuntimeError("a bug")]

    async def failing(kubeconfig: Path | None) -> object:
        if failures:
            raise failures.pop()
        return await digests(kubeconfig)

    monkeypatch.setattr(credentials, "digests", failing)
    monkeypatch.setattr("windowbox.clients.kubernetes.rotation._LOOK", 0.05)
    async with served("a") as (one,):
        write(file, {"one": one.host}, "one")
        async with kube.from_file(file) as api:
            await eventually(lambda: "a bug" in caplog.text)
            write(file, {"one": one.host}, "one", token="second")

            async def rotated() -> bool:
                return await read(api) == "a" and "second" in one.tokens

            await eventually(rotated)


async def test_changes_are_found_without_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windowbox.clients.kubernetes.rotation._LOOK", 0.05)
    monkeypatch.setattr("windowbox.clients.kubernetes.rotation._opened", lambda folders: None)
    file = tmp_path / "kubeconfig"
    async with served("a") as (one,):
        write(file, {"one": one.host}, "one")
        async with kube.from_file(file) as api:
            await read(api)
            write(file, {"one": one.host}, "one", token="second")

            async def rotated() -> bool:
                return await read(api) == "a" and "second" in one.tokens

            await eventually(rotated)
