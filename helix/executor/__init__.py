"""A plan, an engine and a table to results and a report: see `run`."""
