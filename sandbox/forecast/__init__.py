"""Whether the demo works on this machine, and what it will show: facts come in, findings and parts go out.

`reading.py` reads the facts and changes nothing; the other modules decide, and read nothing.
"""
