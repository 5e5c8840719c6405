"""The templated radix tree of a plan's prompts, and the trie of its calls."""

from helix.optimizer.tree.build import build_tree
from helix.optimizer.tree.resolve import resolve_plan
from helix.optimizer.tree.shape import Frame, Hole, LlmOp, Namespace, Prefix, Scope, Static, Tree, Turn
from helix.optimizer.tree.show import tree_text
from helix.optimizer.tree.trie import CallTrie, TokenTrie

__all__ = [
    "CallTrie",
    "Frame",
    "Hole",
    "LlmOp",
    "Namespace",
    "Prefix",
    "Scope",
    "Static",
    "TokenTrie",
    "Tree",
    "Turn",
    "build_tree",
    "resolve_plan",
    "tree_text",
]
