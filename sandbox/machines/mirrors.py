"""Registries whose images a machine's containerd pulls through a cache: those of Gardener's machine image.

A machine of a ManagedSeed runs what a seed runs, which comes from these registries.
"""

from __future__ import annotations

_FOLDER = "etc/containerd/certs.d"
_DOMAIN = "local.gardener.cloud:5001"
_CACHES = {
    "gcr.io": "gcr",
    "registry.k8s.io": "k8s",
    "quay.io": "quay",
    "europe-docker.pkg.dev": "europe-docker-pkg-dev",
}
"""The cache of each registry. Where there is none, containerd asks the registry itself."""


def files() -> dict[str, str]:
    """The files that tell containerd, by their paths in the image."""
    own = f"registry.{_DOMAIN}"
    found = {own: _hosts(f"http://{own}", f"http://{own}")}
    for registry, cache in _CACHES.items():
        found[registry] = _hosts(f"https://{registry}", f"http://{cache}.registry-cache.{_DOMAIN}")
    return {f"{_FOLDER}/{registry}/hosts.toml": text for registry, text in found.items()}


def _hosts(server: str, mirror: str) -> str:
    return f'server = "{server}"\n\n[host."{mirror}"]\n  capabilities = ["pull", "resolve"]\n'
