"""A fuzzer: hostile objects of every kind that windowbox serves, their tenants, and how each ended.

tests/host/sandbox/test_hostile.py uses it, and `windowbox bench hostile` as load beside well-behaved objects.
"""
