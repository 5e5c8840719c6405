"""The workloads of `helix bench` by name."""

from helix.bench.workloads.agents import AGENTS
from helix.bench.workloads.chains import W4, W5
from helix.bench.workloads.questions import SIZED, W1_MMLU, W1_TATQA, W2_MMLU, W2_TATQA, W3_TATQA
from helix.bench.workloads.shape import Workload as Workload
from helix.bench.workloads.trading import TRADING

BASIC = (W1_MMLU, W1_TATQA, W2_MMLU, W2_TATQA, W3_TATQA, W4, W5)
WORKLOADS: dict[str, Workload] = {each.name: each for each in (*BASIC, *TRADING, *SIZED, *AGENTS)}
# Names for several at once.
FAMILIES: dict[str, tuple[str, ...]] = {
    "basic": tuple(each.name for each in BASIC),
    "trading": tuple(each.name for each in TRADING),
    "sized": tuple(each.name for each in SIZED),
    "agents": tuple(each.name for each in AGENTS),
}
