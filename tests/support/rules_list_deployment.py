"""The rules of processes and their registration, each in a few words of ours.

`WP-…` are the contract's `P-…` of that chapter: the one about extensions has rules of those names.
"""

from __future__ import annotations

SECTIONS: dict[str, dict[str, str]] = {
    "Processes": {
        "WP-1": "flags, and none for feature gates",
        "WP-2": "environment variables",
        "WP-3": "names of controllers",
        "WP-4": "classes of each controller",
        "WP-5": "names of webhooks",
        "WP-6": "leader election",
        "WP-10": "the heartbeat's Lease",
        "WP-11": "the reader of the heartbeat",
        "WP-12": "health checks",
    },
    "Access to the garden": {
        "WP-20": "kubeconfig and names by environment",
        "WP-21": "the token is renewed",
        "WP-22": "who we are there",
        "WP-23": "the Seed or Shoot is annotated; failure ends the process",
    },
    "Registration": {
        "WP-30": "ControllerRegistration and ControllerDeployment",
        "WP-31": "the operator's Extension",
        "WP-32": "policies",
        "WP-33": "defaults of resources",
        "WP-34": "one primary registration",
        "WP-35": "`garden` is truncated",
        "WP-36": "place of an installation",
        "WP-37": "injected values",
        "WP-38": "values of removed features",
        "WP-39": "the ManagedResource of an installation",
    },
}
