"""The pool `ingress`: Ingresses of Shoots come in; DNSRecords for their hosts go out."""
