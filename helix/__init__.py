"""Helix runs batches of multi-step LLM workflows as optimized query plans."""

__version__ = "0.1.0"
