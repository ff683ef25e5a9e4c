"""The programs of the sandbox: names and versions come in, paths of executables go out.

Found, downloaded or compiled, and kept in a cache.
"""
