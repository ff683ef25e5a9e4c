"""Ingresses of Shoots get DNSRecords for their hosts."""
