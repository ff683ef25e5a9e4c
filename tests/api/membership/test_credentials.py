"""Clients of clusters whose credentials change, and of clusters that leave."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path
from typing import Literal

import pytest
import pytest_asyncio
import yaml

from bus.clusters.clusters import clusters
from bus.clusters.registry import Member, Registry
from bus.transport.connection import Bus
from sandbox.servers import certificates
from tests.api.watchers.conftest import Records, heard, in_namespace
from tests.api.watchers.test_watching import member, portable, store_kubeconfig, watcher
from tests.support import loopback
from tests.support.running import eventually, running
from tests.support.servers import ControlPlane
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Malformed, PermanentError, TransientError, Unreachable
from windowbox.models.refs import DNSRECORDS, NAMESPACES, SECRETS
from windowbox.settings.clustersettings import EgressSettings

Origin = Literal["person", "namespace", "settings", "provider"]
WHICH = f"shoot--a/{DNSRECORDS.id}"


@pytest_asyncio.fixture
async def records(control_plane: ControlPlane) -> AsyncIterator[Records]:
    async with in_namespace(control_plane.kubeconfig) as made:
        yield made


def unknown(plane: ControlPlane) -> str:
    """A kubeconfig with a token that the API server does not know."""
    content = yaml.safe_load(portable(plane))
    content["users"][0]["user"] = {"token": "outdated"}
    return yaml.safe_dump(content)


def distrusting(plane: ControlPlane, folder: str) -> str:
    """A kubeconfig with the certificate of another authority than the API server's."""
    content = yaml.safe_load(portable(plane))
    other = certificates.authority(plane.kubeconfig.parent / folder)
    pem = base64.b64encode(other.certificate.read_bytes()).decode()
    content["clusters"][0]["cluster"]["certificate-authority-data"] = pem
    return yaml.safe_dump(content)


async def renew(records: Records, text: str) -> None:
    content = base64.b64encode(text.encode()).decode()
    await records.kube.merge(SECRETS, records.namespace, "kubeconfig", {"data": {"kubeconfig": content}})


async def closed(kube: Kube) -> bool:
    return kube.stale


@pytest.mark.parametrize("wrong", ["unknown", "distrusting"])
async def test_credentials_that_were_renewed_are_read_again(
    bus: Bus, control_plane: ControlPlane, records: Records, wrong: str
) -> None:
    await records.create("web")
    good = portable(control_plane)
    bad = unknown(control_plane) if wrong == "unknown" else distrusting(control_plane, "other")
    await store_kubeconfig(records, bad)
    async with watcher(bus, records.kube) as one:
        await one.registry.join(member("shoot--a", records))
        await one.reaches("broken", WHICH)
        await renew(records, good)
        await one.reaches("watching", WHICH)
    assert ("LISTED", "web", "10.0.0.1") in await heard(bus, records, "shoot--a")


async def test_a_client_is_kept_until_it_is_told_that_nobody_knows_it(
    bus: Bus, control_plane: ControlPlane, records: Records
) -> None:
    await store_kubeconfig(records, unknown(control_plane))
    registry = Registry(bus)
    async with running(registry.run()), clusters(records.kube, registry, loopback.SETTINGS) as opened:
        await registry.join(member("shoot--a", records))
        await eventually(lambda: _there(registry))
        first = await opened.get("shoot--a")
        assert await opened.get("shoot--a") is first
        with pytest.raises(PermanentError, match="Unauthorized"):
            await first.get(NAMESPACES, "", "default")
        await renew(records, portable(control_plane))
        second = await opened.get("shoot--a")
        assert (await second.get(NAMESPACES, "", "default")).name == "default"
        assert await opened.get("shoot--a") is second
        with pytest.raises(Unreachable, match="has been given up"):
            await first.get(NAMESPACES, "", "default")


async def test_the_client_of_a_cluster_that_leaves_is_closed(
    bus: Bus, control_plane: ControlPlane, records: Records
) -> None:
    await store_kubeconfig(records, portable(control_plane))
    registry = Registry(bus)
    async with running(registry.run()), clusters(records.kube, registry, loopback.SETTINGS) as opened:
        await registry.join(member("shoot--a", records))
        await eventually(lambda: _there(registry))
        kube = await opened.get("shoot--a")
        await registry.leave("shoot--a")
        await eventually(lambda: closed(kube))
        with pytest.raises(TransientError, match="does not take part"):
            await opened.get("shoot--a")
        await registry.join(member("shoot--a", records))
        await eventually(lambda: _there(registry))
        again = await opened.get("shoot--a")
        assert (await again.get(NAMESPACES, "", "default")).name == "default"


