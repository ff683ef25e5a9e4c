"""One door for each world outside; nothing else imports the library behind it."""
