"""Runs of kinds with owned objects: what causes them, and whom they hold up.

Examples and Shoots come in; counts of runs and requests, and latencies go out.
"""
