"""Benchmarks: each starts a sandbox with real servers, applies load, and returns a `Report`.

`world.py` and `report.py` are the runner, the other modules say what each benchmark sets up, does and counts.
"""
