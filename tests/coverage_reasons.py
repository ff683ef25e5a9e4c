"""Why a rule of the contract has no test of ours. A test, where there is one, comes first."""

from __future__ import annotations

_ADMISSION = "enforced by Gardener's own admission, outside of windowbox"
_OTHER_KINDS = "about kinds that windowbox does not serve yet"
_HEALTH = "about health checks, which DNSRecord has none of"
_PROVIDER = "about the provider's own cluster, which DNSRecord does not need"
_GO = "describes the Go program; nothing that could be relied on"
_BIND = "describes BIND; nothing for windowbox to do"
_FIGURE = "a measured figure, not a behaviour"

REASONS: dict[str, str] = {
    "S-6": _OTHER_KINDS,
    "C-5": "needed only by kinds with a control plane",
    "C-10": "needed only by kinds with a control plane",
    "N-3": _OTHER_KINDS,
    **dict.fromkeys(("A-1", "A-2", "A-3", "A-4", "A-5", "A-6", "A-7"), _ADMISSION),
    "T-10": "says that something does not exist",
    "O-3": "there is one life cycle, and one kind that uses it so far",
    "O-7": _OTHER_KINDS,
    "F-1": _OTHER_KINDS,
    "F-5": _OTHER_KINDS,
    "F-7": _OTHER_KINDS,
    "B-3": "improved: while windowbox waits, the object stays Processing",
    "B-4": _OTHER_KINDS,
    "B-5": _OTHER_KINDS,
    **dict.fromkeys(("D-2", "D-3", "D-4", "D-5", "D-6", "D-7", "D-8"), _OTHER_KINDS),
    "E-3": _HEALTH,
    "W-6": "about the patience of clients",
    **dict.fromkeys(("H-1", "H-2", "H-3", "H-4"), _HEALTH),
    "P-2": "part of a deployment, not of the program",
    "P-3": "part of a deployment, not of the program",
    "P-4": "a probe for end-to-end tests of the Go program",
    **dict.fromkeys(("K-1", "K-2", "K-3", "K-4"), _PROVIDER),
    "K-5": _ADMISSION,
    "2.19-recursion": "left out: the sandbox's server answers for its zone only, others for the rest",
    "2.19-network": "left out: the sandbox needs no addresses beside 127.0.0.1",
    "2.19-registries": "about container images, not about DNS records",
    "DN-70": "a delay; tests do not assert times",
    "DN-81": _FIGURE,
    "DN-85": _BIND,
    "DN-93": "left out: zones and their servers are settings; nothing is guessed from answers",
    **dict.fromkeys(("DN-100", "DN-101"), _GO),
    "LB-3-deletefailed": "of a Service that is gone no Event can be told; what it had goes all the same",
    "LB-5-serial": "so by its making: the owner of the edge alone tells Envoy, one thing after the other",
    "LB-9-range": "left out: addresses are those outside, which need no counterparts inside",
}
