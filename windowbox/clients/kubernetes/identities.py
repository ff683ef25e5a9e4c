"""Identities of clusters. What a server reports about itself is no proof."""

from __future__ import annotations

import hashlib
from urllib.parse import urlsplit

from windowbox.clients.kubernetes import kubeconfigs
from windowbox.clients.kubernetes.apiresponses import UNAUTHENTICATED
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Missing, PermanentError
from windowbox.models.refs import NAMESPACES, provider_cluster


def provider(opened: Kube) -> str:
    """The id on the bus of the cluster that a Secret leads to.

    It derives from the server's address and its certificate authority. Kubeconfigs without one are refused.
    """
    assert opened.trust is not None
    return provider_cluster(hashlib.sha256(f"{opened.trust} {_address(opened)}".encode()).hexdigest())


async def same(one: Kube, other: Kube) -> bool:
    """Whether two kubeconfigs lead to the same cluster. False if that is unknown."""
    if one.trust is None or one.trust != other.trust:
        return False
    if _address(one) == _address(other):
        return True
    # Both have the same private authority, so their uids can be trusted.
    if one.trust == kubeconfigs.PUBLIC:
        return False
    return bool(uid := await own_uid(one)) and uid == await own_uid(other)


def _address(opened: Kube) -> str:
    parts = urlsplit(opened.host)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{parts.scheme}://{parts.hostname}:{port}{parts.path}"


async def own_uid(opened: Kube) -> str:
    """The uid of the namespace kube-system, which identifies a cluster; empty if we may not read it."""
    try:
        return (await opened.get(NAMESPACES, "", "kube-system")).uid
    except Missing:
        return ""
    except PermanentError as error:
        if UNAUTHENTICATED in error.codes:
            raise
        return ""
