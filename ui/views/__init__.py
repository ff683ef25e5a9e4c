"""The views of the page: each is a module of pure functions, a template, and a row in `table`."""
