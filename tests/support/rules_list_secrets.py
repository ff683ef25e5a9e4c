"""The rules of generated secrets, images and health conditions, each in a few words of ours."""

from __future__ import annotations

SECTIONS: dict[str, dict[str, str]] = {
    "Generated secrets": {
        "Z-1": "names, types, immutability",
        "Z-2": "labels",
        "Z-3": "secrets of a Go installation are adopted",
        "Z-4": "renewal by time",
        "Z-5": "rotation in lock-step with the Shoot",
        "Z-6": "data that is supplied",
        "Z-7": "times of a certificate",
        "Z-8": "authorities come first",
    },
    "Image vector": {
        "IV-1": "the file of an overwrite",
        "IV-2": "what is valid in it",
        "IV-3": "the version is for people",
        "IV-4": "how entries are merged",
        "IV-5": "which entry is found",
        "IV-6": "versions before they are compared",
        "IV-7": "the image's name",
    },
    "Health conditions": {
        "HC-1": "when checks are made",
        "HC-2": "objects that go or migrate are not checked",
        "HC-3": "Shoots that sleep",
        "HC-4": "time limits",
        "HC-5": "the client of the Shoot",
        "HC-6": "the worst result decides",
        "HC-7": "progress and its threshold",
        "HC-8": "words of several results",
        "HC-9": "other conditions are kept",
        "HC-10": "the check of nodes",
        "HC-11": "the checks of ManagedResources and Deployments",
    },
}
