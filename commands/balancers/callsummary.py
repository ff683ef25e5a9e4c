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
            return _taken(call.answer or {})
        case "addresses", {"keep": _}:
            return "addresses: kept for a while, should it become a load balancer again"
        case "addresses", dict(asked):
            doing = next(iter(asked), "")
            freed = call.answer if isinstance(call.answer, list) else []
            return f"addresses: gave back {', '.join(freed)}" if freed and doing not in _SILENT else ""
        case "edge", _:
            return _edge(call.answer)
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
    lines = []
    if "loadBalancer" in patch:
        ingress = (patch["loadBalancer"] or {}).get("ingress") or []
        lines.append("; ".join(_served(entry) for entry in ingress) or "no address")
    lines += [
        f"{condition['type']} {condition['status']}"
        + (f" ({condition['message']})" if condition.get("message") else "")
        for condition in patch.get("conditions") or []
        if condition.get("type") == "LoadBalancerServing"
    ]
    return ", ".join(lines)


def events(report: dict[str, Any]) -> list[str]:
    """The Events of a report."""
    return [f"event: {event['reason']}: {event['note']}" for event in report.get("events", ())]


def _taken(answer: dict[str, Any]) -> str:
    addresses = answer.get("addresses") or {}
    if addresses:
        return "addresses: " + ", ".join(str(address) for address in addresses.values())
    return f"addresses: none: {answer.get('note', '')}"


def _edge(state: dict[str, Any] | None) -> str:
    if not state:
        return "edge: does not carry it yet"
    problems = "; ".join(f"{place}: {why}" for place, why in sorted((state.get("problems") or {}).items()))
    backends = ", ".join(state.get("backends") or ()) or state.get("lacking") or "none"
    return f"edge: as of {state.get('since', '')[11:23]}, backends {backends}" + (
        f"; {problems}" if problems else ""
    )


def _served(entry: dict[str, Any]) -> str:
    ports = ", ".join(
        f"{port['port']}/{port['protocol']}" + (f" ({port['error']})" if port.get("error") else "")
        for port in entry.get("ports") or ()
    )
    return f"{entry.get('ip')} {ports}"
