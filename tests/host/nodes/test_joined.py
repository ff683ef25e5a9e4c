"""The networks of two sandboxes as one: all nodes reach each other, and the host as before."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator

import pytest

from sandbox.nodes import addresses, claims, hostresources, iproute, leftovers, network
from sandbox.nodes.addresses import Plan
from sandbox.nodes.claims import Claim
from sandbox.options import Options
from tests.support import guardian, worldwithnodes

Site = tuple[Claim, Plan]


@contextlib.contextmanager
def site(nodes: int) -> Iterator[Site]:
    """The network of a sandbox with this many nodes, each of which has a Pod."""
    with guardian.guarded(), hostresources.claimed(Options(), addresses.names(nodes)) as (claim, plan):
        claims.begin(claim)
        try:
            network.build(claim, plan)
            for node in plan.nodes:
                iproute.apply([f"address add {node.pods_v4[2]}/32 dev lo"], claim.namespace(node.name))
            yield claim, plan
        finally:
            leftovers.clear_one(claim)


@pytest.fixture(name="sites", scope="module")
def _sites() -> Iterator[tuple[Site, Site]]:
    worldwithnodes.need()
    with site(2) as one, site(1) as other:
        for _ in range(2):  # the second time, nothing changes
            network.join(*one, *other)
        yield one, other


def test_nodes_reach_those_of_the_other_sandbox_their_pods_and_its_host(sites: tuple[Site, Site]) -> None:
    for (claim, plan), (_, beyond) in (sites, sites[::-1]):
        for node in plan.nodes:
            for far in beyond.nodes:
                for address in (far.v4, far.v6, far.pods_v4[2], beyond.host_v4, beyond.host_v6):
                    assert _reaches(claim.namespace(node.name), str(address)), (node.name, address)


def test_the_host_answers_on_the_link_of_each_sandbox_alone(sites: tuple[Site, Site]) -> None:
    for claim, plan in sites:
        node = claim.namespace("node-1")
        iproute.apply(["neigh flush dev eth0"], node)
        assert _reaches(node, str(plan.host_v4))
        [answer] = iproute.asked("-n", node, "neigh", "show", str(plan.host_v4))
        [link] = json.loads(iproute.run("ip", "-json", "link", "show", claim.name))
        assert answer["lladdr"] == link["address"]


def test_a_sandbox_that_comes_back_can_be_joined_again() -> None:
    worldwithnodes.need()
    with site(1) as one:
        for _ in range(2):
            with site(1) as other:
                network.join(*one, *other)
                assert _reaches(one[0].namespace("node-1"), str(other[1].nodes[0].pods_v4[2]))


def _reaches(namespace: str, address: str) -> bool:
    """Whether what has the address refuses a connection: nothing listens there."""
    inside = f"--net={network.namespace_path(namespace)}"
    command = ["nsenter", inside, "bash", "-c", f"echo >/dev/tcp/{address}/9"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return "Connection refused" in done.stderr
