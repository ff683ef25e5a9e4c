"""Reasons why rules of the contract have no test here."""

from __future__ import annotations

_ADMISSION = "enforced by Gardener's own admission, outside of windowbox"
_CLIENTS = "about clients, not about controllers"
_GO = "describes the Go program; nobody relies on it"
_BIND = "describes BIND; nothing for windowbox to do"
_FIGURE = "a measured figure, not a behaviour"

_LIFE_CYCLE = "holds by construction: all kinds share one life cycle"
_HISTORY = "about versions of Gardener that windowbox does not support"
_GARDENLET = "about gardenlet"
_OPERATOR = "about gardener-operator"
_GO_CHART = "about the chart of the Go program"

REASONS: dict[str, str] = {
    **dict.fromkeys(("A-2", "A-3", "A-5", "K-5"), _ADMISSION),
    **dict.fromkeys(("WW-49", "WW-87", "WW-88", "WW-89", "WW-95", "WW-118", "WW-119"), _HISTORY),
    **dict.fromkeys(("WW-56", "WW-83", "WW-104"), "states the purpose of a webhook; its effect is tested"),
    "WW-57": "about the namespaces that Gardener labels; the webhook serves every namespace",
    "WF-6": "states what is not done",
    "WF-36": "about another part of Gardener, which the label of WF-2 excludes",
    "WF-51": "states what is not used",
    "AD-1": "about Gardener's own admission, which sets the labels",
    "T-10": "states that something does not exist",
    "O-3": "holds by construction: all kinds share one life cycle",
    "F-1": "not copied: as for all kinds, restore removes the annotation after Success",
    "B-4": "holds by construction: a run that waits is no success, so it is requeued before an hour",
    "B-5": "holds by construction: all kinds report complete errors",
    **dict.fromkeys(("W-6", "B.28"), _CLIENTS),
    "P-3": "part of a deployment, not of the program",
    "WP-4": "see P-1",
    "WP-5": "see WF-8",
    "WP-6": "left out: each task has its own lease on the bus",
    "WP-10": "see tests/api/heartbeat",
    "WP-11": _GARDENLET,
    "WP-12": "see HC-…",
    "WP-32": _GARDENLET,
    "WP-33": "defaults of Gardener's API",
    "WP-34": "enforced by Gardener's own admission, outside of windowbox",
    "WP-35": _OPERATOR,
    "WP-36": _GARDENLET,
    "WP-38": _GO_CHART,
    "WP-39": _GARDENLET,
    "BE-6": "kept: backups are folders of one host, the one in the setting backup.host",
    "B.20": "kept: an old error stays until a run succeeds or waits",
    "B.27": "not prevented; where two programs undo each other, repairs back off and report the reason",
    "B.33": "see the rules of load balancers (LB-…)",
    "B.34": "kept: objects of these kinds are ignored, and `windowbox doctor` lists them",
    "2.19-recursion": "left out: the sandbox's server answers for its own zone only",
    "2.19-network": "left out: the sandbox needs no address except 127.0.0.1",
    "2.19-registries": "about container images, not about DNS records",
    "DN-70": "a delay; tests do not assert times",
    "DN-81": _FIGURE,
    "DN-85": _BIND,
    "DN-93": "left out: zones and their servers are settings; windowbox does not infer them",
    **dict.fromkeys(("DN-100", "DN-101"), _GO),
    "LB-3-deletefailed": "Events of a deleted Service are impossible; its load balancer is removed",
    "LB-5-serial": "holds by construction: only the edge controller configures Envoy, serially",
    "LB-9-range": "left out: addresses are external and need no internal counterpart",
    **dict.fromkeys(("A2-R2", "A2-R3", "A2-R4", "A2-R5", "A2-R6", "A2-R7", "A2-R9"), _LIFE_CYCLE),
    **dict.fromkeys(("A3-R1", "A3-R2", "A3-R3", "A3-R4", "A3-R5", "A4-R4"), _LIFE_CYCLE),
    "A2-R10": "not copied: errors carry Gardener's codes (L22)",
    "A3-R7": "not copied: an in-place update triggers a reconcile (A3-R6)",
    "A3-R8": "holds by construction: kinds that a cluster does not have are not watched",
    **dict.fromkeys(("A6-R10", "A10-R2", "A10-R3", "A14-R3", "A15-R1"), _GARDENLET),
    "A11-R8": "states what is not done",
    "A12-R1": "left out: the Worker waits for a missing MachineSet, and its status says so",
    "A12-R2": "left out: deleting Pods by label needs rights on all Pods, and does not help a slow program",
    "A13-R2": "see B13",
    **dict.fromkeys(("A16-R1", "A18-R1", "A18-R2", "A18-R6", "A18-R7"), _GO),
    **dict.fromkeys(
        ("A16-R2", "A16-R3", "A16-R4"),
        "left out: the client cannot execute commands in Pods; images report their version themselves",
    ),
}
