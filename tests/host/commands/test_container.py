"""What is foretold in containers of Docker happens there; their files are those of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.nodes import hostresources
from sandbox.programs import binaries
from tests.e2e import engine as engines
from tests.e2e.engine import Engine, Unable
from tests.support import servers

_ROOT = Path(__file__).parents[3]
_FOLDERS = ("/bin", "/etc", "/lib", "/lib64", "/opt", "/sbin", "/usr", sys.base_prefix, str(_ROOT))
_PRIVILEGED = (
    # As `--privileged`, which needs all capabilities: a test machine may lack some.
    *("--cap-add=NET_ADMIN", "--cap-add=SYS_ADMIN", "--cap-add=SYS_PTRACE", "--cap-add=SYSLOG"),
    *("--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined"),
    *(
        "--security-opt=systempaths=unconfined",
        "--device=/dev/kmsg",
        "--volume=/sys/fs/cgroup:/sys/fs/cgroup",
    ),
)
_VOLUME = "--volume=kept:/data"
_UP = "windowbox up > /data/said && windowbox status -o json; windowbox down > /data/said"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    if reason := engines.missing() or hostresources.impossible() or servers.missing(*hostresources.PROGRAMS):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("engine")
    try:
        with engines.engine(folder) as made:
            empty = folder / "empty.tar"
            subprocess.run(["tar", "-cf", empty, "--files-from=/dev/null"], check=True, timeout=60)
            made.docker("import", str(empty), "empty")
            yield made
    except Unable as error:
        pytest.skip(str(error))


def run(engine: Engine, script: str, *options: str) -> str:
    volumes = [f"--volume={folder}:{folder}:ro" for folder in _FOLDERS if Path(folder).exists()]
    command = script.replace("windowbox ", f"{sys.executable} -m windowbox ")
    return engine.docker(
        "run", "--rm", "--tmpfs=/tmp:exec", "--tmpfs=/run", *volumes, f"--workdir={_ROOT}",
        f"--volume={binaries.cache()}:{binaries.cache()}", f"--env=WINDOWBOX_CACHE={binaries.cache()}",
        "--env=HOME=/data/home", "--env=WINDOWBOX_HOME=/data/sandboxes", "--env=PYTHONDONTWRITEBYTECODE=1",
        "--env=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", *options,
        "empty", "sh", "-c", command,
    )  # fmt: skip


def lacking(engine: Engine, *options: str) -> str:
    """What is foretold that a load balancer in front of real Pods lacks there."""
    said = run(engine, "mkdir -p /data; windowbox doctor --before -o json || true", *options)
    return str(json.loads(said)["parts"]["balancer"])


@pytest.mark.long  # unit/forecast and test_before.py show what is foretold
def test_what_is_foretold_depends_on_volumes(engine: Engine) -> None:
    assert "which overlay is not" in lacking(engine, *_PRIVILEGED)
    assert lacking(engine, *_PRIVILEGED, _VOLUME) == ""


@pytest.mark.long  # sandboxes without nodes, and with them, are those of tests/host/simulated and machines
def test_a_plain_container_has_no_real_nodes(engine: Engine) -> None:
    assert "root with CAP_NET_ADMIN and CAP_SYS_ADMIN" in lacking(engine)
    state = json.loads(run(engine, f"mkdir /data; {_UP}"))
    assert state["options"]["nodes"] == 0


@pytest.mark.long  # as above
def test_a_privileged_container_with_a_volume_has_real_nodes(engine: Engine) -> None:
    state = json.loads(run(engine, _UP, *_PRIVILEGED, _VOLUME))
    assert state["children"]["node-2/kubelet"]["condition"] == "ready"
