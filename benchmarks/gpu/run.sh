#!/bin/bash
# Measure on one NVIDIA GPU, from a plain copy of the tree: `benchmarks/gpu/carry` first, then this where the GPU is.
# Prints a line of JSON per figure, and leaves them and every log in $OUT. PARTS="share oom" measures only those.
#   PYTHON       runs the yard (default python3); what it lacks is taken from .carry/wheels
#   TASK_PYTHON  runs the training (default: the same); it has torch
#   PATIENCE     times the seconds that each part may take, for a small machine
set -u
cd "$(dirname "$0")/../.."
OUT=${OUT:-artefacts/gpu}
PYTHON=${PYTHON:-python3}
TASK_PYTHON=${TASK_PYTHON:-$PYTHON}
PARTS=${PARTS:-overhead preempt share oom whole}
mkdir -p "$OUT"
OUT=$(realpath "$OUT")
work=$(mktemp -d /tmp/yard-gpu.XXXXXX)
export OUT TASK_PYTHON PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

if ! "$PYTHON" -c 'import fastapi, uvicorn, sqlalchemy, alembic, click, yaml, rich' 2>/dev/null; then
    if [ -d .carry/wheels ]; then
        "$PYTHON" - "$work/site" .carry/wheels/*.whl <<'END'
import sys
import zipfile

for wheel in sys.argv[2:]:
    zipfile.ZipFile(wheel).extractall(sys.argv[1])
END
        export PYTHONPATH=$work/site
    else
        echo "This Python lacks what the yard needs; run benchmarks/gpu/carry where there is a network, and bring .carry/ along." >&2
        exit 1
    fi
fi
export PYTHONPATH=$PWD/src:$PWD/benchmarks${PYTHONPATH:+:$PYTHONPATH}

{
    date -u
    "$PYTHON" -VV
    nvidia-smi 2>&1 || echo "no nvidia-smi"
    "$TASK_PYTHON" -c 'import torch; print("torch", torch.__version__, torch.cuda.is_available())'
} >"$OUT/machine.log" 2>&1

declare -A limit=([overhead]=60 [preempt]=150 [share]=180 [oom]=150 [whole]=60)
failed=0
for part in $PARTS; do
    echo "== $part $(date -u +%T)" >>"$OUT/run.log"
    timeout --signal=TERM --kill-after=20 $((${limit[$part]} * ${PATIENCE:-1})) \
        "$PYTHON" benchmarks/gpu/measure.py "$part" "$work/$part" 2>>"$OUT/run.log" | tee "$OUT/$part.json"
    code=${PIPESTATUS[0]}
    if [ "$code" != 0 ]; then
        failed=1
        tail=$(tail -n 3 "$OUT/run.log" | tr -d '"\\' | tr '\n\t' '  ')
        echo "{\"benchmark\": \"gpu-$part\", \"error\": \"ended with $code: $tail\"}" | tee "$OUT/$part.json"
    fi
done
rm -rf "$work"
exit $failed
