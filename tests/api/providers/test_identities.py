"""Which kubeconfigs lead to the same cluster."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from tests.api.providers.tenants import liar, nobody
from tests.support import loopback
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from tests.support.tenantconfigs import of
from windowbox.clients.kubernetes import identities, kube
from windowbox.clients.kubernetes.kube import Kube
from windowbox.models.refs import NAMESPACES, is_provider_cluster


def elsewhere(kubeconfig: bytes) -> bytes:
    """The same server by another name."""
    return kubeconfig.replace(b"127.0.0.1", b"localhost")


def unverified(kubeconfig: bytes) -> bytes:
    content = yaml.safe_load(kubeconfig)
    for entry in content["clusters"]:
        entry["cluster"].pop("certificate-authority-data")
        entry["cluster"]["insecure-skip-tls-verify"] = True
    return yaml.safe_dump(content).encode()


@contextlib.asynccontextmanager
async def opened(*kubeconfigs: bytes) -> AsyncIterator[list[Kube]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(kube.from_text(one, "it", loopback.EGRESS)) for one in kubeconfigs
        ]


@rule("K-4")
async def test_a_cluster_is_known_by_its_url_or_by_its_uid(plane: ControlPlane) -> None:
    kubeconfigs = (of(plane), elsewhere(of(plane)), nobody(plane), elsewhere(nobody(plane)))
    async with opened(of(plane, "worker"), *kubeconfigs) as (own, *found):
        same = [await identities.same(one, own) for one in found]
    assert same == [True, True, True, False]  # whoever may read nothing is known by the URL alone


async def test_other_clusters_are_others(plane: ControlPlane, other: ControlPlane) -> None:
    async with opened(of(plane), of(other)) as (one, two):
        assert not await identities.same(two, one)
        assert identities.provider(one) != identities.provider(two)


async def test_nothing_that_a_server_says_makes_it_another(plane: ControlPlane, tmp_path: Path) -> None:
    async with kube.from_file(plane.kubeconfig) as real:
        uid = (await real.get(NAMESPACES, "", "kube-system")).uid
        async with liar(tmp_path, uid) as tenant:
            honest = plane.api.ca.certificate
            lies = (tenant.kubeconfig(), tenant.kubeconfig(honest))
            async with opened(*lies) as claims:
                for claim in claims:
                    assert (await claim.get(NAMESPACES, "", "kube-system")).uid == uid
                    assert not await identities.same(claim, real)
                    assert identities.provider(claim) != identities.provider(real)


async def test_an_unverified_server_is_the_same_as_no_other(plane: ControlPlane, tmp_path: Path) -> None:
    """Only a file of this machine may leave its server unverified."""
    path = tmp_path / "kubeconfig"
    path.write_bytes(unverified(of(plane)))
    async with opened(of(plane)) as (own,), kube.from_file(path) as any_server:
        assert not await identities.same(any_server, own)
        assert not await identities.same(any_server, any_server)


@pytest.mark.parametrize("port", ["", ":443"])
async def test_a_port_may_be_left_out(plane: ControlPlane, port: str) -> None:
    def at(url: str) -> bytes:
        return of(plane).replace(plane.url.encode(), url.encode())

    async with opened(at("https://api.example.com:443"), at(f"https://API.example.com{port}/")) as (a, b):
        assert identities.provider(a) == identities.provider(b)


async def test_provider_clusters_are_named_as_no_person_names_any(plane: ControlPlane) -> None:
    async with opened(of(plane)) as (own,):
        names = (identities.provider(own), "provider-1", "runtime")
        assert [is_provider_cluster(name) for name in names] == [True, False, False]
