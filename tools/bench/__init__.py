"""Benchmarks on real servers, each in its own sandbox."""
