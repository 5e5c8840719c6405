"""The report of a run on a real SGLang: its tokens are the server's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import Folder
from sglang_cpu import Server

pytestmark = [pytest.mark.sglang, pytest.mark.xdist_group("lpm")]

PATIENCE = 180.0
RULES = " ".join(f"Rule {number}: a parcel of kind {number} goes to shelf {7 * number}." for number in range(1, 9))
WORKFLOW = f"""
workflow shelves(ticket: text, shop: text)
model main {{ temperature: 0, max_tokens: 6 }}
kind = llm main {{ system "{RULES}" user "At {{{{ shop }}}}: {{{{ ticket }}}}" }}
reply = llm main {{ system "{RULES}" user "At {{{{ shop }}}}: {{{{ ticket }}}} It is {{{{ kind }}}}." }}
output ticket, kind, reply
"""


def test_each_distinct_token_is_prefilled_about_once_and_the_report_says_so(
    tmp_path: Path, sglang_server: Server
) -> None:
    folder = Folder(tmp_path)
    folder.workflow(WORKFLOW)
    folder.rows(*({"ticket": f"Where is parcel {number}?", "shop": f"shop {number % 2}"} for number in range(8)))
    address = f"sglang://127.0.0.1:{sglang_server.port}"
    done = folder.run(
        "-o", "out.jsonl", "--no-store", "--report", "run.json", engine=address, timeout=PATIENCE
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = json.loads((tmp_path / "run.json").read_text("utf-8"))
    assert made["calls"]["llm"] == 16
    prefixes, tokens = made["prefixes"], made["tokens"]
    assert (prefixes["exact"], prefixes["tokenizer"], prefixes["calls"]) == (True, address, 16)
    assert prefixes["prefilled"] == tokens["prefilled"] >= prefixes["p_min"]
    assert prefixes["amplification"] <= 1.1
    # What the server counted is what the report says: nobody else has used it since its cache was emptied.
    assert tokens["untold"] == 0
    assert tokens["prompt"] - tokens["cached"] == tokens["prefilled"] - tokens["prefilled_by_warmups"]
    assert made["bounds"]["model"] == "SmolLM2-135M in SGLang on two cores (model)"
    assert not made["bounds"]["estimated"]
    assert [rank["calls"] for rank in made["ranks"]] == [16]
    assert made["shares"]["queued"] is not None
    assert "distinct prefixes" in done.stderr
