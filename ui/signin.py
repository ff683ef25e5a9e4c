"""Who signs in: a token, alone or in a kubeconfig, about which the runtime cluster is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import yaml

from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Malformed, Refused, WindowboxError
from windowbox.models.objects import mapping, mappings
from windowbox.models.refs import ACCESS_REVIEWS, TOKEN_REVIEWS
from windowbox.rights.rbac import PAGE

_LONGEST = 16 << 10
_DEEPEST_ALIAS = "&"


class User(NamedTuple):
    """A user as the cluster knows them."""

    name: str
    uid: str
    groups: tuple[str, ...]
    extra: Mapping[str, Any]


def token_of(text: str) -> str:
    """The token in what somebody has typed: the token itself, or a kubeconfig.

    Only a token is taken from a kubeconfig: its server, programs and files are not looked at.
    """
    text = text.strip()
    if not text:
        raise Malformed("paste a token, or a kubeconfig with a token")
    if "\n" not in text and ":" not in text:
        return text
    try:
        # Anchors could make a small text large.
        found = None if _DEEPEST_ALIAS in text else yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise Malformed("this is neither a token nor a kubeconfig") from error
    config = mapping(found)
    current = str(config.get("current-context", ""))
    context = next(
        (
            mapping(one.get("context"))
            for one in mappings(config.get("contexts"))
            if one.get("name") == current
        ),
        {},
    )
    user = next(
        (
            mapping(one.get("user"))
            for one in mappings(config.get("users"))
            if one.get("name") == context.get("user")
        ),
        {},
    )
    token = user.get("token")
    if not isinstance(token, str) or not token:
        raise Malformed(
            "the current context of this kubeconfig has no token: make one with `kubectl create token NAME`, "
            "and paste it"
        )
    return token.strip()


async def user_of(kube: Kube, token: str) -> User:
    """The user of a token. Refused if the cluster does not know it."""
    if len(token) > _LONGEST:
        raise Malformed("the token is too long")
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    status = (await kube.create(TOKEN_REVIEWS, "", asked)).status
    user = mapping(status.get("user"))
    if status.get("authenticated") is not True or not user.get("username"):
        raise Refused("the cluster does not know this token")
    groups = user.get("groups")
    return User(
        str(user["username"]), str(user.get("uid") or ""),
        tuple(map(str, groups)) if isinstance(groups, list) else (), mapping(user.get("extra")),
    )  # fmt: skip


async def may_look(kube: Kube, user: User) -> bool:
    """Whether the user may look at the page."""
    attributes = {"group": PAGE.group, "version": PAGE.version, "resource": PAGE.plural, "verb": "get"}
    asked = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user.name, "uid": user.uid, "groups": list(user.groups), "extra": dict(user.extra),
            "resourceAttributes": attributes,
        },
    }  # fmt: skip
    return (await kube.create(ACCESS_REVIEWS, "", asked)).status.get("allowed") is True


async def signed_in(kube: Kube, text: str) -> tuple[User, Callable[[], Awaitable[bool]]]:
    """The user, and how to ask later whether they still may look. Refused if they may not now."""
    token = token_of(text)
    user = await user_of(kube, token)
    if not await may_look(kube, user):
        raise Refused(
            f"{user.name} may not look at this page: bind the ClusterRole system:windowbox:ui:viewer to them"
        )

    async def still() -> bool:
        try:
            return await may_look(kube, await user_of(kube, token))
        except WindowboxError:  # who cannot be asked about may not look meanwhile
            return False

    return user, still
