"""`windowbox resolver`: a zone and its name server come in; files for the resolver of this host go out."""
