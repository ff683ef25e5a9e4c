"""Calls of webhooks, from the metrics of an API server."""

from __future__ import annotations

from tools.bench.requests import WebhookCalls

_NAME = "apiserver_admission_webhook_admission_duration_seconds"
_METRICS = f"""# TYPE {_NAME} histogram
{_NAME}_bucket{{name="a",operation="CREATE",rejected="false",type="admit",le="0.005"}} 3
{_NAME}_bucket{{name="a",operation="CREATE",rejected="false",type="admit",le="0.025"}} 4
{_NAME}_bucket{{name="a",operation="CREATE",rejected="false",type="admit",le="+Inf"}} 4
{_NAME}_sum{{name="a",operation="CREATE",rejected="false",type="admit"}} 0.03
{_NAME}_count{{name="a",operation="CREATE",rejected="false",type="admit"}} 4
{_NAME}_bucket{{name="b",operation="UPDATE",rejected="false",type="admit",le="0.005"}} 1
{_NAME}_sum{{name="b",operation="UPDATE",rejected="false",type="admit"}} 0.001
{_NAME}_count{{name="b",operation="UPDATE",rejected="false",type="admit"}} 1
apiserver_admission_step_admission_duration_seconds_count{{type="admit"}} 9
"""


def test_calls_of_all_webhooks_are_counted() -> None:
    found = WebhookCalls.parsed(_METRICS)
    assert found == WebhookCalls(5, 0.031, 4)
    since = found.since(WebhookCalls(1, 0.001, 1))
    assert (since.average_ms, since.short_percent) == (7.5, 75.0)
    assert WebhookCalls().average_ms == WebhookCalls().short_percent == 0.0
