"""What `windowbox shoot status` shows while API servers are away."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from sandbox import roles
from sandbox.servers import certificates, kubeconfigs
from sandbox.shoots import observing, records
from sandbox.shoots.creation import Sandbox
from sandbox.shoots.records import Shoot
from windowbox.errors import Unreachable


def test_a_sandbox_without_api_is_not_empty(tmp_path: Path) -> None:
    ca = certificates.authority(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"https://127.0.0.1:{closed.getsockname()[1]}"
    config = kubeconfigs.text(url, ca, certificates.client(ca, tmp_path, "operator"))
    shoot = Shoot(name="small", ports={})
    records.folder(tmp_path, shoot.name).mkdir(parents=True)
    for path in (roles.kubeconfig(tmp_path, "operator"), records.kubeconfig(tmp_path, shoot.name)):
        path.write_text(config)
    with pytest.raises(Unreachable, match=url):
        observing.observe(Sandbox(tmp_path, lambda: None), shoot, None)
