"""Alerts and dashboards in Prometheus itself: `promtool test rules`, of Debian's package `prometheus`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY, Histogram
from prometheus_client.metrics import MetricWrapperBase

from bus.messages import Result
from tools.chart import alerts, dashboards
from windowbox.telemetry import metrics

pytestmark = pytest.mark.long

POD = "windowbox-work-all-1"
_STARTED = "windowbox_process_started_seconds"
ROLES = ("watch", "work-all", "patch", "admit", "edge")
_UP = {f'{_STARTED}{{pod="windowbox-{role}-1-x"}}': "1x60" for role in ROLES}

FIRING: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "WindowboxRoleDown": (
        {name: values for name, values in _UP.items() if "-patch-" not in name},
        {"role": "patch"},
    ),
    **{
        f"Windowbox{role.title()}Down": (
            {name: values for name, values in _UP.items() if f"-{role}-" not in name},
            {"role": role},
        )
        for role in ("admit", "edge")
    },
    "WindowboxObjectsFillUp": (
        {"windowbox_objects_bytes": "81x60", "windowbox_objects_limit_bytes": "100x60"},
        {},
    ),
    "WindowboxWishesWaitTooLong": (
        {'windowbox_queue_oldest_seconds{pool="dnsrecord"}': "301x60"},
        {"pool": "dnsrecord"},
    ),
    "WindowboxItemsQuarantined": (
        {'windowbox_quarantined_total{pool="dnsrecord"}': "0x20 1x40"},
        {"pool": "dnsrecord"},
    ),
    "WindowboxNameServerAway": ({'windowbox_dns_connected{zone="z"}': "0x60"}, {"zone": "z"}),
    "WindowboxZoneRefusesUpdates": ({'windowbox_dns_breaker_open{zone="z"}': "1x60"}, {"zone": "z"}),
    "WindowboxAddressesUsedUp": (
        {
            'windowbox_addresses_used{range="r",family="4"}': "2x60",
            'windowbox_addresses_total{range="r",family="4"}': "2x60",
        },
        {"range": "r", "family": "4"},
    ),
    "WindowboxWritesFail": (
        {f'windowbox_patches_total{{kind="k",result="{Result.FAILED}"}}': "0+80x60"},
        {},
    ),
    "WindowboxLoopBlocked": (
        {
            'windowbox_loop_lag_seconds_bucket{le="1"}': "0x60",
            'windowbox_loop_lag_seconds_bucket{le="2"}': "0+60x60",
            'windowbox_loop_lag_seconds_bucket{le="+Inf"}': "0+60x60",
        },
        {},
    ),
}
"""Of each alert the series that have it fire after half an hour, and its labels."""


@pytest.fixture(scope="module")
def promtool() -> str:
    found = os.environ.get("WINDOWBOX_BIN_PROMTOOL") or shutil.which("promtool")
    if not found:
        pytest.skip("promtool is not installed: it comes with Debian's package prometheus")
    return found


def test_every_alert_is_tried() -> None:
    assert FIRING.keys() == {one.name for one in alerts.ALERTS}


@pytest.mark.parametrize("alert", alerts.ALERTS, ids=lambda one: one.name)
def test_an_alert_fires_and_rests(promtool: str, tmp_path: Path, alert: alerts.Alert) -> None:
    series, labels = FIRING[alert.name]
    summary = alert.summary
    for name, value in labels.items():
        summary = summary.replace(f"{{{{ $labels.{name} }}}}", value)
    fired = {
        "exp_labels": {"severity": alert.severity, **labels},
        "exp_annotations": {"summary": summary, "runbook": f"docs/alerts.md#{alert.name.lower()}"},
    }
    cases = [
        _case(series, alert_rule_test=[_expected(alert, fired)]),
        _case(_UP, alert_rule_test=[_expected(alert)]),  # without its series, or with those of health
    ]
    _check(promtool, tmp_path, cases)


@pytest.mark.parametrize("name", dashboards.DASHBOARDS)
def test_every_panel_shows_something(promtool: str, tmp_path: Path, name: str) -> None:
    series = dict(_series())
    expected = [{"labels": "{}", "value": 1}]
    asked = [
        {"expr": f"sgn(count({panel.expression}))", "eval_time": "30m", "exp_samples": expected}
        for panel in dashboards.DASHBOARDS[name]
    ]
    _check(promtool, tmp_path, [_case(series, promql_expr_test=asked)])


def _series() -> Iterator[tuple[str, str]]:
    """All our metrics as a process tells them, with the label that Prometheus adds."""
    for metric in vars(metrics).values():
        if isinstance(metric, MetricWrapperBase) and metric._labelnames:
            child = metric.labels(*("x" for _ in metric._labelnames))
            if isinstance(child, Histogram):
                child.observe(0.1)
    for family in REGISTRY.collect():
        for sample in family.samples:
            if sample.name.startswith("windowbox_") and not sample.name.endswith("_created"):
                labels = ",".join(f'{key}="{value}"' for key, value in (sample.labels | {"pod": POD}).items())
                yield f"{sample.name}{{{labels}}}", "1x60" if family.type == "gauge" else "1+1x60"


def _case(series: dict[str, str], **tests: Any) -> dict[str, Any]:
    given = [{"series": name, "values": values} for name, values in series.items()]
    return {"interval": "1m", "input_series": given, **tests}


def _expected(alert: alerts.Alert, *fired: dict[str, Any]) -> dict[str, Any]:
    return {"eval_time": "30m", "alertname": alert.name, "exp_alerts": [*fired]}


def _check(promtool: str, folder: Path, cases: list[dict[str, Any]]) -> None:
    (folder / "alerts.yaml").write_text(yaml.safe_dump(alerts.groups()))
    file = folder / "test.yaml"
    file.write_text(
        yaml.safe_dump({"rule_files": ["alerts.yaml"], "evaluation_interval": "1m", "tests": cases})
    )
    answer = subprocess.run(
        [promtool, "test", "rules", str(file)], capture_output=True, text=True, timeout=120, check=False
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
