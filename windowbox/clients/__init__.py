"""Adapters: one for each external system; nothing else imports its library."""
