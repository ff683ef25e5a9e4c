"""Memory of the processes: roles come in; what their imports and their work take goes out."""
