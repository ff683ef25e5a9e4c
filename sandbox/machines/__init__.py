"""Machines of Shoots: programs of this host come in, the image of a machine that becomes a node goes out."""
