"""Workers: pools of machines, as MachineDeployments."""
