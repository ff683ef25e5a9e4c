"""The connection to NATS: subjects and bytes come in; stored messages, buckets and consumers go out.

The client of nats-py is started here only.
"""
