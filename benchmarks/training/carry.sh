#!/usr/bin/env bash
# Takes what measure.sh needs to a machine without a network, and its results back, both small:
#   carry.sh pack DATA WHEELS BUNDLE   here: rows and packages in BUNDLE, beside this script
#   carry.sh unpack BUNDLE FOLDER      there: FOLDER/data, FOLDER/env.sh (to be sourced)
#   carry.sh results OUT FILE          there: figures, answers, curves and logs, without weights, in
#                                      FILE.00, FILE.01 ... of 15 MiB: 'cat FILE.* | tar xJ'
#   carry.sh watch OUT SECONDS FILE    there: so long, or until measure.sh ends; FILE anew each minute
# WHEELS is a folder of wheels, of the other machine's Python, of what '.[train]' needs and
# that machine lacks. The rows come out as the bytes that the data's card has the hash of.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

pack() { # data, wheels, bundle
    local data wheels bundle=$3 work
    data=$(realpath "$1") wheels=$(realpath "$2") work=$(mktemp -d)
    trap "rm -rf '$work'" EXIT
    mkdir -p "$bundle" "$work/site-packages"
    for wheel in "$wheels"/*.whl; do
        python3 -m zipfile -e "$wheel" "$work/site-packages"
    done
    # Nothing of these is imported: stores other than the disk, tests, headers, a vector index.
    (cd "$work/site-packages" && rm -rf chromadb chromadb_rust_bindings pandas/tests \
        pyarrow/{tests,include,src} pyarrow/libarrow{,_python}_flight.* \
        pyarrow/_{flight,s3fs,gcsfs,azurefs,hdfs}.*)
    # Not those in *.libs: auditwheel has moved their parts, and strip breaks them.
    find "$work/site-packages" -name '*.so*' -not -path '*.libs/*' -exec strip -g {} + || true
    (cd "$work" && tar c site-packages | xz -T0 -9) > "$bundle/site.tar.xz"
    gzip -dc "$data/train.jsonl.gz" | xz -T0 -9 > "$bundle/train.jsonl.xz"
    tar cJf "$bundle/rest.tar.xz" -C "$data" --exclude=./train.jsonl.gz .
    tar cJf "$bundle/source.tar.xz" -C "$here/../.." --exclude=__pycache__ \
        --exclude='*.safetensors' src benchmarks/training # nothing is searched there
    cp "$here/carry.sh" "$bundle/"
    du -sh "$bundle"/*
}

unpack() { # bundle, folder
    local bundle=$1 folder site
    mkdir -p "$2/data"
    folder=$(realpath "$2")
    tar xJf "$bundle/site.tar.xz" -C "$folder" & site=$!
    tar xJf "$bundle/rest.tar.xz" -C "$folder/data"
    tar xJf "$bundle/source.tar.xz" -C "$folder"
    python3 - "$bundle/train.jsonl.xz" "$folder/data" <<'PYTHON'
import gzip, hashlib, json, lzma, sys
from pathlib import Path

rows, data = sys.argv[1], Path(sys.argv[2])
out = data / "train.jsonl.gz"
with out.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
    with lzma.open(rows) as lines:
        for line in lines:
            packed.write(line)
found = hashlib.sha256(out.read_bytes()).hexdigest()
wanted = json.loads((data / "card.json").read_text())["train_sha256"]
print("the rows are the card's" if found == wanted else f"OTHER BYTES: {found}, not {wanted}")
sys.exit(found != wanted)
PYTHON
    wait "$site"
    # A package counts as installed where its folder is called site-packages: dill would else pickle
    # modules by their content.
    printf 'export PYTHONPATH=%q HF_HUB_OFFLINE=1\n' "$folder/site-packages:$folder/src" \
        > "$folder/env.sh"
}

results() { # folder of measure.sh, file
    local file; file=$(realpath -m "$2")
    rm -f "$file".new.* # of a call that was cut off
    # tar says 1 of a log that grows while it is read
    (cd "$1" && find . -maxdepth 2 -not -name 'model*' -not -name 'tokenizer*' -type f \
        \( -name '*.json' -o -name '*.jsonl' -o -name '*.jsonl.gz' -o -name '*.log' -o -name '*.svg' \
        -o -name '*.yaml' \) -print0 |
        { tar cJ --warning=no-file-changed --null -T - || [ $? -eq 1 ]; } |
        split -b 15M -d - "$file.new.")
    local piece
    rm -f "$file".[0-9][0-9] # more than there are now would spoil the whole
    for piece in "$file".new.*; do
        mv "$piece" "$file.${piece##*.}"
    done
}

watch() { # folder of measure.sh, seconds, file
    local out=$1 end=$(($(date +%s) + $2)) file=$3 packed=$(date +%s)
    while [ "$(date +%s)" -lt "$end" ] && kill -0 "$(cat "$out/running" 2> /dev/null)" 2> /dev/null; do
        sleep 2
        if [ $(($(date +%s) - packed)) -ge 60 ]; then
            results "$out" "$file" || true
            packed=$(date +%s)
        fi
    done
    results "$out" "$file"
    for log in "$out"/*.log; do
        echo "== $(basename "$log")"
        tr '\r' '\n' < "$log" | tail -n 3 | cut -c1-300
    done
    nvidia-smi --query-gpu=index,utilization.gpu,memory.used --format=csv,noheader 2> /dev/null || true
}

verb=${1:-}; shift || true
case $verb in
    pack | unpack | results | watch) "$verb" "$@" ;;
    *) sed -n '2,7p' "$0" >&2; exit 2 ;;
esac
