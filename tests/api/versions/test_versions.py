"""API servers of the oldest and the newest supported Kubernetes take the place of that of other tests."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sandbox.programs import binaries, obtain
from sandbox.programs.binaries import Program
from sandbox.progress import Progress
from tests.support.commandline import ROOT
from windowbox.versions import SUPPORTED

VERSIONS = ("1.33.13", "1.37.2")
SHOWN = (
    "e2e/test_flows.py::test_a_record_costs_finalizer_and_status_writes",
    "e2e/test_flows.py::test_a_deleted_record_goes_from_the_server_first",
    "api/loadbalancer/test_services.py::test_each_of_many_healthy_services_has_two_events",
    "api/webhooks/test_admit.py::test_a_deployment_is_changed_before_it_is_stored",
    "api/infrastructure/test_infrastructure.py::test_the_contract_example_has_its_status_and_effects",
    "api/chart/test_chart.py::test_the_api_server_takes_every_manifest",
)
"""A record, Services, a webhook, an Infrastructure, and the manifests of the chart."""


@pytest.mark.long
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_oldest_and_newest_api_servers_serve_windowbox(version: str) -> None:
    program = _program(version)
    path = obtain.another(program, Progress(print))
    assert binaries.text(binaries.version_of(program, path) or ()) == version
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "LONG"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *(f"tests/{one}" for one in SHOWN)],
        cwd=ROOT, env={**own, binaries.setting(program): str(path)},
        capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:]
    assert "skipped" not in done.stdout


def test_the_versions_are_the_ends_of_the_supported_range() -> None:
    known = SUPPORTED["Kubernetes"]
    assert [_program(one).oldest for one in VERSIONS] == [known.oldest, known.newest]


def test_the_shown_tests_exist() -> None:
    for file, _, name in (one.partition("::") for one in SHOWN):
        assert f"def {name}(" in (ROOT / "tests" / file).read_text()


def _program(version: str) -> Program:
    major, minor, _ = version.split(".")
    module, package = f"kubernetes-{major}.{minor}", "k8s.io/kubernetes/cmd/kube-apiserver"
    return Program("kube-apiserver", version, (int(major), int(minor)), module=module, package=package)
