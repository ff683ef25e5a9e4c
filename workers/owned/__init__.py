"""Objects that extension objects make, and own: how they are written, watched and taken away."""
