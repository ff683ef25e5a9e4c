"""Load balancers, by pure functions."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest

from bus import subjects
from commands.balancers.balancerquery import Balancer, Snapshot
from tests.support import lbobjects
from tests.support.hostile import values
from tests.support.pages import record
from ui.mirror import Pointer, pointer
from ui.rates import Meter
from ui.rendering import Renderer
from ui.views import balancer, balancers
from ui.views.balancers import Balancers, Pointing
from ui.views.table import VIEWS
from windowbox.errors import Missing
from windowbox.models.objects import Object
from windowbox.models.refs import SERVICES, ObjectRef
from windowbox.settings.lbsettings import LoadBalancerSettings
from workers.loadbalancer.edge.edgestatus import EdgeStatus, ListenerStatus, LoadBalancerStatus, RangeStatus
from workers.loadbalancer.edgestate import EdgeState
from workers.loadbalancer.envoy.admin import Health
from workers.loadbalancer.spec.demands import demand_in

NOW = 1_000_000.0
ADDRESS = "10.0.0.17"


def served(name: str, *, healthy: int = 1, sent: int = 0, edge: bool = True) -> Balancer:
    service = lbobjects.service(
        metadata={"name": name, "namespace": "shop", "uid": name},
        status={"loadBalancer": {"ingress": [{"ip": ADDRESS}]}},
    )
    state = EdgeState(uid=name, digest="", since="1970-01-12T13:00:00Z", backends=("n1",)) if edge else None
    ref = ObjectRef("runtime", SERVICES.id, "shop", name)
    ends = (
        Health("n1", "fd00::2", 80, False, ("active_hc_timeout",)), Health("n0", "10.0.0.2", 80, True),
    )  # fmt: skip
    place = ListenerStatus(
        address=ADDRESS, port=80, protocol="TCP", backends=ends, open=3, total=9, sent=sent
    )
    envoy = LoadBalancerStatus(
        key=subjects.key(ref), backends=2, healthy=healthy, open=3, total=9, sent=sent, places=(place,)
    )
    demand = demand_in("runtime", service, LoadBalancerSettings())
    return Balancer(ref, service, demand, state, envoy if edge else None, None)


def snapshot(*found: Balancer) -> Snapshot:
    usage = RangeStatus(range="10.0.0.0/24", family="IPv4", used=3, total=254)
    return Snapshot(list(found), EdgeStatus(count=len(found), ranges=(usage,)))


def pointing(**named: str) -> Pointing:
    """DNSRecords, and where each points to."""
    found = [(record(name), Pointer(f"{name}.test", "A", (target,))) for name, target in named.items()]
    return lambda target: (one for one in found if target in one[1].targets)


def model(*found: Balancer, names: Pointing | None = None, meter: Meter | None = None) -> Balancers:
    return balancers.model(snapshot(*found), names or pointing(), meter or Meter(), NOW)


def test_those_that_do_not_serve_come_first() -> None:
    made = model(served("a"), served("b", healthy=0), served("c", edge=False))
    assert [(one.ref.name, one.state, one.tone) for one in made.rows] == [
        ("b", "not served", "bad"), ("c", "waiting", "late"), ("a", "serving", "good")
    ]  # fmt: skip
    assert made.states == (("not served", 1), ("waiting", 1), ("serving", 1))
    assert made.rows[0].why == "none of its backends is healthy: `windowbox lb show` shows why"
    assert (made.rows[1].backends, made.rows[1].flow, made.rows[1].since) == (None, None, 0)


def test_what_passes_is_known_from_the_second_look_on() -> None:
    meter = Meter()
    [first] = balancers.model(snapshot(served("a")), pointing(), meter, NOW).rows
    [second] = balancers.model(snapshot(served("a", sent=5000)), pointing(), meter, NOW + 2).rows
    assert first.flow == balancers.Flow(3, 9, None, None, None)
    assert second.flow == balancers.Flow(3, 9, 0, 0, 2500)


def test_names_that_lead_to_an_address_are_found() -> None:
    [row] = model(served("a"), names=pointing(www=ADDRESS, other="10.0.0.18")).rows
    assert [(one.pointer.name, one.target) for one in row.records] == [("www.test", ADDRESS)]


@pytest.mark.parametrize(
    ("spec", "targets"),
    [
        ({"recordType": "A", "values": ["10.0.0.1", "10.0.0.1"]}, ("10.0.0.1",)),
        ({"recordType": "CNAME", "values": ["lb.test."]}, ("lb.test",)),
        ({"recordType": "TXT", "values": ["10.0.0.1"]}, None),
        ({"recordType": "A", "values": "10.0.0.1"}, None),
        ({"recordType": ["A"], "values": [{}]}, None),
    ],
)
def test_a_record_points_to_its_addresses(spec: object, targets: tuple[str, ...] | None) -> None:
    found = pointer(record("a"), Object({"spec": spec}))
    assert (found and found.targets) == targets


def test_without_an_edge_the_page_says_why_there_are_no_figures() -> None:
    one = replace(served("a"), envoy=None)
    assert (
        "no worker holds the lease of the edge"
        in balancers.model(Snapshot([one], None), pointing(), Meter(), NOW).missing
    )
    assert balancers.model(Snapshot([], None), pointing(), Meter(), NOW).missing == ""


def test_each_backend_is_told_with_its_reason_and_the_sick_come_first() -> None:
    one = served("a")
    found = balancer.model(snapshot(one), one.ref, (), pointing(), Meter(), NOW)
    [place] = found.places
    assert (place.address, place.healthy, found.unserved) == (f"{ADDRESS}:80/TCP", 1, "")
    assert [(end.address, end.healthy, end.why) for end in place.backends] == [
        ("[fd00::2]:80", False, "its health check is not answered"), ("10.0.0.2:80", True, "")
    ]  # fmt: skip


def test_a_service_that_is_no_load_balancer_is_missing() -> None:
    with pytest.raises(Missing):
        balancer.model(Snapshot([], None), served("a").ref, (), pointing(), Meter(), NOW)


@pytest.mark.parametrize("text", values.TEXTS)
def test_hostile_texts_are_shown_and_nothing_else(text: str) -> None:
    name = text.encode(errors="replace").decode()  # half of a character cannot come over the bus
    hostile = replace(
        served("a", healthy=0), ref=ObjectRef(name, SERVICES.id, name, name),
        edge=EdgeState.model_construct(
            uid="", digest="", since=text, problems={text: text}, lacking=text, backends=(text,), host=text,
            addresses=(text,),
        ),
    )  # fmt: skip

    def names(_: str) -> list[tuple[ObjectRef, Pointer]]:
        return [(record(text, text), Pointer(text, text, (text,)))]

    renderer = Renderer(VIEWS, time.time)
    found = snapshot(hostile)
    every = renderer.view(balancers.VIEW, {}, {"model": balancers.model(found, names, Meter(), NOW)})
    params = {"cluster": name, "namespace": name, "name": name}
    shown = balancer.model(found, hostile.ref, (), names, Meter(), NOW)
    for html in (every, renderer.view(balancer.VIEW, params, {"model": shown})):
        html.encode()
        assert not re.search(r"<script|\u202e|\u2028|\x1b|\x00", html)
