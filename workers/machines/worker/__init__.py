"""Workers come in; a Secret, a MachineClass and a MachineDeployment for each zone of each pool go out.

`workeractuator` reads and writes; the plan with its manifests, and the status, are pure functions.
"""
