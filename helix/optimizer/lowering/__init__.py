"""An optimized logical plan to a physical one: `lower`, what it may know, and the recurrence that orders cost by."""

from helix.optimizer.lowering.context import LowerContext
from helix.optimizer.lowering.lower import lower

__all__ = ["LowerContext", "lower"]
