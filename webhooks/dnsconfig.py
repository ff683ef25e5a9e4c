"""DNS of machines and of Pods that ask for names of Shoots, for Gardener before v1.138."""

from __future__ import annotations

from webhooks.review import Context, Lookup, Review, about
from webhooks.shapes import namespace, part, put
from webhooks.webhook import Webhook
from windowbox.models.objects import Json, Object
from windowbox.models.refs import SERVICES
from windowbox.models.webhooks import DNS_CONFIG

_SERVER = "gardener-extension-provider-local-coredns"
_TO_SERVER = f"networking.resources.gardener.cloud/to-{_SERVER}-coredns"
_ALLOWED = dict.fromkeys(
    # These are ports of the container, not of its Service.
    ("networking.gardener.cloud/to-istio-ingressgateway", f"{_TO_SERVER}-tcp-9053", f"{_TO_SERVER}-udp-9053"),
    "allowed",
)
_TO_INGRESSES = "networking.resources.gardener.cloud/to-all-istio-ingresses-istio-ingressgateway-tcp-9443"
_IN_POD: tuple[str, ...] = ()
_IN_TEMPLATE = ("spec", "template")


def lookup(review: Review) -> Lookup | None:
    return None if _is_left_alone(review) else Lookup(SERVICES, _SERVER, "coredns")


def act(review: Review, context: Context) -> Json | None:
    if _is_left_alone(review):
        return None
    service = context.looked_up()
    with about(f"Service {_SERVER}/coredns"):
        servers = part(service, "spec").get("clusterIPs") or []
    domain = "svc.cluster.local"
    config = {
        "nameservers": servers,
        "searches": [f"{namespace(review)}.{domain}", domain, "cluster.local"],
        "options": [{"name": "ndots", "value": "5"}],
    }
    path = _IN_POD if review.kind == "Pod" else _IN_TEMPLATE
    changed = put(review.object, config, *path, "spec", "dnsConfig")
    changed = put(changed, "None", *path, "spec", "dnsPolicy")
    labels = {**part(changed, *path, "metadata", "labels"), **_ALLOWED}
    if review.kind == "Pod" and _is_machine(labels):
        labels[_TO_INGRESSES] = "allowed"
    return put(changed, labels, *path, "metadata", "labels")


def _is_left_alone(review: Review) -> bool:
    """Specs of Pods cannot be changed; those of the prober get theirs from its Deployment."""
    if review.kind != "Pod":
        return False
    labels = Object(review.object).labels
    return review.old_object is not None or labels.get("app") == "dependency-watchdog-prober"


def _is_machine(labels: Json) -> bool:
    return labels.get("app") == "machine" and labels.get("machine-provider") == "local"


WEBHOOK = Webhook(DNS_CONFIG, act, lookup)
