"""The pool `dnsrecord`: DNSRecords come in, changes of records in name servers go out."""
