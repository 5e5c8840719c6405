"""Templates of prompts: read, checked, and rendered from values alone."""
