"""What the processes of each role run: settings come in, tasks on the bus and on API servers go out.

Each role is a module, so that its process imports no libraries of other roles.
"""
