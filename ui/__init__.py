"""`windowbox ui`: a page that shows the cloud at work, live."""
