"""Names: DNSRecords and Ingresses come in; records on name servers go out."""
