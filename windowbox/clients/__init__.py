"""One door for each system outside; nothing else imports the library behind it."""
