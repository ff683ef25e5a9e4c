"""Which responses an Envoy gets, and in which order."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from tests.support.rules import rule
from windowbox.clients.xds.server import Request, Resource, Response
from workers.loadbalancer.envoy.delta import Delta, Kind, Resources
from workers.loadbalancer.tracked import Tracked

C, E, L = Kind.CLUSTERS, Kind.ENDPOINTS, Kind.LISTENERS


def resources(**versions: str) -> Resources:
    return Tracked({name: Resource(version, version.encode()) for name, version in versions.items()})


def all_of(**versions: str) -> dict[Kind, Resources]:
    """The same resources of each kind."""
    return {kind: resources(**versions) for kind in (C, E, L)}


class Envoy:
    """Accepts what it gets, and asks for the endpoints of its clusters."""

    def __init__(self, delta: Delta, **has: str) -> None:
        self.delta = delta
        self.has: dict[Kind, dict[str, str]] = {kind: dict(has) for kind in Kind}
        self.bad: dict[Kind, set[str]] = {kind: set() for kind in Kind}
        self.log: list[str] = []
        """The responses: kind, resources and removed ones."""
        delta.begin()
        for kind in (C, E, L):
            names = sorted(self.has[C]) if kind is E else ()
            delta.received(Request("", kind, versions=self.has[kind], subscribe=names))

    def run(self) -> list[str]:
        """Answer until nothing more comes."""
        while sent := list(self.delta.responses()):
            for response in sent:
                self.answer(response)
        log, self.log = self.log, []
        return log

    def answer(self, response: Response) -> None:
        kind = Kind(response.kind)
        self.note(response)
        bad = self.bad[kind] & response.resources.keys()
        good = {name: one.version for name, one in response.resources.items() if name not in bad}
        new = sorted(good.keys() - self.has[kind].keys())
        self.has[kind] |= good
        for name in response.removed:
            self.has[kind].pop(name, None)
        self.delta.received(Request("", kind, response.nonce, f"bad: {sorted(bad)}" if bad else ""))
        if kind is C:
            for name in response.removed:
                self.has[E].pop(name, None)
            if new or response.removed:
                self.ask(new, response.removed)

    def ask(self, names: Collection[str], no_more: Collection[str] = ()) -> None:
        self.delta.received(Request("", E, subscribe=names, unsubscribe=no_more))

    def note(self, response: Response) -> None:
        short = {C: "clusters", E: "endpoints", L: "listeners", Kind.RUNTIME: "runtime"}[Kind(response.kind)]
        removed = [f"-{name}" for name in sorted(response.removed)]
        self.log.append(" ".join([short, *sorted(response.resources), *removed]))


def served(wanted: Mapping[Kind, Resources], **has: str) -> tuple[Delta, Envoy]:
    delta = Delta()
    delta.want(wanted)
    return delta, Envoy(delta, **has)


@rule("LB-15-3")
def test_a_listener_comes_after_its_cluster_and_endpoints() -> None:
    delta, envoy = served(all_of())
    envoy.run()
    delta.want(all_of(web="1"))
    assert envoy.run() == ["clusters web", "endpoints web", "listeners web"]
    assert delta.settled
    assert not delta.lacks("web")
    assert delta.unproven == {"web"}


@rule("LB-15-3")
def test_a_removed_listener_goes_before_its_cluster() -> None:
    delta, envoy = served(all_of(web="1"))
    envoy.run()
    delta.want(all_of(dns="1"))
    found = envoy.run()
    assert found.index("listeners -web") < found.index("clusters -web")
    assert found.index("clusters dns") < found.index("endpoints dns") < found.index("listeners dns")
    assert found.count("clusters -web") == 1
    assert envoy.has[C] == envoy.has[E] == envoy.has[L] == {"dns": "1"}


def test_an_envoy_that_starts_gets_an_answer_also_if_there_is_nothing() -> None:
    _, envoy = served(all_of())
    assert envoy.run() == ["clusters", "listeners"]


def test_nothing_is_sent_before_it_is_known() -> None:
    delta, envoy = served({}, web="1")
    assert envoy.run() == []
    delta.want(all_of(web="1"))
    assert envoy.run() == []
    assert delta.settled


def test_nothing_is_settled_before_envoy_has_asked_and_answered() -> None:
    delta = Delta()
    delta.want(all_of())
    assert not delta.settled
    envoy = Envoy(delta, web="1")
    envoy.run()
    assert delta.settled
    delta.want({L: resources(web="1")})
    [response] = delta.responses()
    delta.received(Request("", L, "the nonce of another stream"))
    assert not delta.settled
    envoy.answer(response)
    envoy.run()
    assert delta.settled


def test_a_successor_sends_the_difference() -> None:
    _, envoy = served(all_of(web="1", dns="2", new="1"), web="1", dns="1", old="1")
    found = " ".join(envoy.run())
    assert "web" not in found
    assert "clusters dns new endpoints dns" in found
    assert envoy.has[C] == envoy.has[E] == envoy.has[L] == {"web": "1", "dns": "2", "new": "1"}


@rule("LB-15-5")
def test_a_change_of_nodes_is_a_change_of_endpoints_only() -> None:
    delta, envoy = served(all_of(web="1", dns="1"))
    envoy.run()
    delta.want({E: resources(web="2", dns="1")})
    assert delta.lacks("web")
    assert not delta.lacks("dns")
    assert envoy.run() == ["endpoints web"]
    assert not delta.lacks("web")
    assert delta.unproven == {"web", "dns"}


def test_a_cluster_that_replaces_another_gets_its_endpoints_again() -> None:
    delta, envoy = served(all_of(web="1"))
    envoy.run()
    delta.want({C: resources(web="2")})
    assert envoy.run() == ["clusters web", "endpoints web"]


def test_endpoints_on_their_way_count_for_the_cluster_before() -> None:
    delta, envoy = served(all_of(web="1"))
    envoy.run()
    delta.want({E: resources(web="2")})
    [endpoints] = delta.responses()
    delta.want({C: resources(web="2")})
    [cluster, repeated] = delta.responses()
    envoy.answer(endpoints)
    envoy.answer(cluster)
    assert delta.lacks("web")
    envoy.answer(repeated)
    assert not delta.lacks("web")
    assert envoy.run() == ["endpoints web", "clusters web", "endpoints web"]


@rule("LB-15-2")
def test_one_bad_listener_of_many_is_found_and_harms_no_other() -> None:
    many = {f"n{number}": "1" for number in range(40)}
    delta, envoy = served(all_of(**many))
    envoy.bad[L] = {"n7"}
    log = envoy.run()
    assert delta.refusal("n7") == "bad: ['n7']"
    assert [name for name in many if delta.refusal(name)] == ["n7"]
    assert envoy.has[L].keys() == many.keys() - {"n7"}
    assert len(log) < 20
    assert delta.settled
    assert envoy.run() == []
    envoy.bad[L].clear()
    assert delta.retry()
    assert delta.lacks("n7")
    assert envoy.run() == ["listeners n7"]
    assert delta.refusal("n7") is None
    assert not delta.retry()


@rule("LB-15-2")
def test_a_listener_waits_for_a_cluster_that_is_refused() -> None:
    delta, envoy = served(all_of())
    envoy.run()
    envoy.bad[C] = {"web"}
    delta.want(all_of(web="1", dns="1"))
    assert "listeners dns" in envoy.run()
    assert envoy.has[L].keys() == {"dns"}
    assert delta.refusal("web") == "bad: ['web']"
    assert not delta.lacks("web")
    envoy.bad[C].clear()
    delta.want(all_of(web="2", dns="1"))
    assert delta.refusal("web") is None
    assert envoy.run() == ["clusters web", "endpoints web", "listeners web"]


@rule("LB-15-2")
def test_a_listener_keeps_its_version_while_the_one_of_its_cluster_is_refused() -> None:
    delta, envoy = served(all_of(web="1"))
    envoy.run()
    envoy.bad[C] = {"web"}
    delta.want(all_of(web="2"))
    envoy.run()
    assert (envoy.has[C], envoy.has[L]) == ({"web": "1"}, {"web": "1"})


@rule("LB-15-2")
def test_a_refusal_is_of_one_version() -> None:
    delta, envoy = served(all_of(web="1"))
    envoy.run()
    envoy.bad[L] = {"web"}
    delta.want({L: resources(web="2")})
    [refused] = delta.responses()
    delta.want({L: resources(web="3")})
    envoy.answer(refused)
    assert delta.refusal("web") is None
    envoy.bad[L].clear()
    envoy.run()
    assert envoy.has[L] == {"web": "3"}


def test_a_listener_that_goes_makes_way_for_one_with_its_port() -> None:
    delta, envoy = served({**all_of(old="1", new="1"), L: resources(old="1")})
    envoy.run()
    delta.want({L: resources(new="1")})
    assert envoy.run() == ["listeners -old", "listeners new"]


def test_a_service_that_comes_back_gets_its_endpoints_again() -> None:
    delta, envoy = served(all_of(web="1"))
    envoy.run()
    delta.want(all_of())
    envoy.run()
    delta.want(all_of(web="1"))
    assert envoy.run() == ["clusters web", "endpoints web", "listeners web"]


def test_clusters_that_wait_for_health_checks_delay_no_others() -> None:
    delta, envoy = served(all_of())
    envoy.run()
    for number in range(3):
        wanted = {f"n{one}": "1" for one in range(number + 1)}
        delta.want(all_of(**wanted))
        [_] = delta.responses()  # Envoy has it, and answers once the cluster is ready
        envoy.ask([f"n{number}"])
        assert envoy.run() == [f"endpoints n{number}", f"listeners n{number}"]
        assert not delta.lacks(f"n{number}")
        assert delta.settled


def test_endpoints_of_nobody_are_said_to_be_missing() -> None:
    """Without an answer, a cluster that the former edge has sent would wait, and all others with it."""
    delta = Delta()
    delta.want(all_of())
    delta.begin()
    delta.received(Request("", E, subscribe=["left"]))
    [response] = delta.responses()
    assert (response.resources, list(response.removed)) == ({}, ["left"])
    delta.received(Request("", E, response.nonce))
    assert list(delta.responses()) == []
    delta.want({E: resources(left="1")})
    [response] = delta.responses()
    assert list(response.resources) == ["left"]


def test_endpoints_are_sent_before_the_last_ones_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.loadbalancer.envoy.delta._AT_ONCE", 1)
    names = {"a", "b", "c"}
    delta, envoy = served(all_of(**dict.fromkeys(names, "1")))
    envoy.run()
    delta.want({E: resources(**dict.fromkeys(names, "2"))})
    first, second = delta.responses()
    [left] = names - first.resources.keys() - second.resources.keys()
    assert not list(delta.responses()), "two are on their way"
    envoy.answer(first)
    [third] = delta.responses()
    assert third.resources.keys() == {left}
    for response in (second, third):
        envoy.answer(response)
    assert delta.settled
    assert envoy.has[E] == dict.fromkeys(names, "2")


def test_what_changes_on_its_way_waits_for_the_answer() -> None:
    delta, envoy = served(all_of(a="1"))
    envoy.run()
    delta.want({E: resources(a="2")})
    (first,) = delta.responses()
    delta.want({E: resources(a="3")})
    assert not list(delta.responses())
    envoy.answer(first)
    assert envoy.run() == ["endpoints a", "endpoints a"]
    assert envoy.has[E] == {"a": "3"}


def test_listeners_are_held_while_another_envoy_serves_them() -> None:
    delta = Delta()
    delta.held = True
    delta.want(all_of(web="1"))
    envoy = Envoy(delta)
    assert envoy.run() == ["clusters web", "listeners", "endpoints web"]
    assert delta.has_all_but_listeners()
    assert delta.settled
    delta.held = False
    assert envoy.run() == ["listeners web"]


def test_an_envoy_that_drains_keeps_all_but_its_listeners() -> None:
    _, envoy = served({L: Tracked()}, web="1", dns="1")
    assert envoy.run() == ["listeners -dns -web"]


def test_what_changes_on_the_way_is_sent_again() -> None:
    delta, envoy = served(all_of())
    envoy.run()
    delta.want(all_of(web="1"))
    [first] = delta.responses()
    delta.want(all_of(web="2"))
    envoy.answer(first)
    envoy.run()
    assert envoy.has[C] == envoy.has[E] == envoy.has[L] == {"web": "2"}
    delta.want(all_of(web="3"))
    list(delta.responses())
    delta.want(all_of())
    envoy = Envoy(delta, web="2")
    envoy.run()
    assert envoy.has[C] == envoy.has[L] == {}


def test_many_come_in_small_responses() -> None:
    delta, envoy = served(all_of(**{f"n{number}": "1" for number in range(1000)}))
    assert max(len(one.split()) for one in envoy.run()) == 257
    assert delta.settled


def test_large_ones_come_in_small_responses() -> None:
    large = Tracked({f"n{number}": Resource("1", bytes(100_000)) for number in range(6)})
    _, envoy = served({C: large, E: Tracked(), L: Tracked()})
    assert [len(one.split()) - 1 for one in envoy.run() if one.startswith("clusters")] == [2, 2, 2]
