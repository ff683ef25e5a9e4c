"""Where windowbox's CPU goes, by step: Python runs `sitecustomize.py` at the start of each process.

The folder of the samples and the pids of processes come in; milliseconds of each step go out.
"""
