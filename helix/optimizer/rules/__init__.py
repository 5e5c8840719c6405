"""The rules, in the order in which the driver applies them. A rule is one file with one public function of its name."""

from __future__ import annotations

from helix.optimizer.rule import RuleFunction
from helix.optimizer.rules.batch_point_lookups import batch_point_lookups
from helix.optimizer.rules.canonicalize_sql import canonicalize_sql
from helix.optimizer.rules.drop_dead_steps import drop_dead_steps
from helix.optimizer.rules.fetch_known_results import fetch_known_results
from helix.optimizer.rules.fold_constants import fold_constants
from helix.optimizer.rules.fuse_filters import fuse_filters
from helix.optimizer.rules.hoist_invariants import hoist_invariants
from helix.optimizer.rules.inline_text import inline_text
from helix.optimizer.rules.insert_warmups import insert_warmups
from helix.optimizer.rules.lay_out_prompts import lay_out_prompts
from helix.optimizer.rules.merge_equal_steps import merge_equal_steps
from helix.optimizer.rules.order_filters import order_filters
from helix.optimizer.rules.order_rows import order_rows
from helix.optimizer.rules.prune_fields import prune_fields
from helix.optimizer.rules.push_down_filters import push_down_filters
from helix.optimizer.rules.push_down_limits import push_down_limits
from helix.optimizer.rules.simplify_branches import simplify_branches
from helix.optimizer.rules.simplify_loops import simplify_loops
from helix.optimizer.rules.start_certain_tools_early import start_certain_tools_early
from helix.optimizer.rules.unroll_constant_maps import unroll_constant_maps

RULES: tuple[RuleFunction, ...] = (
    fold_constants,  # first: what it folds makes steps equal and branches certain
    simplify_branches,  # after constants are folded: arms that gave different constants may give the same now
    simplify_loops,  # before steps are compared: what was in a loop may equal what is outside
    unroll_constant_maps,  # before texts are put in: the items of a list then show in the copies of its loop
    inline_text,  # before steps are compared: equal prompts may have been put together in different ways
    canonicalize_sql,  # before the merge: equal queries are equal steps only in one spelling
    hoist_invariants,  # after loops over constants are unrolled, so that only those over other lists are left
    start_certain_tools_early,  # before the merge: what leaves a branch may equal a step outside
    merge_equal_steps,  # after all that makes steps equal
    fetch_known_results,  # after constants are folded into prompts: only prompts that no row changes can be known
    push_down_filters,  # after the merge: a step that two read is moved for both
    push_down_limits,  # after filters have moved: a step that both spare stands above both
    prune_fields,  # after equal steps are merged: what is read through one of them is read through the other
    order_filters,  # after filters have moved: those that then stand side by side
    fuse_filters,  # after they are in order: one filter keeps the order of its parts
    drop_dead_steps,  # last: the others leave steps behind that nobody reads
    lay_out_prompts,  # after all that changes what prompts say
    order_rows,  # after the prompts are laid out: it groups the rows by what they begin with
    batch_point_lookups,  # after all that changes tool steps: it only marks them for the run
    insert_warmups,  # after all that changes prompts: it only marks llm steps for the run
)
