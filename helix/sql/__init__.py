"""SQL text read and written: its parts, its names, its normal form and what it does to a database."""
