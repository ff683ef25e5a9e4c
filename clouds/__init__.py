"""Emulated clouds: objects of a Shoot come in; the answers of the real extension of its cloud go out."""
