"""The simulated radix tree beside SGLang's own RadixCache: the same matches, locks and evictions, act by act."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from running import ROOT

from helix.serving import cpu

pytestmark = [pytest.mark.sglang, pytest.mark.xdist_group("others")]

PATIENCE = 300.0
SEQUENCES = 300
# Runs in SGLang's own environment. A token is a letter; both trees get the same acts.
SCRIPT = """
import json, random, sys
from array import array
from unittest.mock import MagicMock

import torch
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey

from helix.executor.engines.sim.radix import RadixTree


def key(text):
    return RadixKey(token_ids=array("q", map(ord, text)), extra_key=None)


counts = {"match": 0, "evict": 0, "differences": []}
for seed in range(int(sys.argv[1])):
    dice = random.Random(seed)
    page = dice.choice((1, 1, 2, 4))
    allocator = MagicMock()
    allocator.device = torch.device("cpu")
    real = RadixCache.create_simulated(mock_allocator=allocator, page_size=page)
    tree = RadixTree(page, marks_rest=True)
    locks = []
    for step in range(60):
        text = "".join(dice.choice("ab") for _ in range(dice.randint(1, 24)))
        act = dice.choice("iiimmlue")
        found = None
        if act == "i":
            real.insert(InsertParams(key=key(text), value=torch.arange(len(text), dtype=torch.int64)))
            tree.insert(text)
        elif act == "m":
            counts["match"] += 1
            found = real.match_prefix(MatchPrefixParams(key=key(text))).device_prefix_len, tree.match(text)[0] * page
        elif act == "l" and len(text) >= page:
            node, own = real.match_prefix(MatchPrefixParams(key=key(text))).last_device_node, tree.match(text)[1]
            real.inc_lock_ref(node)
            tree.lock(own)
            locks.append((node, own))
        elif act == "u" and locks:
            node, own = locks.pop(dice.randrange(len(locks)))
            real.dec_lock_ref(node)
            tree.unlock(own)
        elif act == "e":
            counts["evict"] += 1
            pages = dice.randint(1, 12)
            real.evict(EvictParams(num_tokens=pages * page))
            tree.evict(pages)
        sizes = [real.evictable_size(), real.protected_size()], [tree.evictable * page, tree.locked * page]
        if sizes[0] != sizes[1] or (found and found[0] != found[1]):
            counts["differences"].append([seed, step, act, text, found, sizes])
            break
print(json.dumps(counts))
"""


def test_the_simulated_tree_does_what_radix_cache_does() -> None:
    command = cpu.cpu_command(cpu.home())
    given = {each.name: each.value or "" for each in command.environment}
    given["PYTHONPATH"] += f"{os.pathsep}{ROOT}"
    ran = subprocess.run(
        [command.program[0], "-c", SCRIPT, str(SEQUENCES)],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    counts = json.loads(ran.stdout.strip().splitlines()[-1])
    assert counts["differences"] == []
    assert counts["match"] > 10 * SEQUENCES
    assert counts["evict"] > 5 * SEQUENCES
