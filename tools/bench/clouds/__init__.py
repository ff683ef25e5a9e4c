"""Clouds without servers: examples come in; how fast they are checked goes out."""
