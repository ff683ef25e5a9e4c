"""Recorded calls of runs as lines of `windowbox trace`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from bus.messages import Call
from commands.journal import ownedobjects
from commands.journal.valuechanges import ABSENT
from workers.core.lifecycle.shootfacts import is_shoot_namespace

_LONGEST = 200


def lines(call: Call) -> Iterator[str]:
    """A call with its answer or error, and the Events of a report; nothing for calls that explain nothing."""
    failed = f" ✗ {call.error['type']}: {call.error['message']}" if call.error else ""
    if call.door == "clock":
        return
    text = _text(call)
    if text or failed:
        yield (text or call.door) + failed
    if call.door == "report" and not failed:
        for event in call.request.get("events", ()):
            yield f"event: {event['reason']}: {event['note']}"


def _text(call: Call) -> str:
    match call.door, call.request, call.answer:
        case "reported", _, {"sequence": int(sequence)}:
            return f"last report was INTENTS {sequence}" if sequence else ""
        case "shoot", _, {"facts": facts, "labels": labels}:
            true = [name.replace("_", " ") for name, value in (facts or {}).items() if value is True]
            known = f"its Shoot: {', '.join(true) or ('as usual' if facts else 'not there')}"
            return known if is_shoot_namespace(labels or {}) else ""
        case "left", _, answer:
            return (
                "its cluster has left" if answer is True else f"its cloud: {answer['type']}" if answer else ""
            )
        case "twin", _, twin:
            return f"{twin} asks for the same name" if twin else ""
        case "dns", dict(asked), _:
            words = [asked.get(part) for part in ("do", "name", "ttl", "type")]
            return "DNS: " + " ".join(str(word) for word in [*words, *asked.get("values", ())] if word)
        case "patch", {"metadata": dict(metadata)}, _:
            compared = {k: v for k, v in metadata.items() if k not in ("uid", "resourceVersion")}
            return f"patch metadata: {short(compared)}"
        case "report", {"patch": dict(patch)}, _:
            return f"report: {_status(patch)}"
        case "status", dict(patch), _:
            return f"status: {_status(patch)}"
        case "addresses", {"take": dict()}, answer:
            addresses = ", ".join(map(str, ((answer or {}).get("addresses") or {}).values()))
            return f"addresses: {addresses or 'none: ' + (answer or {}).get('note', '')}"
        case "addresses", {"keep": _}, _:
            return "addresses: kept for a while, should it become a load balancer again"
        case "addresses", dict(asked), freed:
            gave_back = isinstance(freed, list) and freed and next(iter(asked), "") != "version"
            return f"addresses: gave back {', '.join(freed)}" if gave_back else ""
        case "edge", _, state:
            if not state:
                return "edge: does not carry it yet"
            backends = ", ".join(state.get("backends") or ()) or state.get("lacking") or "none"
            problems = sorted((state.get("problems") or {}).items())
            return f"edge: as of {state.get('since', '')[11:23]}, backends {backends}" + (
                "; " + "; ".join(f"{place}: {why}" for place, why in problems) if problems else ""
            )
        case "cloud" | "account" | "inventory", _, _:
            return _of_cloud(call)
        case "gone", _, answer:
            return "API: is gone" if answer else "API: is still there"
        case "remind" | "forget", _, _:
            return "has the last report written again" if call.door == "remind" else ""
    if (found := ownedobjects.summary(call)) is not None:
        return found
    return f"{call.door}: {short(call.request)}" if call.request is not None else ""


def _of_cloud(call: Call) -> str:
    match call.door, call.request, call.answer:
        case "cloud", {"account": str(account)}, None:  # it has failed
            return f"cloud {account.rpartition('-')[0]}"
        case "inventory", {"read": str(key)}, None if key.startswith("existing."):
            return f"inventory: has no {key}"
        case "inventory", {"write": str(key), "content": content}, True:
            done = "removed" if content is None else f"objects: {len(content.get('objects') or ())}"
            return f"inventory: {key} {done}"
        case "inventory", {"use": str(key), "by": str(by)}, True:
            return f"inventory: {key} {'used by ' + by if by else 'free'}"
    return ""


def _status(patch: dict[str, Any]) -> str:
    """A patch of a status in one line."""
    if "lastOperation" in patch or not patch.keys() & {"loadBalancer", "conditions"}:
        last = patch.get("lastOperation") or {}
        error = (patch.get("lastError") or {}).get("description")
        if not last and not error:
            return ", ".join(patch) or "as it is"
        return f"{last.get('type', '')} {last.get('state', '')}: {error or last.get('description', '')}"
    parts = []
    if "loadBalancer" in patch:
        entries = []
        for entry in (patch["loadBalancer"] or {}).get("ingress") or []:
            ports = ", ".join(
                f"{port['port']}/{port['protocol']}" + (f" ({port['error']})" if port.get("error") else "")
                for port in entry.get("ports") or ()
            )
            entries.append(f"{entry.get('hostname') or entry.get('ip')} {ports}")
        parts.append("; ".join(entries) or "no address")
    for condition in patch.get("conditions") or []:
        if condition.get("type") == "LoadBalancerServing":
            message = f" ({condition['message']})" if condition.get("message") else ""
            parts.append(f"{condition['type']} {condition['status']}{message}")
    return ", ".join(parts)


def short(value: Any) -> str:
    """A JSON value in one line of limited length."""
    if value is ABSENT:
        return "–"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
