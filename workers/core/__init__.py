"""What all pools share: items of the queue come in; runs, records and reports go out.

Serving and replay, the life cycle of extensions, owned objects, and health.
"""
