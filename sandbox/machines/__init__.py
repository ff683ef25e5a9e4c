"""Machines of Shoots: Pods of the sandbox's nodes that are nodes themselves."""
