"""A logical plan to a better one: the rules, one file each in `rules/`, and the driver that applies them.

`tree/` is the templated radix tree of a plan's prompts; `cost` and what it stands on estimate what a plan takes;
`lowering/` makes a physical plan of it.
"""
