"""MachineSets: one and its Machines come in; Machines that are created and deleted, and a status, go out.

`setreconciler` reads top to bottom; the plan and the status are pure functions of the machines.
"""
