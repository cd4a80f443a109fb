#!/usr/bin/env bash
# Measures what docs/training.md shows of one training, on a machine with one GPU or two:
#   benchmarks/training/measure.sh DATA OUT
# DATA is a folder of 'agentkernel train data'. The same call goes on after a kill.
#
#   GPU 0: fine-tuning, practice, then what both answer, at three temperatures
#   GPU 1: the ablation, side by side: write, write + repair, all three tasks, each with PASSES passes
#          over its rows, so that all see the rows of write equally often; then what these answer,
#          and the untrained model. With one GPU it comes last.
#
# OUT/answers holds all answers: 'train evaluate --answers OUT/answers' judges them on any machine,
# with '--samples ARM_SAMPLES' for those of the arms.
# SFT_MINUTES, RL_MINUTES, PASSES, SAMPLES, ARM_SAMPLES, JOBS (judges), CONFIG, and SFT and RL
# (more flags) may be set.
set -uo pipefail
data=$(realpath "$1") out=$(realpath -m "$2")
sft_minutes=${SFT_MINUTES:-20} rl_minutes=${RL_MINUTES:-7} passes=${PASSES:-6}
config=${CONFIG:-small} samples=${SAMPLES:-10} jobs=${JOBS:-$(nproc)}
arm_samples=${ARM_SAMPLES:-5}
read -ra sft_flags <<< "${SFT:-}"; read -ra rl_flags <<< "${RL:-}"
mkdir -p "$out" && cd "$out" || exit 1
exec 9> .measure.lock # kept by what a killed call leaves at work, too
flock -n 9 || { echo "Another call measures in $out. Next: wait for it, or end it." >&2; exit 1; }
echo $$ > running
rm -f .practised
trap 'rm -f running' EXIT
all_tasks=(--task write --task repair --task optimise)
gpus=$(nvidia-smi -L 2> /dev/null | wc -l)
begun=$(date +%s)

say() { echo "[$(($(date +%s) - begun)) s] $*" | tee -a progress.log; }
# A command by its log's name; its last line is shown.
run() {
    local log=$1.log; shift
    "$@" > "$log" 2>&1; local code=$?
    say "$log: $(tr '\r' '\n' < "$log" | tail -n 3 | head -n 1) (exit $code)"
    return $code
}
ak() { python3 -m agentkernel train "$@"; }
tuned() { # folder, further flags
    local folder=$1; shift
    ak sft "$data" --out "$folder" --config "$config" -c sft.evaluate_problems=0 \
        -c sft.save_steps=1000 "$@" "${sft_flags[@]}"
}
# The same weights, asked at another temperature.
at() {
    mkdir -p "$1-$2"
    for file in "$1"/*; do [ "$(basename "$file")" = checkpoints ] || ln -sf "../$file" "$1-$2/"; done
    rm -f "$1-$2/agentkernel.yaml"
    sed "s/^temperature: .*/temperature: $2/" "$1/agentkernel.yaml" > "$1-$2/agentkernel.yaml"
}
judged() { # name of the figures, judges, flags
    local name=$1 judges=$2; shift 2
    run "evaluate-$name" ak evaluate "$data" --samples "$samples" --budget 0 --jobs "$judges" \
        --answers answers --out "figures-$name.json" "$@"
}
arm() { # name, tasks
    mkdir -p "arm-$1"
    [ -e "arm-$1/tokenizer" ] || cp -r sft/tokenizer "arm-$1/"
    run "arm-$1" tuned "arm-$1" -c sft.epochs="$passes" -c "sft.tasks=$2"
}
# Waits for a file of the main shell, and ends with that.
wait_for() { until [ -e "$1" ]; do kill -0 $$ 2> /dev/null || exit 1; sleep 1; done; }
arms() {
    wait_for sft/training.jsonl # from then on fine-tuning needs few processors
    arm three '[write,optimise,repair]' & arm repair '[write,repair]' & arm write '[write]' & wait
    wait_for .practised # whose judges others would slow down
    samples=$arm_samples judged arms $((jobs / 4 + 1)) "${all_tasks[@]}" \
        --model local:arm-write --model local:arm-repair --model local:arm-three &
    judged untrained 2 --model untrained:sft &
    wait
}

say "begin on $gpus GPUs"
# Of two GPUs the second is the ablation's.
if [ "$gpus" -gt 1 ]; then (export CUDA_VISIBLE_DEVICES=1; arms) & fi
export CUDA_VISIBLE_DEVICES=0
# Passes without end: the time says when the learning rate has come to its own.
run sft tuned sft -c sft.epochs=60 -c sft.most_minutes="$sft_minutes" || exit 1
run rl ak rl "$data" --model sft --out rl --config "$config" \
    -c rl.most_minutes="$rl_minutes" --device cpu --speed none --jobs "$jobs" "${rl_flags[@]}"
touch .practised
for temperature in 0.3 1.0; do at sft $temperature; at rl $temperature; done
# Side by side, so that all answers are there within a minute; then the judges share the processors.
judged main $((jobs / 2 + 1)) "${all_tasks[@]}" \
    --model local:sft --model local:rl --model nearest &
judged 0.3 $((jobs / 8 + 1)) --model local:sft-0.3 --model local:rl-0.3 &
judged 1.0 $((jobs / 8 + 1)) --model local:sft-1.0 --model local:rl-1.0 &
wait
[ "$gpus" -gt 1 ] || arms
tail -n 12 evaluate-*.log
say "end"
