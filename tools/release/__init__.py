"""Builds a release: a clean checkout comes in; archives, an image, a bill of materials and checksums go out.

The same sources give the same bytes.
"""
