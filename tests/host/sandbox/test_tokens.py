"""Tokens of windowbox's own processes for the API server of a sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sandbox import roles
from sandbox.supervisor import Supervisor
from windowbox.clients.kubernetes import kube
from windowbox.errors import PermanentError
from windowbox.models.refs import DNSRECORDS


def test_tokens_are_kept_for_each_user(tmp_path: Path) -> None:
    path = tmp_path / "tokens.csv"
    first = roles.kept_tokens(path, ["worker"])
    both = roles.kept_tokens(path, ["worker", "patcher"])
    assert both["worker"] == first["worker"] != both["patcher"]
    assert roles.kept_tokens(path, ["worker", "patcher"]) == both
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.asyncio(loop_scope="package")
async def test_a_role_has_its_rights_and_no_others(sandbox: Supervisor) -> None:
    kubeconfig = roles.kubeconfig(sandbox.folder, "watcher")
    assert list(yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]) == ["token"]
    async with kube.from_file(kubeconfig) as watcher:
        assert (await watcher.page(DNSRECORDS)).items == []
        with pytest.raises(PermanentError, match="cannot patch"):
            await watcher.merge(DNSRECORDS, "default", "any", {})
