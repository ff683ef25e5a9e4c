"""Workers come in; a Secret, a MachineClass and a MachineDeployment for each zone of each pool go out.

`workeractuator` reads the world and writes; groups, manifests and status are pure functions.
"""
