#!/usr/bin/env bash
# Starts the SGLang that install.sh installed; it is ready when GET /health answers 200, after some 25 seconds.
#
#   serve.sh PORT [SGLANG FLAG ...]     flags given here win over those below
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${HELIX_SGLANG_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/helix/sglang-cpu}
port=$1
shift
# One thread of OpenMP: on a machine of few cores the scheduler and the others need the rest.
export SGLANG_USE_CPU_ENGINE=1 HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1 PYTHONPATH="$recipe/shims"
exec "$folder/venv/bin/python" -m sglang.launch_server --model-path "$folder/model" --served-model-name smollm2 \
  --device cpu --attention-backend torch_native --host 127.0.0.1 --port "$port" \
  --max-total-tokens 16384 --max-running-requests 16 --chunked-prefill-size 512 \
  --enable-cache-report --enable-metrics --sleep-on-idle "$@"
