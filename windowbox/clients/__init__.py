"""Adapters, one for each external system; nothing else imports its library.

Calls of this project come in; its values, or errors sorted by what to do next, go out.
"""
