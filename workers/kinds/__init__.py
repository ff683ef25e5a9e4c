"""The kinds that stand alone: one package for each row of the table of kinds.

An object comes in; what it asks for is made, and its status goes out.
"""
