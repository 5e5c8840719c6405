"""How long an engine takes, from tokens: a model of prefill and decoding with six constants for a deployment.

    prefill = a + b n + c n (n + 2 p)     n tokens computed behind p cached ones
    decode step = d + e B + f S           B requests, S tokens of context in all of them together

Constants in milliseconds. The default is Llama-3.1-8B in bf16 on one H100 SXM, fitted to published estimates of
aiconfigurator 0.12, not measured: sweep a live engine before trusting absolute times.
"""

from __future__ import annotations

from dataclasses import dataclass

from helix.logical import Generate, LogicalPlan, every_node


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTime:
    """The constants of one deployment. `batch` is the most requests that run at once on a worker, `capacity` the
    tokens that its KV cache holds, `chunk` the tokens of one prefill pass, `workers` how many there are. Where prefill
    and decoding are apart, `decoders` of them only decode, and the others only prefill. `mixes`: a pass of prefill
    decodes too, and takes the fixed cost of one.
    """

    name: str = "Llama-3.1-8B on H100 (model)"
    a: float = 4.794
    b: float = 0.01752
    c: float = 7.385e-7
    d: float = 6.502
    e: float = 0.00826
    f: float = 4.168e-5
    batch: int = 256
    capacity: int = 380_000
    chunk: int = 8192
    workers: int = 1
    decoders: int = 0
    mixes: bool = False

    def prefill(self, fresh: float, cached: float = 0.0) -> float:
        """Milliseconds to compute so many tokens behind cached ones, alone. Nothing to compute costs one pass."""
        return self.a + self.b * fresh + self.c * fresh * (fresh + 2 * cached)

    def decode(self, prompt: float, output: float) -> float:
        """Milliseconds to decode a reply alone, behind a prompt that is computed."""
        return self.steps(output) * (self.d + self.e) + self.f * self.contexts(prompt, output)

    @staticmethod
    def steps(output: float) -> float:
        """The decode steps of a reply: the pass that computes the prompt gives its first token."""
        return max(0.0, output - 1.0)

    @staticmethod
    def contexts(prompt: float, output: float) -> float:
        """The sum of a call's contexts over its decode steps."""
        steps = EngineTime.steps(output)
        return prompt * steps + steps * (steps + 1) / 2


H100 = EngineTime()
EMBEDDED = EngineTime(
    name="SmolLM2-135M on two cores (model)",
    a=0.0, b=3.3, c=0.0, d=8.5, e=0.0, f=0.0, batch=1, capacity=8192, chunk=8192,
)  # fmt: skip
# Measured on an idle machine: 1,805 tokens cold in 3.1 s, replies at 29 tokens a second alone, 148 for 16 together.
SGLANG_CPU = EngineTime(
    name="SmolLM2-135M in SGLang on two cores (model)",
    a=25.0, b=1.7, c=0.0, d=29.6, e=4.9, f=0.0, batch=16, capacity=16_384, chunk=512,
)  # fmt: skip


def engine_time(plan: LogicalPlan, engine: str | None = None) -> EngineTime:
    """The model of an engine's time: the embedded one's where the run would use it, else that of a server.

    `engine` is the address that all steps use; None leaves them those that the plan names.
    """
    calls = (node for node in every_node(plan.sink) if isinstance(node, Generate))
    names = [call.model.engine for call in calls] if engine is None else [engine]
    return EMBEDDED if all((name or "embedded").startswith("embedded") for name in names) else H100
