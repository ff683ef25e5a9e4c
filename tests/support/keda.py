"""KEDA: its sources, its programs built from them, and an installation in Pods of a test's cluster."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from sandbox.nodes.images import Image
from sandbox.programs import binaries, obtain
from sandbox.progress import Progress
from sandbox.servers import certificates
from tests.support import release
from tests.support.worldwithnodes import NodeWorld

MODULE = "github.com/kedacore/keda/v2@v2.18.1"
SUM = "h1:h6bRt/IOxxtZpJlHSqhdH/lcInH7Z9obxg/JvWOmGAw="
NAMESPACE = "keda"
_IMAGE = "windowbox.local/keda:1"
_PROGRAMS = {"operator": "keda", "adapter": "keda-adapter"}
"""By the folder of their sources under `cmd`, what they are called in KEDA's images."""
_LEFT_OUT = ("keda-admission", "keda-admission-webhooks")
"""KEDA's own webhooks: they compare ScaledObjects with each other, and here is only one."""
_USER = "65532:65532"
_PATIENCE = 3600
_PROGRESS = Progress(print, live=False)


def sources() -> Path:
    """KEDA's sources, of exactly these bytes."""
    go = obtain.find_go("KEDA", _PROGRESS)
    done = subprocess.run(
        [go, "mod", "download", "-json", MODULE], capture_output=True, text=True, timeout=300, check=False
    )
    found = json.loads(done.stdout)
    assert found.get("Sum") == SUM, found
    return Path(found["Dir"])


def programs() -> dict[str, Path]:
    """The operator and the server of metrics. Built once: it takes minutes."""
    kept = binaries.cache() / "bin" / f"keda-{MODULE.rpartition('@v')[2]}"
    with binaries.cache_lock("keda", _PROGRESS):
        if not all((kept / name).exists() for name in _PROGRAMS):
            kept.mkdir(parents=True, exist_ok=True)
            done = subprocess.run(
                [
                    obtain.find_go("KEDA", _PROGRESS), "build", "-trimpath", "-ldflags=-s -w",
                    f"-o={kept}{os.sep}",
                    *(f"./cmd/{name}" for name in _PROGRAMS),
                ],
                cwd=sources(), env={**os.environ, "CGO_ENABLED": "0"}, timeout=_PATIENCE,
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr[-2000:]
    return {called: kept / name for name, called in _PROGRAMS.items()}


def install(world: NodeWorld, archive: Path, aliases: dict[str, str]) -> None:
    """Run KEDA's own manifests on the nodes. There is no cluster DNS, but `aliases`."""
    image = Image(_IMAGE, dict(programs()), folders=("tmp",), user=_USER)
    release.bring_image(world, archive, image)
    operator = release.service_address(world, 60)
    names = {operator: f"keda-operator.{NAMESPACE}.svc.cluster.local", **aliases}
    written = yaml.safe_dump_all(_ours(_manifests(world), operator, names))
    world.kubectl("apply", "--server-side", "--filename=-", stdin=written)
    for deployment in ("keda-operator", "keda-metrics-apiserver"):
        world.kubectl(
            "wait", f"deployment/{deployment}", f"--namespace={NAMESPACE}", "--for=condition=Available",
            "--timeout=300s", patience=310,
        )  # fmt: skip
    world.kubectl(
        "wait", "apiservice/v1beta1.external.metrics.k8s.io", "--for=condition=Available", "--timeout=120s",
        patience=130,
    )  # fmt: skip


def front_proxy(folder: Path) -> tuple[str, ...]:
    """Arguments with which an API server passes requests on to KEDA's: who asks is in headers."""
    ca, name = certificates.authority(folder / "front-proxy"), "front-proxy-client"
    client = certificates.client(ca, ca.certificate.parent, name)
    return (
        f"--requestheader-client-ca-file={ca.certificate}",
        f"--requestheader-allowed-names={name}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={client.certificate}",
        f"--proxy-client-key-file={client.key}",
    )


def _manifests(world: NodeWorld) -> list[dict[str, Any]]:
    rendered = world.kubectl("kustomize", str(sources() / "config" / "default"))
    found = [one for one in yaml.safe_load_all(rendered) if one["metadata"]["name"] not in _LEFT_OUT]
    # A namespace must be there before what is in it.
    return sorted(found, key=lambda one: one["kind"] not in ("Namespace", "CustomResourceDefinition"))


def _ours(
    manifests: list[dict[str, Any]], operator: str, names: dict[str, str]
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """With our image, and with addresses instead of names."""
    for one in manifests:
        if one["kind"] == "Deployment":
            pod = one["spec"]["template"]["spec"]
            pod["hostAliases"] = [{"ip": ip, "hostnames": [name]} for ip, name in names.items()]
            [container] = pod["containers"]
            container |= {"image": _IMAGE, "imagePullPolicy": "Never"}
            if one["metadata"]["name"] == "keda-operator":
                container["args"].append("--enable-webhook-patching=false")
        elif (one["kind"], one["metadata"]["name"]) == ("Service", "keda-operator"):
            one["spec"]["clusterIP"] = operator
        yield one
