"""Why a rule of the contract has no test of ours. A test, where there is one, comes first."""

from __future__ import annotations

_ADMISSION = "enforced by Gardener's own admission, outside of windowbox"
_CLIENTS = "about clients, not about controllers"
_GO = "describes the Go program; nothing that could be relied on"
_BIND = "describes BIND; nothing for windowbox to do"
_FIGURE = "a measured figure, not a behaviour"

_LIFE_CYCLE = "so by its making: all kinds have their runs from one life cycle"
_HISTORY = "about what versions of Gardener did that windowbox does not serve"
_GARDENLET = "about gardenlet"
_OPERATOR = "about gardener-operator"
_GO_CHART = "about the chart of the Go program"

REASONS: dict[str, str] = {
    **dict.fromkeys(("A-2", "A-3", "A-5", "K-5"), _ADMISSION),
    **dict.fromkeys(("WW-49", "WW-87", "WW-88", "WW-89", "WW-95", "WW-118", "WW-119"), _HISTORY),
    **dict.fromkeys(("WW-56", "WW-83", "WW-104"), "says what a webhook is for; what it does is tested"),
    "WW-57": "says which namespaces Gardener labels; the webhook serves any that is asked about",
    "WF-6": "says what is not done",
    "WF-36": "about another part of Gardener, which the label of WF-2 keeps away",
    "WF-51": "says what is not used",
    "AD-1": "about Gardener's own admission, which sets the labels",
    "T-10": "says that something does not exist",
    "O-3": "so by its making: all kinds have their runs from one life cycle",
    "F-1": "not copied: the annotation of a restored Infrastructure goes after Success, as with all kinds",
    "B-4": "so by its making: a run that waits is not a success, whose next look would be in an hour",
    "B-5": "so by its making: errors are reported whole, of all kinds",
    **dict.fromkeys(("W-6", "B.28"), _CLIENTS),
    "P-3": "part of a deployment, not of the program",
    "WP-4": "see P-1",
    "WP-5": "see WF-8",
    "WP-6": "left out: each task has a lease of its own on the bus",
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
    "BE-6": "kept: backups are folders of one host; the setting backup.host says of which",
    "B.20": "kept: an old error stays until a run succeeds, or waits for others",
    "B.27": "not prevented; where two programs undo each other, repairs are backed off, with the reason",
    "B.33": "see the rules of load balancers (LB-…)",
    "B.34": "left so: objects of these kinds are ignored, and doctor lists them",
    "2.19-recursion": "left out: the sandbox's server answers for its zone only, others for the rest",
    "2.19-network": "left out: the sandbox needs no addresses beside 127.0.0.1",
    "2.19-registries": "about container images, not about DNS records",
    "DN-70": "a delay; tests do not assert times",
    "DN-81": _FIGURE,
    "DN-85": _BIND,
    "DN-93": "left out: zones and their servers are settings; nothing is guessed from answers",
    **dict.fromkeys(("DN-100", "DN-101"), _GO),
    "LB-3-deletefailed": "Events of a deleted Service are impossible; its load balancer is removed",
    "LB-5-serial": "so by its making: the edge controller alone configures Envoy, serially",
    "LB-9-range": "left out: addresses are those outside, which need no counterparts inside",
    **dict.fromkeys(("A2-R2", "A2-R3", "A2-R4", "A2-R5", "A2-R6", "A2-R7", "A2-R9"), _LIFE_CYCLE),
    **dict.fromkeys(("A3-R1", "A3-R2", "A3-R3", "A3-R4", "A3-R5", "A4-R4"), _LIFE_CYCLE),
    "A2-R10": "not copied: errors carry Gardener's codes (L22)",
    "A3-R7": "not copied: machines that are updated in place start a run (A3-R6)",
    "A3-R8": "so by its making: kinds that a cluster does not have are not watched",
    **dict.fromkeys(("A6-R10", "A10-R2", "A10-R3", "A14-R3", "A15-R1"), _GARDENLET),
    "A11-R8": "says that something is not done",
    "A12-R1": "left out: a missing MachineSet is waited for, and the status says so",
    "A12-R2": "left out: to delete Pods by label needs a right on all Pods, and cures no slow program",
    "A13-R2": "see B13",
    **dict.fromkeys(("A16-R1", "A18-R1", "A18-R2", "A18-R6", "A18-R7"), _GO),
    **dict.fromkeys(
        ("A16-R2", "A16-R3", "A16-R4"),
        "left out: the client cannot execute commands in Pods; images tell their version themselves",
    ),
}
