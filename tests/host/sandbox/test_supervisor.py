"""The servers of a sandbox: restarted when they end, and open to permitted clients only."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from bus.transport.connection import Bus, connected
from sandbox import state as states
from sandbox.options import Options
from sandbox.servers import certificates, controlplane
from sandbox.servers.apiserver import ApiServer
from sandbox.supervisor import Supervisor
from tests.chaos import havoc
from tests.support import livefiles
from tests.support.running import eventually
from windowbox.errors import Refused
from windowbox.rights import rbac
from windowbox.settings import settings
from windowbox.settings.bussettings import Access

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_a_crashed_child_is_restarted_and_shown(sandbox: Supervisor) -> None:
    before = sandbox.state.children["named"].restarts
    await sandbox.kill("named")
    await sandbox.ready("named")
    written = states.read(sandbox.folder)
    assert written is not None
    assert written.children["named"].restarts == before + 1
    assert written.children["named"].last_exit == "SIGKILL"


async def test_a_companion_is_a_child_that_knows_where_it_is(sandbox: Supervisor) -> None:
    await sandbox.kill("beside")
    await sandbox.ready("beside")
    assert (sandbox.folder / "logs" / "beside.log").read_text() == "at 127.0.0.1\nat 127.0.0.1\n"


async def test_a_stopped_child_stays_stopped(sandbox: Supervisor) -> None:
    await sandbox.stop("named")
    assert _conditions(sandbox)["named"] == "stopped"
    await sandbox.start("named")
    assert _conditions(sandbox)["named"] == "ready"


async def test_a_wiped_bus_has_forgotten_its_streams(sandbox: Supervisor) -> None:
    async with connected(_operator(sandbox)) as bus:
        await bus.api("STREAM.CREATE.KEPT", {"name": "KEPT", "subjects": ["kept"]}, repeat=True)
    await havoc.wipe(sandbox)
    async with connected(_operator(sandbox)) as bus:
        # The watcher makes again those that it needs.
        found = await eventually(lambda: _streams(bus), 90)
    assert "KEPT" not in found


async def test_updates_survive_a_crash_of_named(sandbox: Supervisor) -> None:
    assert _update(sandbox, "add kept.local.gardener.cloud 60 A 10.0.0.1", signed=True) == 0
    await sandbox.kill("named")
    await sandbox.ready("named")
    assert _lookup(sandbox, "kept.local.gardener.cloud") == ["10.0.0.1"]


async def test_a_wiped_zone_has_its_static_records_again(sandbox: Supervisor) -> None:
    assert _update(sandbox, "add lost.local.gardener.cloud 60 A 10.0.0.1", signed=True) == 0
    await sandbox.stop("named")
    sandbox.wipe("named")
    await sandbox.start("named")
    assert _lookup(sandbox, "lost.local.gardener.cloud") == []
    assert _lookup(sandbox, "api.root.garden.external.local.gardener.cloud") == ["127.0.0.1"]


async def test_an_update_without_a_signature_is_refused(sandbox: Supervisor) -> None:
    assert _update(sandbox, "add x.local.gardener.cloud 60 A 10.0.0.1", signed=False) != 0


async def test_only_workers_list_secrets(sandbox: Supervisor) -> None:
    path = "/api/v1/namespaces/default/secrets"
    for role in ("watcher", "patcher", "worker"):
        with pytest.raises(Refused, match="not found"):
            _api(sandbox, role).request("GET", f"{path}/none")
        with pytest.raises(Refused, match="forbidden"):
            _api(sandbox, role).request("GET", f"{path}?watch=true")
    for role in ("watcher", "patcher"):  # workers list those of ControlPlanes
        with pytest.raises(Refused, match="forbidden"):
            _api(sandbox, role).request("GET", path)


async def test_everything_that_holds_a_secret_is_private(sandbox: Supervisor) -> None:
    known = yaml.safe_load(sandbox.settings_file("operator").read_text())
    secrets = [known["nats"]["password"], known["dns"]["zones"][0]["key"]["secret"], "PRIVATE KEY"]
    found = livefiles.below(sandbox.folder, without=frozenset({"etcd"}))
    holders = [path for path in found if any(s.encode() in livefiles.read(path) for s in secrets)]
    assert sandbox.settings_file("operator") in holders
    # What a server puts into its own folder is as private as it makes it; those folders are checked by name.
    assert [p for p in holders if p.stat().st_mode & 0o077] == []


async def test_a_second_supervisor_is_refused(sandbox: Supervisor) -> None:
    with pytest.raises(Refused, match="already running"):
        await Supervisor(sandbox.folder, Options()).run()


def _conditions(sandbox: Supervisor) -> dict[str, str]:
    return {name: child.condition for name, child in sandbox.state.children.items()}


def _api(sandbox: Supervisor, role: str) -> ApiServer:
    pki = sandbox.folder / "pki"
    identity = controlplane.identities(pki)
    user = certificates.client(identity.ca, pki, rbac.user(role))
    return ApiServer(f"https://127.0.0.1:{sandbox.state.ports['kube-apiserver']}", identity.ca, user)


def _operator(sandbox: Supervisor) -> Access:
    return settings.load(sandbox.settings_file("operator")).nats.access("test")


async def _streams(bus: Bus) -> list[str]:
    return (await bus.api("STREAM.NAMES", repeat=True))["streams"] or []


def _update(sandbox: Supervisor, line: str, *, signed: bool) -> int:
    key = ["-k", str(Path(sandbox.environment()["DNS_KEY_FILE"]))] if signed else []
    script = f"server 127.0.0.1 {sandbox.state.ports['named']}\nzone local.gardener.cloud\n{line}\nsend\n"
    return subprocess.run(["nsupdate", *key], input=script.encode(), timeout=60, check=False).returncode


def _lookup(sandbox: Supervisor, name: str) -> list[str]:
    port = str(sandbox.state.ports["named"])
    answer = subprocess.run(
        ["dig", "@127.0.0.1", "-p", port, "+short", name],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return answer.stdout.split()
