"""What a run took, worked out from its records: for the end of a run, and as JSON."""
