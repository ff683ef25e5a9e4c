"""The rules of machines, each in a few words of ours.

`C…` are about MachineDeployments and MachineSets; an id without `-R…` is what a chapter's tables say. `L…`
are limitations of the Go program that are lifted.
"""

from __future__ import annotations

SECTIONS: dict[str, dict[str, str]] = {
    "MachineDeployment and MachineSet": {
        "C2": "the order of a MachineDeployment's run",
        "C3-R1": "how a MachineSet is named",
        "C3-R2": "the hash as a label",
        "C3-R3": "any hash will do",
        "C3-R4": "collisions of hashes",
        "C3-R5": "what a Machine takes from its set",
        "C3-R6": "annotations of a MachineSet",
        "C4": "which changes replace machines",
        "C5": "rolling update",
        "C5-R1": "machines that are being deleted",
        "C6-R1": "when a deployment is scaled",
        "C6-R2": "one active set",
        "C6-R3": "a saturated set",
        "C6-R4": "several sets, in proportion",
        "C6-R8": "machines that the autoscaler chose",
        "C6-R9": "deletion order",
        "C6-R10": "deletion order by phase",
        "C7": "too few and too many machines",
        "C7-R2": "failed machines are replaced",
        "C8": "numbers and conditions",
        "C9": "Progressing",
        "C9-R2": "times of conditions",
        "C11-R1": "at how many machines a set is frozen",
        "C11-R2": "freezing",
        "C11-R3": "unfreezing",
        "C11-R4": "the deployment shows it",
        "C11-R5": "unfreezing by annotation",
        "C11-R6": "only creation stops",
        "C12-R1": "whose annotation counts",
        "C12-R5": "preserved machines are not replaced",
        "C12-R6": "machines that preserve themselves",
        "C12-R7": "preserved machines and availability",
        "C12-R9": "a node that is missing",
        "C13-R1": "pause and resume",
    },
    "Limitations of machines that are lifted": {
        "L27": "names that are too long for a Service",
        "L33": "roll-outs that wait for slow deletions",
        "L37": "machines that are updated go first",
        "L38": "a missing node ends preservation",
        "L43": "one set a minute is frozen",
    },
}
