"""What `helix explain` shows: a plan, the rules that changed it, its prompts as a tree, its cost; in several forms."""
