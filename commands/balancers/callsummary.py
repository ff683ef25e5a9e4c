"""Summaries of the recorded calls of Service runs, for `trace`."""

from __future__ import annotations

from typing import Any

from bus.messages import Call

_SILENT = ("version",)
"""Requests that `trace` does not show."""


def summary(call: Call) -> str | None:
    """One line; empty for calls that are not shown, None for calls of other kinds."""
    match call.door, call.request:
        case "addresses", {"take": dict()}:
            answer = call.answer or {}
            addresses = ", ".join(str(address) for address in (answer.get("addresses") or {}).values())
            return f"addresses: {addresses}" if addresses else f"addresses: none: {answer.get('note', '')}"
        case "addresses", {"keep": _}:
            return "addresses: kept for a while, should it become a load balancer again"
        case "addresses", dict(asked):
            doing = next(iter(asked), "")
            freed = call.answer if isinstance(call.answer, list) else []
            return f"addresses: gave back {', '.join(freed)}" if freed and doing not in _SILENT else ""
        case "edge", _:
            state = call.answer
            if not state:
                return "edge: does not carry it yet"
            problems = (state.get("problems") or {}).items()
            backends = ", ".join(state.get("backends") or ()) or state.get("lacking") or "none"
            parts = [f"edge: as of {state.get('since', '')[11:23]}, backends {backends}"]
            if problems:
                parts.append("; ".join(f"{place}: {why}" for place, why in sorted(problems)))
            return "; ".join(parts)
        case "gone", _:
            return "API: is gone" if call.answer else "API: is still there"
        case "remind", _:
            return "has the last report written again"
        case "forget", _:
            return ""
    return None


def status(patch: dict[str, Any]) -> str | None:
    """A one-line summary of a status; None if it is not that of a Service."""
    if "lastOperation" in patch or not patch.keys() & {"loadBalancer", "conditions"}:
        return None
    parts = []
    if "loadBalancer" in patch:
        entries = []
        for entry in (patch["loadBalancer"] or {}).get("ingress") or []:
            ports = ", ".join(
                f"{port['port']}/{port['protocol']}" + (f" ({port['error']})" if port.get("error") else "")
                for port in entry.get("ports") or ()
            )
            entries.append(f"{entry.get('ip')} {ports}")
        parts.append("; ".join(entries) or "no address")
    for condition in patch.get("conditions") or []:
        if condition.get("type") == "LoadBalancerServing":
            message = f" ({condition['message']})" if condition.get("message") else ""
            parts.append(f"{condition['type']} {condition['status']}{message}")
    return ", ".join(parts)


def events(report: dict[str, Any]) -> list[str]:
    """The Events of a report."""
    return [f"event: {event['reason']}: {event['note']}" for event in report.get("events", ())]
