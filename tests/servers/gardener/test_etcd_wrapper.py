"""The stand-in for etcd-wrapper, beside a simulated etcd-backup-restore."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from sandbox import processes
from sandbox.servers import certificates
from tests.support import webserver
from tests.support.running import eventually, soon
from tools.gardener import programs
from windowbox.errors import Missing


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return programs.path("etcd-wrapper")
    except Missing as error:
        pytest.skip(str(error))


class BackupRestore:
    """It prepares the data in steps, and forgets that it did once it has said so, as the original does."""

    def __init__(self, etcd: dict[str, Any]) -> None:
        self._etcd = etcd
        self.results = ["Failed", "Successful"]
        """Of the initializations to come; the last one for ever."""
        self.modes: list[str] = []
        self._said = ["New"]

    async def status(self, _request: web.Request) -> web.Response:
        said = self._said.pop(0) if self._said else "New"
        return web.Response(text=said)

    async def start(self, request: web.Request) -> web.Response:
        self.modes.append(request.query["mode"])
        result = self.results.pop(0) if len(self.results) > 1 else self.results[0]
        self._said = ["Progress", result]
        return web.Response()

    async def config(self, _request: web.Request) -> web.Response:
        return web.Response(text=yaml.safe_dump(self._etcd))

    def serving(self, tls: ssl.SSLContext) -> contextlib.AbstractAsyncContextManager[str]:
        return webserver.serving(
            web.get("/initialization/status", self.status),
            web.get("/initialization/start", self.start),
            web.get("/config", self.config),
            tls=tls,
        )


class Wrapper:
    """The program and its surroundings, all with TLS as Gardener asks for it."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.folder, self._program = folder, program
        self._port, self._client_port, peer_port = (processes.free_port() for _ in range(3))
        self._ca = certificates.authority(folder)
        server = certificates.server(self._ca, folder, "server", ["localhost", "127.0.0.1"], peers=True)
        self._user = certificates.client(self._ca, folder, "user")
        self._tls = ssl.create_default_context(cafile=self._ca.certificate)
        self.server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server_tls.load_cert_chain(server.certificate, server.key)
        self.backups = BackupRestore(
            {
                "name": "one",
                "data-dir": str(folder / "data"),
                "listen-client-urls": f"https://127.0.0.1:{self._client_port}",
                "advertise-client-urls": f"https://127.0.0.1:{self._client_port}",
                "listen-peer-urls": f"http://127.0.0.1:{peer_port}",
                "initial-advertise-peer-urls": f"http://127.0.0.1:{peer_port}",
                "initial-cluster": f"one=http://127.0.0.1:{peer_port}",
                "client-transport-security": {
                    "cert-file": str(server.certificate),
                    "key-file": str(server.key),
                    "trusted-ca-file": str(self._ca.certificate),
                    "client-cert-auth": True,
                },
            }
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Process]:
        async with self.backups.serving(self.server_tls) as url:
            command = [
                str(self._program), "start-etcd", f"--backup-restore-host-port={url.removeprefix('https://')}",
                "--backup-restore-tls-enabled=true",
                f"--backup-restore-ca-cert-bundle-path={self._ca.certificate}",
                "--etcd-server-name=localhost", f"--etcd-client-cert-path={self._user.certificate}",
                f"--etcd-client-key-path={self._user.key}", f"--etcd-client-port={self._client_port}",
                f"--etcd-wrapper-port={self._port}",
            ]  # fmt: skip
            with (self.folder / "log").open("ab") as log:
                process = await asyncio.create_subprocess_exec(*command, stderr=log)
            try:
                yield process
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def request(self, method: str, path: str) -> int | None:
        """The status of the answer; None while nobody listens."""
        async with aiohttp.ClientSession() as session:
            try:
                async with session.request(
                    method, f"https://localhost:{self._port}{path}", ssl=self._tls
                ) as answer:
                    return answer.status
            except aiohttp.ClientConnectionError:
                return None

    async def ready(self) -> bool:
        return await self.request("GET", "/readyz") == 200


@pytest.fixture
def wrapper(program: Path, tmp_path: Path) -> Wrapper:
    return Wrapper(program, tmp_path)


async def test_etcd_runs_once_its_data_are_prepared(wrapper: Wrapper) -> None:
    async with wrapper.running():
        assert await eventually(wrapper.ready)

    assert wrapper.backups.modes == ["full", "full"], "asked again after the failure"
    assert (wrapper.folder / "data" / "member").is_dir()


@pytest.mark.parametrize("ask", ["SIGTERM", "/stop"])
async def test_etcd_ends_when_it_is_asked_to(wrapper: Wrapper, ask: str) -> None:
    async with wrapper.running() as process:
        assert await eventually(wrapper.ready)
        if ask == "/stop":
            assert await wrapper.request("POST", ask) == 200
        else:
            process.send_signal(signal.SIGTERM)
        assert await soon(process.wait()) == 0


async def test_etcd_is_not_prepared_again_and_again_while_its_configuration_is_wrong(
    wrapper: Wrapper,
) -> None:
    wrapper.backups._etcd["initial-cluster"] = "other=http://127.0.0.1:1"
    async with wrapper.running() as process:
        assert await soon(process.wait()) == 1
