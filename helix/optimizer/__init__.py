"""Logical plan to better logical plan, then to a physical plan: the rules, one file each, and the lowering.

Empty in this version: plans run as they are bound. Equal calls are merged by the executor while it runs.
"""
