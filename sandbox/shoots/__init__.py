"""Shoots of the sandbox: a name comes in, a cluster whose nodes are machines in Pods goes out.

Commands write records and objects; the supervisor keeps the processes that the records ask for.
"""
