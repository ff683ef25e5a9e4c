"""No password and no object crosses a network in clear, and certificates can be renewed."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import nats.errors
import pytest
import uvloop

from bus.transport.access import SecuredClient
from bus.transport.connection import connected
from sandbox import processes
from sandbox.programs import binaries
from tests.support import servers
from tests.support.cases import cases
from tests.support.natsserver import NatsServer, started
from tests.support.natstls import Identities, Tls
from tests.support.running import eventually, running, soon
from windowbox.errors import Malformed, Refused
from windowbox.settings.bussettings import Access

ELSEWHERE = "198.18.255.77"
"""Not a loopback address; none but this machine itself has it (RFC 2544)."""


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    return Tls(tmp_path / "tls")


@pytest.fixture
def server(tls: Tls, tmp_path: Path) -> Iterator[NatsServer]:
    with started(NatsServer(tmp_path / "nats", *tls.options())) as made:
        yield made


@pytest.fixture
def verifying(tls: Tls, tmp_path: Path) -> Iterator[NatsServer]:
    """A server that admits only clients with a certificate of its authority."""
    with started(NatsServer(tmp_path / "nats", *tls.options(verify=True))) as made:
        yield made


def trusting(url: str, tls: Tls) -> Access:
    return Access(url, ca=tls.ca.certificate)


def known(url: str, tls: Tls) -> Access:
    return dataclasses.replace(trusting(url, tls), cert=tls.client.certificate, key=tls.client.key)


async def works(access: Access) -> bool:
    async with connected(access) as bus:
        await bus.api("STREAM.NAMES")
        assert isinstance(bus.client, SecuredClient)
        return bus.client.encrypted


async def refusal(access: Access) -> str:
    with pytest.raises(Refused) as refused:
        async with connected(access):
            pass
    return str(refused.value)


async def test_a_server_of_a_trusted_authority_is_used(server: NatsServer, tls: Tls) -> None:
    assert await works(trusting(server.url, tls))
    assert await works(trusting(server.url.replace("nats://", "tls://"), tls))


async def test_a_server_of_an_unknown_authority_is_refused(server: NatsServer, tmp_path: Path) -> None:
    for access in (trusting(server.url, Tls(tmp_path / "other")), Access(server.url)):
        reported = await refusal(access)
        assert "correct nats.ca" in reported
        assert "certificate" in reported


@cases(
    "hosts expired reported",
    ("expired", ["127.0.0.1"], True, "expired"),
    ("of-another-name", ["nats"], False, "not valid for '127.0.0.1'"),
)
async def test_a_certificate_that_does_not_fit_is_refused(
    tmp_path: Path, hosts: list[str], expired: bool, reported: str
) -> None:
    tls = Tls(tmp_path / "tls", hosts)
    if expired:
        tls.expire()
    with started(NatsServer(tmp_path / "nats", *tls.options())) as server:
        assert reported in await refusal(trusting(server.url, tls))


async def test_a_verifying_server_admits_only_clients_of_its_authority(
    verifying: NatsServer, tls: Tls, tmp_path: Path
) -> None:
    assert await works(known(verifying.url, tls))
    without, other = trusting(verifying.url, tls), Tls(tmp_path / "other").client
    stranger = dataclasses.replace(without, cert=other.certificate, key=other.key)
    for access in (without, stranger):
        assert "nats.cert" in await refusal(access)


async def test_one_bad_server_of_several_is_skipped(server: NatsServer, tls: Tls, tmp_path: Path) -> None:
    other = Tls(tmp_path / "other")
    with started(NatsServer(tmp_path / "other-nats", *other.options())) as bad:
        for _ in range(4):  # which comes first is chosen at random
            assert await works(trusting(f"{bad.url},{server.url}", tls))


async def test_connections_outlive_a_change_of_all_certificates(verifying: NatsServer, tls: Tls) -> None:
    async with connected(known(verifying.url, tls)) as bus, running(bus.watch()):
        verifying.stop()
        await eventually(lambda: bus.lost_for > 0)
        tls.renew()
        verifying.start()
        await eventually(lambda: bus.connected)
        await bus.api("STREAM.NAMES")


async def test_a_bad_certificate_is_logged_once_and_waited_for(
    server: NatsServer, tls: Tls, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = tmp_path / "kept"
    async with connected(trusting(server.url, tls)) as bus, running(bus.watch()):
        server.stop()
        await eventually(lambda: bus.lost_for > 0)
        shutil.copytree(tls.folder, kept)
        tls.expire()
        with caplog.at_level(logging.ERROR, "bus.transport.connection"):
            server.start()
            await eventually(lambda: "expired" in caplog.text)
            await asyncio.sleep(1)  # several attempts
        assert len([record for record in caplog.records if "expired" in record.message]) == 1
        server.stop()
        shutil.copytree(kept, tls.folder, dirs_exist_ok=True)
        server.start()
        await eventually(lambda: bus.connected)


async def test_a_connection_we_end_is_not_mistrusted(
    server: NatsServer, tls: Tls, caplog: pytest.LogCaptureFixture
) -> None:
    access = trusting(server.url, tls)
    async with connected(access) as listener, connected(access) as speaker:
        heard = await listener.client.subscribe("speech")
        await listener.client.flush(30)
        for _ in range(100):
            await speaker.client.publish("speech", b"x" * 100_000)
        await heard.next_msg(timeout=60)
        await listener.client._process_op_err(nats.errors.StaleConnectionError())
        await eventually(lambda: listener.connected)
    assert "refuses TLS" not in caplog.text


@pytest.mark.parametrize("policy", [asyncio.DefaultEventLoopPolicy, uvloop.EventLoopPolicy])
def test_the_end_of_a_connection_by_tls_is_no_warning(
    policy: Callable[[], asyncio.AbstractEventLoopPolicy],
    server: NatsServer,
    tls: Tls,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def lose() -> None:
        async with connected(trusting(server.url, tls)) as bus, running(bus.watch()):
            server.stop()
            await eventually(lambda: bus.lost_for > 0)
            server.start()
            await eventually(lambda: bus.connected)

    with asyncio.Runner(loop_factory=policy().new_event_loop) as runner:
        runner.run(lose())
    assert not [record for record in caplog.records if record.name == "asyncio"]


async def test_no_password_goes_to_a_server_without_tls(tls: Tls) -> None:
    async with listening("127.0.0.1") as (url, heard):
        access = dataclasses.replace(trusting(url, tls), user="worker", password="hunter2")
        assert "speaks no TLS" in await refusal(access)
        assert "speaks no TLS" in await refusal(Access(url.replace("nats://", "tls://"), "worker", "hunter2"))
        assert await soon(heard.get()) + await soon(heard.get()) == b""


async def test_no_password_is_sent_in_clear_off_loopback(elsewhere: str) -> None:
    async with listening(elsewhere) as (url, heard):
        reported = await refusal(Access(url, "worker", "hunter2"))
        assert await soon(heard.get()) == b""
    assert "not on this machine's loopback" in reported
    assert "nats.ca" in reported


async def test_servers_off_loopback_use_tls(elsewhere: str, tmp_path: Path) -> None:
    tls = Tls(tmp_path / "tls", hosts=[elsewhere])
    with started(NatsServer(tmp_path / "nats", f"--addr={elsewhere}", *tls.options())) as server:
        assert await works(trusting(f"nats://{elsewhere}:{server.port}", tls))


async def test_a_user_enters_by_credentials(tmp_path: Path) -> None:
    identities, creds = Identities(), tmp_path / "worker.creds"
    creds.write_text(identities.credentials())
    with accounts(identities, tmp_path) as url:
        async with connected(Access(url, "worker", creds=creds)) as bus:
            await bus.client.flush(5)
        creds.write_text(Identities().credentials())
        assert "check nats.creds" in await refusal(Access(url, "worker", creds=creds))


@pytest.mark.parametrize("setting", ["ca", "cert", "creds"])
@pytest.mark.parametrize("content", [None, "", "hunter2"])
async def test_a_file_that_cannot_be_used_is_named(setting: str, content: str | None, tmp_path: Path) -> None:
    file = tmp_path / "file"
    if content is not None:
        file.write_text(content)
    files = {setting: file} | ({"key": file} if setting == "cert" else {})
    with pytest.raises(Malformed, match=f"nats.{setting} .*/file") as error:
        Access("nats://127.0.0.1:1", **files).check()  # type: ignore[arg-type]
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("access", "reported"),
    [
        (Access("nats://127.0.0.1:1", cert=Path("/x")), "nats.cert and nats.key belong together"),
        (Access("nats://127.0.0.1:1", password="x", creds=Path("/x")), "nats.creds and nats.password"),
        (Access("nats://127.0.0.1:1,ws://127.0.0.1:2"), "nats.url: ws://127.0.0.1:2"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(access: Access, reported: str) -> None:
    with pytest.raises(Malformed, match=reported):
        access.check()


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """An address of this machine that is not of its loopback network; nothing leaves the machine."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("only root can give this machine another address")
    subprocess.run(["ip", "address", "add", f"{ELSEWHERE}/32", "dev", "lo"], check=True)
    try:
        yield ELSEWHERE
    finally:
        subprocess.run(["ip", "address", "del", f"{ELSEWHERE}/32", "dev", "lo"], check=True)


@contextlib.asynccontextmanager
async def listening(host: str) -> AsyncIterator[tuple[str, asyncio.Queue[bytes]]]:
    """A server that claims to be NATS without TLS, and what clients sent to it."""
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"auth_required":true,"max_payload":1024,"headers":true}\r\n')
        heard.put_nowait(await reader.read())
        writer.close()

    async with await asyncio.start_server(answer, host, 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"nats://{host}:{port}", heard


@contextlib.contextmanager
def accounts(identities: Identities, folder: Path) -> Iterator[str]:
    port, configuration = processes.free_port(), folder / "accounts.conf"
    configuration.write_text(identities.configuration(port))
    log = folder / "accounts.log"
    process = processes.start([str(binaries.find("nats-server")), "--config", str(configuration)], log)
    try:
        servers.wait(lambda: "Server is ready" in log.read_text(), process, "nats-server", log)
        yield f"nats://127.0.0.1:{port}"
    finally:
        servers.end(process)
