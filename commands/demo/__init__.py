"""`windowbox demo`: each part applies a file of examples/ and shows, line by line, what came of it.

`stage.py` applies and waits; the parts in the `show…` modules say what to wait for, and what to show.
"""
