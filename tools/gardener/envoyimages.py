"""The images with Envoy: those of Istio, and the plain one of VPNs and API servers' proxies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sandbox.nodes import images
from sandbox.nodes.images import Image
from tools.gardener import programs
from workers.loadbalancer.launcher.programs import packaged

_ISTIO = ("istio.io/istio", "0.0.0-20260423205519-b01690e6db7d")
_BOOTSTRAP = Path("tools/packaging/common/envoy_bootstrap.json")
_USER = "1337:1337"
_PASSWD = "root:x:0:0:root:/root:/sbin/nologin\nistio-proxy:x:1337:1337::/tmp:/sbin/nologin\n"

_MESH = """
extensionProviders:
- name: prometheus
  envoyFileAccessLog: {path: /dev/null}
"""
"""Metrics of this provider need the filter `istio.stats`; its namesake here has none to give."""
_PILOT = {
    # The ConfigMap that Gardener writes; the file with the lines above is applied after it.
    "SHARED_MESH_CONFIG": "istio",
    "PILOT_ENABLE_METADATA_EXCHANGE": "false",
    "PILOT_ENABLE_ALPN_FILTER": "false",
}
"""Leaves out the filters that Istio's own Envoy has and this one lacks. None of them routes anything."""


def pilot(name: str) -> Image:
    """istiod, whose configuration an Envoy without Istio's extensions accepts."""
    return Image(
        name,
        {
            "usr/local/bin/pilot-discovery": programs.path("pilot-discovery"),
            "etc/istio/config/mesh": _MESH,
            "etc/passwd": _PASSWD,
        },
        entrypoint=("/usr/local/bin/pilot-discovery",), folders=("tmp",), user=_USER, variables=_PILOT,
    )  # fmt: skip


def gateway(name: str) -> Image:
    """Istio's agent, which starts Envoy."""
    template = programs.source(*_ISTIO) / _BOOTSTRAP
    return Image(
        name,
        {
            **_envoy(),
            "usr/local/bin/pilot-agent": programs.path("pilot-agent"),
            "var/lib/istio/envoy/envoy_bootstrap_tmpl.json": template,
            "etc/passwd": _PASSWD,
        },
        entrypoint=("/usr/local/bin/pilot-agent",), folders=("tmp",), user=_USER,
    )  # fmt: skip


def envoy(name: str) -> Image:
    """Envoy alone."""
    passwd = "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532::/home/nonroot:/sbin/nologin\n"
    return Image(
        name, {**_envoy(), "etc/passwd": passwd}, entrypoint=("/usr/local/bin/envoy",),
        folders=("tmp", "home/nonroot"), user="65532:65532",
    )  # fmt: skip


def _envoy() -> Mapping[str, Path | str]:
    program = packaged()
    return {"usr/local/bin/envoy": program, **images.shared_libraries([program])}
