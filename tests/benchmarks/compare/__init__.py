"""The parts of engine_compare.py."""
