"""`helix bench`: policies compared on the simulated engine, on published workloads, beside published figures."""
