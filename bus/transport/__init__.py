"""The connection to NATS: the one place that imports its library.

Subjects and bytes come in; stored messages, buckets and consumers go out.
"""
