"""What a simulated engine costs: how long a pass takes, and how many tokens its KV cache holds."""
