"""`windowbox doctor` checks the version of the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.doctor import servers
from tests.support.servers import ControlPlane
from windowbox import versions
from windowbox.settings.settings import ClusterSettings
from windowbox.versions import Range


def test_a_supported_version_is_ok(plane: ControlPlane) -> None:
    found = servers.kubernetes(ClusterSettings(kubeconfig=plane.kubeconfig))
    assert (found.verdict, versions.problem("Kubernetes", found.said)) == ("ok", None)


def test_a_version_out_of_range_is_noted(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(versions.SUPPORTED, "Kubernetes", Range((1, 3), (1, 4)))
    found = servers.kubernetes(ClusterSettings(kubeconfig=plane.kubeconfig))
    assert found.verdict == "note"
    assert "newer than windowbox has been tried with: 1.3 to 1.4" in found.said


def test_an_unreachable_api_server_is_wrong(tmp_path: Path) -> None:
    found = servers.kubernetes(ClusterSettings(kubeconfig=tmp_path / "none"))
    assert found.verdict == "wrong"
