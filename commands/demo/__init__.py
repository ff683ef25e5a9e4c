"""`windowbox demo`: files of examples/ go into a sandbox; lines about what windowbox did come out.

`stage.py` applies and waits; each `show…` module shows one part.
"""
