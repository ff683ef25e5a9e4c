"""A machine executes its user data when it boots: files, units, and what fails."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.shoots import consoles, creation, waiting
from tests.host.machines import handmade
from tests.host.machines.conftest import ShootWorld

UNITS = r"""#!/bin/bash
set -e
cat > /etc/systemd/system/once.service << 'EOF'
[Service]
Type=oneshot
RemainAfterExit=yes
Environment="WORD=two words" OTHER=1
ExecStartPre=-/bin/false
ExecStart=/bin/sh -c 'echo "$$1" > /once' sh "${WORD} ${OTHER}"
EOF
cat > /etc/systemd/system/again.service << 'EOF'
[Service]
ExecStart=/bin/sh -c "echo try >> /tries; \
    test $(wc -l < /tries) -ge 3 && exec sleep infinity"
Restart=on-failure
RestartSec=10ms
[Install]
WantedBy=multi-user.target
EOF
systemctl daemon-reload
systemctl restart once.service
systemctl enable again && systemctl restart --no-block again
test "$(cat /once)" = "two words 1"
until [ "$(wc -l < /tries)" = 3 ]; do sleep 0.05; done
until systemctl is-active again; do sleep 0.05; done
systemctl stop again
! systemctl is-active again
echo all is well
exit 7
"""


def test_failing_user_data_is_reported(world: ShootWorld) -> None:
    """Its exit code and last lines, where whoever made the machine looks, and on the console."""
    handmade.make(world, "fails", UNITS)
    pods = world.pods()
    ended = waiting.until(
        world.sandbox.api, pods, "machine-fails", lambda pod: bool(termination(pod)), "it runs", patience=90
    )
    handmade.remove(world, "fails")
    reported = termination(ended)
    assert reported["exitCode"] == 7
    assert reported["message"].startswith("user data ended with exit code 7\n")
    assert reported["message"].endswith("all is well\n")
    waiting.until_gone(world.sandbox.api, pods, "machine-fails", "it is not gone", patience=60)
    assert "userdata: all is well" in consoles.lines(world.sandbox.folder / "machines", "fails")


SLOW = r"""#!/bin/bash
mkdir -p /etc/systemd/system/containerd.service.d
cat > /etc/systemd/system/containerd.service.d/slow.conf << 'EOF'
[Service]
ExecStartPost=/bin/sh -c "sleep 10; echo the images are late"
EOF
systemctl restart --no-block containerd.service
"""


@pytest.mark.long  # tests/servers/sandbox/test_slow_containerd.py
@pytest.mark.slow
def test_a_node_is_ready_when_it_has_its_images(world: ShootWorld) -> None:
    """Until then a Pod's sandbox fails, and the kubelet tries again only twelve seconds later."""
    handmade.of_own_class(world, "slow", lambda data: SLOW.encode() + data)
    machines = creation.machines_path(world.shoot)
    waiting.until(world.sandbox.api, machines, "slow", creation.is_running, "it does not run", patience=120)
    said = list(consoles.lines(world.sandbox.folder / "machines", "slow"))
    late = said.index("containerd: the images are late")
    assert late < next(n for n, line in enumerate(said) if "Pods get addresses of" in line)
    handmade.forget(world, ["slow"])


def termination(pod: dict[str, Any]) -> dict[str, Any]:
    """How the container of the machine ended, if it has."""
    for container in pod["status"].get("containerStatuses") or []:
        for state in (container["state"], container.get("lastState") or {}):
            if found := state.get("terminated"):
                return dict(found)
    return {}
