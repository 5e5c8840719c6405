"""Names of attributes: those of OpenTelemetry's conventions for generative AI (gen_ai, as of 1.38), and our own.

https://opentelemetry.io/docs/specs/semconv/gen-ai/ calls them experimental: where they change, this is the place.
"""

from __future__ import annotations

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
TEMPERATURE = "gen_ai.request.temperature"
MAX_TOKENS = "gen_ai.request.max_tokens"
TOP_P = "gen_ai.request.top_p"
SEED = "gen_ai.request.seed"
STOP = "gen_ai.request.stop_sequences"
FINISH = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
OUTPUT_TYPE = "gen_ai.output.type"
TOOL_NAME = "gen_ai.tool.name"
# Prompts and replies: only where they are asked for.
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_RESULT = "gen_ai.tool.call.result"
ERROR_TYPE = "error.type"

CHAT, EXECUTE_TOOL = "chat", "execute_tool"

WORKFLOW = "helix.workflow"
POLICY = "helix.policy"
ENGINES = "helix.engines"
ROWS = "helix.rows"
FAILED_ROWS = "helix.rows.failed"
CALLS = "helix.calls"
MERGED = "helix.calls.merged"
FETCHED = "helix.calls.fetched"
STOPPED = "helix.stopped"
STEP = "helix.step"
ROW = "helix.row"
OUTCOME = "helix.outcome"
ATTEMPTS = "helix.attempts"
RANK = "helix.rank"
QUEUE_SECONDS = "helix.queue.seconds"
ENGINE_QUEUE_SECONDS = "helix.engine.queue.seconds"
