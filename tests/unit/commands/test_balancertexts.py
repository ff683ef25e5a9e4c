"""`windowbox lb` where several hosts share the addresses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commands.balancers import balancertexts
from commands.balancers.balancerquery import Balancer, Snapshot
from tests.support import lbobjects
from windowbox.models.refs import SERVICES, ObjectRef
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.edge.edgestatus import EdgeStatus, HostStatus
from workers.loadbalancer.edgestate import EdgeState
from workers.loadbalancer.envoy.edge import About
from workers.loadbalancer.spec.demands import demand_in


def served(name: str, host: str) -> Balancer:
    service = lbobjects.service(metadata={"name": name, "namespace": "shop", "uid": name})
    state = EdgeState(uid=name, digest="", since="2026-09-01T10:15:31Z", backends=("n1",), host=host)
    ref = ObjectRef("runtime", SERVICES.id, "shop", name)
    return Balancer(ref, service, demand_in("runtime", service, LoadBalancerSettings()), state, None, None)


def snapshot(*hosts: str) -> Snapshot:
    edges = tuple(
        HostStatus(name=host, count=1, envoys=(About("edge", 1, "1.36.0", 60),)) for host in hosts if host
    )
    balancers = [served(f"web-{number}", host) for number, host in enumerate(hosts)]
    return Snapshot(balancers, EdgeStatus(count=len(balancers), hosts=edges))


def test_the_host_of_each_address_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    found = snapshot("node-a", "node-b")
    balancertexts.print_list(found.balancers, found)
    head, *rows = capsys.readouterr().out.splitlines()
    place = head.index("HOST")
    assert [row[place:].split()[0] for row in rows[:2]] == ["node-a", "node-b"]


def test_a_host_name_is_shown_with_the_addresses_behind_it(capsys: pytest.CaptureFixture[str]) -> None:
    name = "web-0a00001112345678.elb.example.com"
    status = {"loadBalancer": {"ingress": [{"hostname": name}]}}
    service = lbobjects.service(status=status)
    state = EdgeState(uid="", digest="", since="2026-09-01T10:15:31Z", addresses=("10.0.0.17", "fd00::17"))
    one = replace(served("web", ""), service=service, edge=state)
    balancertexts.print_one(one, Snapshot([one], None), ())
    shown = capsys.readouterr().out
    assert "  address: 10.0.0.17, fd00::17\n" in shown
    assert f"  host name: {name}\n" in shown
    assert one.as_json()["hostname"] == name
    assert replace(one, edge=None).addresses == ("10.0.0.17",), "the name contains it"


def test_a_single_host_is_not_listed(capsys: pytest.CaptureFixture[str]) -> None:
    found = snapshot("")
    balancertexts.print_list(found.balancers, found)
    assert "HOST" not in capsys.readouterr().out


def test_one_load_balancer_shows_its_host_and_the_envoy_there(capsys: pytest.CaptureFixture[str]) -> None:
    found = snapshot("node-a", "node-b")
    balancertexts.print_one(found.balancers[0], found, ())
    shown = capsys.readouterr().out
    assert ", on host node-a" in shown
    assert "Host node-a: Envoy 1.36.0 (edge, generation 1), up 1m00s, 1 load balancer" in shown
    assert "node-b" not in shown
