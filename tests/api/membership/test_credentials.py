"""Clients of clusters whose credentials change, and of clusters that leave."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from bus.clusters.clusters import Clusters, clusters
from bus.clusters.registry import Member, Registry
from bus.transport.connection import Bus
from sandbox.servers import certificates
from tests.api.watchers.conftest import Records, in_namespace
from tests.api.watchers.test_watching import member, portable, store_kubeconfig
from tests.support import loopback
from tests.support.cases import cases
from tests.support.running import eventually, running
from tests.support.servers import ControlPlane
from tests.support.tenantconfigs import naming, program, with_user
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Malformed, PermanentError, TransientError, Unreachable
from windowbox.models.refs import NAMESPACES, SECRETS
from windowbox.settings.clustersettings import EgressSettings


@pytest_asyncio.fixture
async def records(control_plane: ControlPlane) -> AsyncIterator[Records]:
    async with in_namespace(control_plane.kubeconfig) as made:
        yield made


@dataclass
class Process:
    """A process with its registry, and clients of the members."""

    registry: Registry
    clusters: Clusters

    async def join(self, joining: Member) -> None:
        await self.registry.join(joining)
        await eventually(lambda: joining.id in self.registry.members)

    async def refuses(self, joining: Member, why: str | None = None) -> None:
        await self.join(joining)
        with pytest.raises(Malformed, match=why):
            await self.clusters.get(joining.id)


@contextlib.asynccontextmanager
async def process(
    bus: Bus,
    records: Records,
    egress: EgressSettings = loopback.SETTINGS,
    files: Mapping[str, Path] | None = None,
) -> AsyncIterator[Process]:
    registry = Registry(bus)
    async with running(registry.run()), clusters(records.kube, registry, egress, files) as opened:
        yield Process(registry, opened)


def unknown(plane: ControlPlane) -> str:
    """A kubeconfig with a token that the API server does not know."""
    return with_user(portable(plane).encode(), token="outdated").decode()


def distrusting(plane: ControlPlane) -> str:
    """A kubeconfig with the certificate of another authority than the API server's."""
    content = yaml.safe_load(portable(plane))
    other = certificates.authority(plane.kubeconfig.parent / "other")
    pem = base64.b64encode(other.certificate.read_bytes()).decode()
    content["clusters"][0]["cluster"]["certificate-authority-data"] = pem
    return yaml.safe_dump(content)


async def renew(records: Records, text: str) -> None:
    content = base64.b64encode(text.encode()).decode()
    await records.kube.merge(SECRETS, records.namespace, "kubeconfig", {"data": {"kubeconfig": content}})


async def answers(kube: Kube) -> bool:
    return (await kube.get(NAMESPACES, "", "default")).name == "default"


@cases(
    "wrong refusal",
    ("an-unknown-token", unknown, "Unauthorized"),
    ("another-authority", distrusting, "no usable connection"),
)
async def test_a_client_is_kept_until_its_credentials_are_refused(
    bus: Bus, control_plane: ControlPlane, records: Records, wrong: Any, refusal: str
) -> None:
    await store_kubeconfig(records, wrong(control_plane))
    async with process(bus, records) as one:
        await one.join(member("shoot--a", records))
        first = await one.clusters.get("shoot--a")
        assert await one.clusters.get("shoot--a") is first
        with pytest.raises((PermanentError, Unreachable), match=refusal):
            await answers(first)
        await renew(records, portable(control_plane))
        second = await one.clusters.get("shoot--a")
        assert await answers(second)
        assert await one.clusters.get("shoot--a") is second
        with pytest.raises(Unreachable, match="has been given up"):
            await answers(first)


async def test_the_client_of_a_cluster_that_leaves_is_closed(
    bus: Bus, control_plane: ControlPlane, records: Records
) -> None:
    await store_kubeconfig(records, portable(control_plane))
    async with process(bus, records) as one:
        await one.join(member("shoot--a", records))
        kube = await one.clusters.get("shoot--a")

        await one.registry.leave("shoot--a")
        await eventually(lambda: kube.stale)
        with pytest.raises(TransientError, match="is no member"):
            await one.clusters.get("shoot--a")
        await one.join(member("shoot--a", records))
        assert await answers(await one.clusters.get("shoot--a"))


@cases(
    "origin address denied",
    ("own-networks-to-a-provider-cluster", "provider", "10.0.0.1", True),
    ("own-networks-to-a-namespace", "namespace", "10.0.0.1", False),
    ("own-networks-to-a-person", "person", "10.0.0.1", False),
    ("loopback-to-a-person", "person", "127.0.0.1", True),
)
async def test_kubeconfigs_in_secrets_lead_to_permitted_addresses_only(
    bus: Bus, records: Records, origin: str, address: str, denied: bool
) -> None:
    """The API servers of control planes are Services of the cluster that windowbox serves."""
    await store_kubeconfig(records, naming(f"https://{address}").decode())
    theirs = member("shoot--a", records).model_copy(update={"origin": origin})
    async with process(bus, records, EgressSettings(denied=(ip_network("10.0.0.0/8"),))) as one:
        if denied:
            await one.refuses(theirs, f"{address}, where none may be")
        else:
            await one.join(theirs)
            assert (await one.clusters.get("shoot--a")).host == f"https://{address}"


@pytest.mark.parametrize("origin", ["person", "settings", "namespace", "provider"])
async def test_bus_entries_never_name_files_or_programs(
    bus: Bus, records: Records, tmp_path: Path, origin: Any
) -> None:
    trace, file, others = tmp_path / "trace", tmp_path / "kubeconfig", tmp_path / "others"
    file.write_bytes(naming("https://127.0.0.1:1", user={"exec": program(trace)}))
    async with process(bus, records, files={"shoot--b": file, "shoot--a": others}) as one:
        theirs = Member(id="shoot--a", file=str(file), origin=origin)
        await one.refuses(theirs, r"settings of this process name no file .*/kubeconfig for it")
    assert not trace.exists()


async def test_a_file_that_the_settings_name_may_run_a_program(
    bus: Bus, records: Records, tmp_path: Path
) -> None:
    trace, file = tmp_path / "trace", tmp_path / "kubeconfig"
    file.write_bytes(naming("https://127.0.0.1:1", user={"exec": program(trace)}))
    async with process(bus, records, files={"shoot--a": file}) as one:
        await one.refuses(Member(id="shoot--a", file=str(file)))  # it writes no credentials
    assert trace.exists()


async def test_a_member_without_credentials_is_refused(bus: Bus, records: Records) -> None:
    async with process(bus, records) as one:
        await one.refuses(Member(id="shoot--a"), "neither a Secret nor a file")
