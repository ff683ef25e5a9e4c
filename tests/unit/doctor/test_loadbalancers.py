"""What `windowbox doctor` finds about load balancers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sandbox.doctor import loadbalancers
from sandbox.doctor.findings import Finding
from tests.support.cases import cases
from windowbox.settings.lbsettings import LoadBalancerSettings


def examined(*prefixes: str, **settings: Any) -> dict[str, Finding]:
    ranges = [{"prefixes": prefixes}] if prefixes else []
    asked = LoadBalancerSettings.model_validate({"ranges": ranges, **settings})
    return {finding.what: finding for finding in loadbalancers.examine(asked)}


def test_without_ranges_the_setting_is_named() -> None:
    [finding] = examined().values()
    mend = "set loadbalancer.ranges, as docs/settings.md says"
    assert (finding.verdict, finding.mend) == ("note", mend)


def test_loopback_addresses_and_the_packaged_envoy_are_fine() -> None:
    found = examined("127.68.0.0/24")
    assert found["addresses 127.68.0.0/24"].verdict == "ok"
    assert found["Envoy"].verdict == "ok"
    assert found["Envoy"].said.startswith("1.")


def test_an_envoy_that_cannot_be_started_is_wrong(tmp_path: Path) -> None:
    found = examined("127.68.0.0/24", envoy=tmp_path / "envoy")
    assert (found["Envoy"].verdict, found["Envoy"].mend) == ("wrong", "correct loadbalancer.envoy")


@cases(
    "prefix root verdict mend",
    ("root-adds-them", "192.0.2.0/27", True, "ok", ""),
    ("not-root", "192.0.2.0/27", False, "wrong", "sudo ip route add local 192.0.2.0/27 dev lo"),
    ("IPv6", "2001:db8::/123", False, "wrong", "sudo ip route add local 2001:db8::/123 dev lo"),
)
def test_addresses_that_do_not_arrive_need_routes(
    monkeypatch: pytest.MonkeyPatch, prefix: str, root: bool, verdict: str, mend: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    finding = examined(prefix)[f"addresses {prefix}"]
    assert (finding.verdict, finding.mend) == (verdict, mend)


def test_a_docker_that_does_not_answer_is_wrong(tmp_path: Path) -> None:
    found = examined("192.0.2.0/27", attachment="docker-host", docker=f"unix://{tmp_path}/docker.sock")
    assert found["Docker"].verdict == "wrong"
    assert "loadbalancer.docker" in found["Docker"].mend


def test_addresses_of_this_host_reach_no_container() -> None:
    found = examined("127.68.0.0/24", attachment="docker-routed", docker="unix:///nowhere.sock")
    assert found["addresses 127.68.0.0/24"].verdict == "wrong"
