"""What a simulation of a batch came to, as text, JSON and a page with plots."""
