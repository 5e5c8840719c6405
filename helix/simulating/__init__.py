"""`helix.simulate`: a batch on engines that are not there. Joins what `helix/api.py` joins, kept apart for its size."""
