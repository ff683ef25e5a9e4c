"""Reconciling: one package per pool, and what they share."""
