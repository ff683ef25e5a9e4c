"""Hostile Services and Ingresses. The API server validates most fields, so random values would be refused."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.support.hostile import values
from workers.loadbalancer.spec import options

_OPTIONS = (
    options.ADDRESS, options.SHARE, options.PROXY_PROTOCOL, options.IDLE_TIMEOUT, options.CONNECTION_LIMIT,
    options.DRAIN, options.SOURCE_RANGES,
)  # fmt: skip
_ADDRESSES = ("10.9.8.7", "127.0.0.1", "::1", "8.8.8.8", "169.254.169.254", "fd00::1")
_LABELS = ("*", "xn--a", "1", "a-b", "a" * 63)


def service(spec: dict[str, Any], annotations: dict[str, Any], chance: Random) -> str:
    """Spoil one part of a Service, or make it large. Returns the part."""
    match chance.randrange(7):
        case 0:
            count = chance.choice([each for each in values.COUNTS if 0 < each < 2000])
            spec["ports"] = [{"name": f"p{n}", "port": n + 1, "targetPort": 8080} for n in range(count)]
            if chance.random() < 0.7:
                spec["allocateLoadBalancerNodePorts"] = False
            return f"{count} ports"
        case 1 | 2:
            count = chance.choice((*values.COUNTS, 40_000))
            spec["loadBalancerSourceRanges"] = [f"10.{n >> 8 & 255}.{n & 255}.0/24" for n in range(count)]
            return f"{count} source ranges"
        case 3:
            protocols = ("TCP", "UDP", "SCTP")
            spec["ports"] = [
                {"name": f"p{n}", "port": n + 1, "protocol": chance.choice(protocols)} for n in range(20)
            ]
            return "protocols"
        case 4:
            spec["sessionAffinity"] = "ClientIP"
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": chance.choice((1, 86400))}}
            spec["ipFamilyPolicy"] = chance.choice(("PreferDualStack", "SingleStack", "RequireDualStack"))
            return "affinity and families"
        case 5:
            spec["loadBalancerIP"] = chance.choice(values.TEXTS)
            return "address"
        case _:
            option = chance.choice(_OPTIONS)
            annotations[option] = chance.choice((*values.TEXTS, ",".join(_ADDRESSES), "10.0.0.0/8," * 20_000))
            return option


def ingress(spec: dict[str, Any], chance: Random, zone: str) -> str:
    """Spoil the hosts of an Ingress, or add many. Returns a description."""
    match chance.randrange(4):
        case 0:
            hosts = [f"h{n}.{zone}" for n in range(chance.choice((*values.COUNTS, 15_000)))]
        case 1:
            depth = chance.choice((1, 2, 3, 4, 20, 100))
            labels = [chance.choice(_LABELS[1:]) for _ in range(depth)]
            hosts = [".".join([*labels, zone])[-253:].lstrip("-.")]
        case 2:
            places = (zone, "com", "local.gardener.cloud", "inner")
            hosts = [f"{chance.choice(_LABELS)}.{where}" for where in places]
        case _:
            hosts = [zone, zone, f"*.{zone}", "", f"a.{zone}"]
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    spec["rules"] = [
        {"host": host, "http": {"paths": [path]}} if host else {"http": {"paths": [path]}} for host in hosts
    ]
    if len(hosts) > 1000:
        spec["rules"] = [{"host": host} for host in hosts]
    return f"{len(hosts)} hosts, like {hosts[0] if hosts else 'none'}"


def status(chance: Random) -> dict[str, Any]:
    """A status with addresses that were never allocated."""
    entries: list[dict[str, Any]] = [{"ip": ip} for ip in chance.sample(_ADDRESSES, 2)]
    if chance.random() < 0.3:
        entries.append({"hostname": chance.choice(("a.example", "a." * 100 + "example"))})
    return {"loadBalancer": {"ingress": entries}}
