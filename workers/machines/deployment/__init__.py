"""MachineDeployments: one and its MachineSets come in; sets that are created, sized and removed go out.

`deploymentreconciler` reads top to bottom; sizes, requests, manifests and status are functions of a `State`.
"""
