"""The machine driver. In: changes of Machines, MachineClasses, their Secrets, Pods and nodes.

Out: Pods with Secret and Service in the provider cluster, bootstrap tokens and nodes in the Shoot, statuses.
"""
