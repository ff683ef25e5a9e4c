"""The rules of webhooks, each in a few words of ours.

`WW-…` and `WF-…` are the contract's `W-…` and `F-…` of webhooks: other chapters have rules of those names.
"""

from __future__ import annotations

SECTIONS: dict[str, dict[str, str]] = {
    "Webhooks": {
        "WW-1": "order of the webhooks in a configuration",
        "WW-2": "disabled webhooks",
        "WW-3": "which webhooks skip objects under deletion",
        "WW-4": "objects older than the webhook are changed by their next update",
        "WW-5": "no webhook reads user, options or operation",
    },
    "Configurations of webhooks": {
        "WF-1": "names of configurations and of their entries",
        "WF-2": "label against remediation",
        "WF-3": "mutating and validating entries are in two objects",
        "WF-4": "one rule for each kind",
        "WF-5": "default failure policy and timeout",
        "WF-6": "a target without webhooks keeps its old configuration",
        "WF-7": "order of rules means nothing",
        "WF-8": "disabling all; unknown names",
        "WF-10": "port of the Service",
        "WF-11": "client mode of Shoots",
        "WF-12": "self-hosted Shoots have both in one configuration",
        "WF-13": "where the server listens",
        "WF-20": "the configuration is written at start",
        "WF-21": "the CA bundle of an existing configuration is kept",
        "WF-22": "the owner Namespace",
        "WF-23": "renewed configurations have the CA bundle",
        "WF-24": "both configurations are written at start",
        "WF-30": "the ManagedResource of a Shoot",
        "WF-31": "its Secret",
        "WF-32": "self-hosted Shoots have none",
        "WF-33": "it is deleted last",
        "WF-34": "after a rotation, ManagedResources get the new bundle",
        "WF-35": "a new Shoot has the newest bundle",
        "WF-36": "remediation by Gardener",
    },
    "Requests to webhooks": {
        "WF-40": "HTTP status, limit and type of the body",
        "WF-41": "versions of AdmissionReview; uid",
        "WF-42": "kinds that are not served",
        "WF-43": "objects that cannot be decoded",
        "WF-44": "lookups that fail",
        "WF-45": "denials",
        "WF-46": "no difference, no patch",
        "WF-47": "the patch",
        "WF-48": "patches are compared by applying them",
        "WF-49": "bugs",
        "WF-50": "plain TLS",
        "WF-51": "unused features of the framework",
    },
    "Certificates of webhooks": {
        "WF-60": "when certificates are renewed",
        "WF-61": "the old CA stays in the bundle for a day",
        "WF-62": "order of a rotation",
        "WF-63": "the very first start",
        "WF-64": "the newest certificate is loaded",
        "WF-65": "without a namespace",
        "WF-66": "what must be as in Gardener",
    },
    "Reaching webhooks": {
        "WF-70": "ports in annotations of the Service",
        "WF-71": "NetworkPolicies made of them",
        "WF-72": "the API server outside of the network of Pods",
    },
}
