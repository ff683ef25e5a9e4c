"""The launcher, a process of its own: requests of an edge in another Pod come in; Envoys start and end.

It imports neither the bus nor models nor a library for HTTP, which would take most of its memory.
"""
