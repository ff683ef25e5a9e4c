"""The pool `dnsrecord`: DNSRecords become records in name servers."""
