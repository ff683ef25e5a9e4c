"""Writes parts of the charts: models, rights and alerts come in; values, schemas and rules go out."""
