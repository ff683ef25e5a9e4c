"""Patchers: write the reported status to the cluster."""
