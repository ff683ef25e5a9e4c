"""Alerts and dashboards, as Prometheus evaluates them."""