@pytest.mark.parametrize(("origin", "denied"), [("provider", True), ("namespace", False), ("person", False)])
async def test_own_networks_are_denied_to_provider_clusters_alone(
    bus: Bus, records: Records, origin: Origin, denied: bool
) -> None:
    """The API servers of control planes are Services of the cluster that windowbox serves."""
    await store_kubeconfig(records, unreached("https://10.0.0.1"))
    registry, egress = Registry(bus), EgressSettings(denied=(ip_network("10.0.0.0/8"),))
    async with running(registry.run()), clusters(records.kube, registry, egress) as opened:
        await registry.join(member("shoot--a", records).model_copy(update={"origin": origin}))
        await eventually(lambda: _there(registry))
        if denied:
            with pytest.raises(Malformed, match=r"10.0.0.1, where none may be"):
                await opened.get("shoot--a")
        else:
            assert (await opened.get("shoot--a")).host == "https://10.0.0.1"


async def test_loopback_is_denied_to_all_kubeconfigs_in_secrets(
    bus: Bus, control_plane: ControlPlane, records: Records
) -> None:
    await store_kubeconfig(records, portable(control_plane))
    registry = Registry(bus)
    async with running(registry.run()), clusters(records.kube, registry, EgressSettings()) as opened:
        await registry.join(member("shoot--a", records))
        await eventually(lambda: _there(registry))
        with pytest.raises(Malformed, match=r"127.0.0.1, where none may be"):
            await opened.get("shoot--a")


@pytest.mark.parametrize("origin", ["person", "settings", "namespace", "provider"])
async def test_bus_entries_never_name_files_or_programs(
    bus: Bus, records: Records, tmp_path: Path, origin: Origin
) -> None:
    trace, file, others = tmp_path / "trace", tmp_path / "kubeconfig", tmp_path / "others"
    file.write_text(running_a_program(trace))
    registry, files = Registry(bus), {"shoot--b": file, "shoot--a": others}
    opening = clusters(records.kube, registry, loopback.SETTINGS, files)
    async with running(registry.run()), opening as opened:
        await registry.join(Member(id="shoot--a", file=str(file), origin=origin))
        await eventually(lambda: _there(registry))
        with pytest.raises(Malformed, match=r"settings of this process name no file .*/kubeconfig for it"):
            await opened.get("shoot--a")
    assert not trace.exists()


async def test_a_file_that_the_settings_name_may_run_a_program(
    bus: Bus, records: Records, tmp_path: Path
) -> None:
    trace, file = tmp_path / "trace", tmp_path / "kubeconfig"
    file.write_text(running_a_program(trace))
    registry = Registry(bus)
    opening = clusters(records.kube, registry, loopback.SETTINGS, {"shoot--a": file})
    async with running(registry.run()), opening as opened:
        await registry.join(Member(id="shoot--a", file=str(file)))
        await eventually(lambda: _there(registry))
        with pytest.raises(Malformed):  # it writes no credentials
            await opened.get("shoot--a")
    assert trace.exists()


async def test_a_member_without_credentials_does_not_get_those_of_the_process(
    bus: Bus, records: Records
) -> None:
    registry = Registry(bus)
    async with running(registry.run()), clusters(records.kube, registry, loopback.SETTINGS) as opened:
        await registry.join(Member(id="shoot--a"))
        await eventually(lambda: _there(registry))
        with pytest.raises(Malformed, match="neither a Secret nor a file"):
            await opened.get("shoot--a")


def running_a_program(trace: Path) -> str:
    script = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", f"touch {trace}"],
        "interactiveMode": "Never",
    }
    content = yaml.safe_load(unreached("https://127.0.0.1:1"))
    content["users"][0]["user"] = {"exec": script}
    return yaml.safe_dump(content)


def unreached(server: str) -> str:
    content = {
        "clusters": [{"name": "a", "cluster": {"server": server}}],
        "users": [{"name": "a", "user": {"token": "t"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    return yaml.safe_dump(content)


async def _there(registry: Registry) -> bool:
    return "shoot--a" in registry.members
