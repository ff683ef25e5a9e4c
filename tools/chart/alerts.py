"""The alerts of the chart's PrometheusRule. Each names its section of docs/alerts.md."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Alert:
    name: str
    expression: str
    lasting: str
    summary: str
    remedy: str
    severity: str = "warning"
    role: str = ""
    """The role that has to be enabled in the chart for this alert."""


_STARTED = "windowbox_process_started_seconds"


def _absent(*roles: str) -> str:
    return " or ".join(
        f'label_replace(absent({_STARTED}{{pod=~".+-{role}-.+"}}), "role", "{role}", "", "")'
        for role in roles
    )


ALERTS = (
    Alert(
        "WindowboxRoleDown",
        _absent("watch", "work", "patch"),
        "5m",
        "No Pod of role {{ $labels.role }} exposes metrics",
        "`kubectl -n windowbox-system get pods` shows whether they run, "
        "`kubectl -n windowbox-system logs POD` why they end",
        "critical",
    ),
    Alert(
        "WindowboxAdmitDown",
        _absent("admit"),
        "5m",
        "No Pod serves webhooks: API servers refuse the kinds that they concern",
        "`kubectl -n windowbox-system get pods` shows whether they run, "
        "`kubectl -n windowbox-system logs POD` why they end",
        "critical",
        role="admit",
    ),
    Alert(
        "WindowboxEdgeDown",
        _absent("edge"),
        "5m",
        "No Pod of role edge exposes metrics: load balancers may not serve",
        "`kubectl -n windowbox-system get pods` shows whether it runs, "
        "`kubectl -n windowbox-system logs POD` why it ends",
        "critical",
        role="edge",
    ),
    Alert(
        "WindowboxObjectsFillUp",
        "max(windowbox_objects_bytes) / max(windowbox_objects_limit_bytes) > 0.8",
        "15m",
        "OBJECTS holds four fifths of what it may",
        "Enlarge the volume ([how](upgrade.md#volumes-of-nats)), then raise `settings.objects.size`; "
        "or lower `settings.objects.versions`",
    ),
    Alert(
        "WindowboxWishesWaitTooLong",
        "max by (pool) (windowbox_queue_oldest_seconds) > 300",
        "5m",
        "The oldest wish of pool {{ $labels.pool }} has waited for more than five minutes",
        "`windowbox top` shows whether workers are busy or missing, `windowbox trace` why a wish waits",
    ),
    Alert(
        "WindowboxItemsQuarantined",
        "sum by (pool) (increase(windowbox_quarantined_total[15m])) > 0",
        "0m",
        "Pool {{ $labels.pool }} has quarantined an object that ended its workers",
        "The object has an error in its status, and an Event; report it, with `windowbox record`",
    ),
    Alert(
        "WindowboxNameServerAway",
        "min by (zone) (windowbox_dns_connected) == 0",
        "5m",
        "No name server of zone {{ $labels.zone }} is reached",
        "`kubectl exec --namespace windowbox-system deploy/windowbox-work-all -- windowbox doctor "
        "--settings /etc/windowbox/settings/settings.yaml` asks each; check its process, its port, and "
        "NetworkPolicies",
        "critical",
    ),
    Alert(
        "WindowboxZoneRefusesUpdates",
        "max by (zone) (windowbox_dns_breaker_open) == 1",
        "5m",
        "Zone {{ $labels.zone }} refuses every update",
        "The key's name, algorithm or secret differ from the server's, or the zone accepts no updates",
        "critical",
    ),
    Alert(
        "WindowboxAddressesUsedUp",
        "max by (range, family) (windowbox_addresses_used / windowbox_addresses_total) >= 1",
        "5m",
        "Range {{ $labels.range }} has no {{ $labels.family }} address left: new Services wait",
        "Add a range to `loadbalancer.ranges`, for all workers and the edge",
    ),
    Alert(
        "WindowboxWritesFail",
        'sum(rate(windowbox_patches_total{result="failed"}[5m])) > 1',
        "10m",
        "More than one write of status per second fails",
        "The patchers' logs name the reason: rights (`kubectl auth can-i --list --as "
        "system:serviceaccount:windowbox-system:windowbox-patch`), or a busy API server",
    ),
    Alert(
        "WindowboxLoopBlocked",
        "histogram_quantile(0.99, sum by (le) (rate(windowbox_loop_lag_seconds_bucket[5m]))) > 1",
        "10m",
        "An event loop comes a second late",
        "The log names the object and the code. Add CPU, or processes",
    ),
)


_LABEL = re.compile(r"\{\{ \$labels\.(\w+) \}\}")
_HEAD = """# Alerts

An alert of the chart's PrometheusRule fires: what does it mean, and what should I do? For operators;
`make generate` writes this page.

The chart's value `operator: {enabled: true}` adds a Pod for `windowbox top`, `trace` and `record`:
`kubectl exec --namespace windowbox-system --tty --stdin deploy/windowbox-operator -- windowbox top`.

"""


def groups() -> dict[str, Any]:
    """The rules for Prometheus: of all installations, and of roles that need not be enabled."""
    return {
        "groups": [
            {
                "name": f"windowbox-{role}" if role else "windowbox",
                "rules": [
                    {
                        "alert": one.name,
                        "expr": one.expression,
                        "for": one.lasting,
                        "labels": {"severity": one.severity},
                        "annotations": {
                            "summary": one.summary,
                            "runbook": f"docs/alerts.md#{one.name.lower()}",
                        },
                    }
                    for one in ALERTS
                    if one.role == role
                ],
            }
            for role in ("", "admit", "edge")
        ]
    }


def page() -> str:
    """docs/alerts.md."""
    sections = []
    for one in ALERTS:
        # In a summary, a label stands for its value: on the page it is written in capitals.
        summary = _LABEL.sub(lambda label: label[1].upper(), one.summary)
        sections.append(f"## {one.name}\n\n{summary}. {one.remedy}.\n")
    return _HEAD + "\n".join(sections)
