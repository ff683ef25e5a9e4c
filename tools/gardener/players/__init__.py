"""Played controllers: they write what Gardener waits for, where the real ones are not to be had."""
