"""Grafana's dashboards of the chart, from a short description."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Panel:
    title: str
    expression: str
    legend: str = ""
    unit: str = "short"


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}[5m]))"


def _slowest(metric: str, by: str) -> str:
    return f"histogram_quantile(0.99, sum by (le, {by}) (rate({metric}_bucket[5m])))"


DASHBOARDS: dict[str, tuple[Panel, ...]] = {
    "pools": (
        Panel("Items waiting", "max by (pool) (windowbox_queue_waiting)", "{{pool}}"),
        Panel("Oldest wish", "max by (pool) (windowbox_queue_oldest_seconds)", "{{pool}}", "s"),
        Panel("Runs", _rate("windowbox_run_seconds_count", "pool, outcome"), "{{pool}} {{outcome}}", "ops"),
        Panel("Runs, 99 %", _slowest("windowbox_run_seconds", "pool"), "{{pool}}", "s"),
        Panel("Items being reconciled", "sum by (pool) (windowbox_in_flight)", "{{pool}}"),
        Panel("Quarantined", "sum by (pool) (increase(windowbox_quarantined_total[15m]))", "{{pool}}"),
    ),
    "bus": (
        Panel("Changes", _rate("windowbox_events_seen_total", "kind"), "{{kind}}", "ops"),
        Panel("From event to bus, 99 %", _slowest("windowbox_watch_lag_seconds", "kind"), "{{kind}}", "s"),
        Panel("From wish to run, 99 %", _slowest("windowbox_bus_latency_seconds", "pool"), "{{pool}}", "s"),
        Panel("Event loops, 99 %", _slowest("windowbox_loop_lag_seconds", "pod"), "{{pod}}", "s"),
        Panel("Swept", "sum by (pool) (increase(windowbox_swept_total[15m]))", "{{pool}}"),
    ),
    "records": (
        Panel("Messages", _rate("windowbox_dns_messages_total", "zone"), "{{zone}}", "ops"),
        Panel("Changes", _rate("windowbox_dns_rrsets_total", "zone"), "{{zone}}", "ops"),
        Panel("Changes waiting", "max by (zone) (windowbox_dns_waiting)", "{{zone}}"),
        Panel("Servers reached", "min by (zone) (windowbox_dns_connected)", "{{zone}}"),
    ),
    "balancers": (
        Panel("Load balancers", "max(windowbox_load_balancers)"),
        Panel("Addresses used", "max by (range, family) (windowbox_addresses_used)", "{{range}} {{family}}"),
        Panel("Addresses", "max by (range, family) (windowbox_addresses_total)", "{{range}} {{family}}"),
    ),
    "writes": (
        Panel("Writes", _rate("windowbox_patches_total", "kind, result"), "{{kind}} {{result}}", "ops"),
        Panel("Reports too late", "sum by (pool) (increase(windowbox_superseded_total[15m]))", "{{pool}}"),
    ),
    "webhooks": (
        Panel("Reviews", _rate("windowbox_reviews_total", "webhook, outcome"), "{{webhook}} {{outcome}}"),
        Panel("Reviews, 99 %", _slowest("windowbox_review_seconds", "webhook"), "{{webhook}}", "s"),
        Panel("Not in the journal", "sum(increase(windowbox_reviews_unnoted_total[15m]))"),
    ),
}  # fmt: skip


def text(name: str) -> str:
    """A dashboard as Grafana imports it."""
    source = {"type": "prometheus", "uid": "${source}"}
    panels = [
        {
            "id": number + 1,
            "type": "timeseries",
            "title": panel.title,
            "datasource": source,
            "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
            "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
            "targets": [
                {"refId": "A", "datasource": source, "expr": panel.expression, "legendFormat": panel.legend}
            ],
        }
        for number, panel in enumerate(DASHBOARDS[name])
    ]
    dashboard = {
        "title": f"windowbox: {name}",
        "uid": f"windowbox-{name}",
        "tags": ["windowbox"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [{"name": "source", "type": "datasource", "query": "prometheus"}]},
        "panels": panels,
    }
    return json.dumps(dashboard, indent=1) + "\n"
