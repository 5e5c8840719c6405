"""The figures that others have published, beside which ours are shown. They are claims of their authors, on other GPUs.

From Helium (arXiv 2603.16104): two H100 NVL, vLLM 0.16, Qwen3-8B and 14B.
"""

from __future__ import annotations

# Latency over that of Helium: mean, least, most.
TABLE_2 = {
    "vLLM": (66.27, 38.18, 100.92),
    "OpWise": (1.25, 1.02, 1.58),
    "LangGraph": (1.28, 1.09, 1.83),
    "AgentScope": (2.10, 1.07, 4.32),
    "Parrot": (1.44, 1.02, 2.21),
    "KVFlow": (1.32, 1.14, 1.56),
}
# Seconds, trading with 16 rows.
TABLE_3 = {"full": 130.14, "no KV": 134.76, "no pruning": 160.53, "no prompt cache": 147.79, "no CAS": 153.12}
# Seconds and hits in percent.
TABLE_4 = {
    "QueryWise": (658.54, 42.3),
    "OpWise": (419.03, 40.8),
    "Random": (193.54, 37.1),
    "LSPF": (188.93, 37.9),
    "Helium": (149.76, 56.5),
}
# Token steps in millions (mean, least, most), and the gap to the optimum in percent (mean, least, most).
TABLE_5 = {
    "QueryWise": (21.6, 10.2, 34.2, 72.4, 26.7, 149.2),
    "OpWise": (15.3, 7.0, 26.4, 17.6, 3.6, 30.7),
    "Random": (15.2, 7.0, 27.7, 16.3, 6.0, 30.3),
    "LSPF": (14.9, 7.0, 26.9, 14.5, 2.8, 30.5),
    "Helium": (13.4, 6.0, 24.1, 0.9, 0.0, 3.6),
}
# The largest speed-ups that figures show.
FIGURES_TRADING = {
    "vLLM": 39.50,
    "OpWise": 4.25,
    "Parrot": 2.51,
    "LangGraph": 1.49,
    "AgentScope": 1.46,
    "KVFlow": 1.34,
}
FIGURES_SIZED = {"LangGraph": 2.07}
# Seconds of a request, without and with Helium.
FIGURES_REQUEST = {"p50": (28.3, 20.5), "p95": (51.7, 37.2)}

# The methods here that stand for published ones.
STANDS_FOR = {
    "vLLM": "query-wise@1",
    "QueryWise": "query-wise@1",
    "OpWise": "operator-wise",
    "LangGraph": "ready-random",
    "AgentScope": "operator-wise:chain",
    "Random": "ready-random",
    "LSPF": "lspf",
    "Parrot": "parrot",
    "KVFlow": "kvflow",
    "Helium": "helium:paper",
}

FLAWS = (
    "the vLLM baseline has one call in flight; ours is shown tuned as well",
    "baselines got their questions shuffled and Helium grouped; here all get the same rows, both ways",
    "profiling and warm-up are not timed there; here planning, profiling and warm-ups count",
    "the prompt cache is warm for Helium only; here for all or for none",
    "replies of Trading end at their cap, so none is longer than another; here they differ by half",
    "KVFlow ran on another engine; here all run on one",
    "`no CAS` is a shuffled table; here the order is a column of its own",
    "no spread of latencies and no check of outputs; here ranges over seeds, and each run's results are compared",
)
