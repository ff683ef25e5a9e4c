"""windowbox beside Gardener's own provider-local, on the API server and the name server of one sandbox.

A program's path comes in; throughput, CPU and requests of both for each object go out.
"""
