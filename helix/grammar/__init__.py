"""Text to syntax to a bound logical plan: `parse`, `bind`, and `format` for the way back."""
