"""Policies: which of the calls that wait for an engine goes next, on which rank, and what is computed ahead of it."""
