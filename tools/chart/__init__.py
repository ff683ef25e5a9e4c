"""The parts of deploy/charts/windowbox that are written from Python: values, their schema, rights, alerts."""
