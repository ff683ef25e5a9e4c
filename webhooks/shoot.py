"""The configuration of kube-proxies in Shoots: they leave the host's connection tracking alone."""

from __future__ import annotations

from webhooks.configs import componentconfig
from webhooks.review import Context, Denied, Review
from webhooks.shapes import name, part, put, text
from webhooks.webhook import WITH_YAML, Webhook
from windowbox.models.objects import Json
from windowbox.models.webhooks import SHOOT

_KEY = "config.yaml"


def act(review: Review, context: Context) -> Json | None:
    data = part(review.object, "data")
    if not name(review).startswith("kube-proxy-config") or _KEY not in data:
        return None
    try:
        config = componentconfig.keep_conntrack(text(data, _KEY))
    except componentconfig.Unreadable as error:
        raise Denied(f"{_KEY} is not a KubeProxyConfiguration: {error}") from error
    return put(review.object, config, "data", _KEY)


WEBHOOK = Webhook(SHOOT, act, big=WITH_YAML)
