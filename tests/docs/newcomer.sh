#!/bin/sh
# What a newcomer does on the first day: a cluster and tables of their own, each command, each format, the usual mistakes.
# `step CODE COMMAND...` runs a command, which is to end with CODE and without a traceback. Run it in an empty folder.

steps=0 wrong=0
step() {
    expected=$1
    shift
    steps=$((steps + 1))
    "$@" > stdout.txt 2> stderr.txt
    code=$?
    cat stdout.txt
    if [ "$code" != "$expected" ] || grep -q Traceback stderr.txt; then
        wrong=$((wrong + 1))
        { echo "step $steps: $* ended with $code, not $expected"; cat stderr.txt; } >&2
    fi
}
says() {  # of the step before: words that it printed
    grep -q -- "$1" stdout.txt stderr.txt && return
    wrong=$((wrong + 1))
    { echo "step $steps does not say: $1"; cat stdout.txt stderr.txt; } >&2
}

# A cluster of two kinds of nodes: PCIe alone, cards of their own number, drives in one kind, no DDR; three nodes under a leaf.
cat > cluster.yaml <<'END'
name: odd
nodes:
  - name: old
    count: 2
    accelerators: &gpu
      count: 3
      device: A100-PCIE-80GB
      hbm: {capacity: 80GB, bandwidth: 1935GB/s}
      flops: {fp32: 19.5TFLOP/s, tf32: 156TFLOP/s, fp16: 312TFLOP/s, bf16: 312TFLOP/s}
    links:
      pcie: {bandwidth: 25GB/s}
      scale_out: {kind: roce, count: 1, bandwidth: 100Gb/s, latency: 2us}
  - name: new
    count: 2
    accelerators: *gpu
    host: {ssd: {capacity: 3TB, read_bandwidth: 7GB/s, write_bandwidth: 3GB/s, iops: 500kIOPS}}
    links:
      pcie: {bandwidth: 25GB/s}
      scale_out: {kind: roce, count: 3, bandwidth: 200Gb/s}
network: {levels: [{name: leaf, nodes: 2, oversubscription: 3}]}
END
cat > tables.csv <<'END'
name,num_embeddings,embedding_dim,pooling_factor,zipf_alpha,weighted
user,2000000,64,1,,false
items,500000,128,20.5,1.05,true
rare,40,8,0.1,,false
страна,250,16,1,1.2,false
END
cat > workload.yaml <<'END'
name: mine
global_batch: 12000
tables: tables.csv
embedding: {dtype: fp16, optimizer: adam}
dense: {numerical_features: 13, bottom_mlp: [64, 16], interaction: concat, top_mlp: [128, 1], dtype: bf16}
END
cat > rules.yaml <<'END'
kind: policy
reserve: {hbm: 5%}
tables: [{match: "it*", max_shards: 8}]
separate: [[user, items]]
END

step 0 planner --version
step 0 planner --help > help.txt
step 0 planner doctor
step 0 planner doctor --cluster
step 0 planner check cluster.yaml tables.csv workload.yaml rules.yaml
step 0 planner check cluster.yaml --format markdown
step 0 planner topology show cluster.yaml -o cluster.svg
step 0 planner schema topology > topology.schema.json
step 0 planner catalog list
step 0 planner catalog list workloads --format csv
step 0 planner catalog show dgx-h100 > dgx.yaml
step 0 planner catalog coefficients
step 0 planner init starter --from dgx-h100 --nodes 2 --template dlrm
step 0 planner init starter --tables tables.csv --force

# A plan in every format, from files and from standard input.
plan="planner plan -t cluster.yaml -w workload.yaml --effort 0 -q"
step 0 $plan -p rules.yaml -o plan.json
step 0 $plan --format json -o again.json > shown.json
step 0 $plan --format csv > shards.csv
step 0 $plan --format markdown > plan.md
cat cluster.yaml | step 0 planner plan -t - -w workload.yaml -p rules.yaml --effort 0 -q -o piped.json
step 0 cmp plan.json piped.json
step 2 planner plan -t - -w - -q < cluster.yaml
says "standard input holds one of the two"
step 0 $plan --runtime torchrec --set topology.nodes.1.count=1 --set workload.embedding.dtype=fp32 --no-simulate
step 0 $plan --pin 'us*=0-2' --forbid 'items=0' --column-multiple 32 --goals step=1%,blocks --seed 7
step 0 planner plan -t dgx.yaml -w tables.csv --global-batch 4096 --nodes 2 --effort 0 -q -o two.json

# What it says of a plan.
for format in table json csv markdown; do
    step 0 planner explain plan.json --format $format
    step 0 planner memory plan.json --format $format
    step 0 planner compare plan.json again.json --format $format
    step 0 planner diff plan.json again.json --format $format
    step 0 planner verify plan.json --format $format
    step 0 planner simulate plan.json --steps 2 --format $format
done
step 0 planner explain plan.json --table страна
step 0 planner explain plan.json --layer '*'
step 0 planner explain plan.json --rank 4
step 0 planner explain plan.json --stage lookup_forward
step 0 planner memory plan.json --course
step 7 planner diff plan.json two.json --exit-code
step 0 planner check plan.json --max-step 1s --max-gap 99% --max-hbm 95%
step 6 planner check plan.json --max-step 1us --format json
step 0 planner verify plan.json -t cluster.yaml -w workload.yaml -p rules.yaml
step 6 planner verify plan.json -t cluster.yaml -w workload.yaml --global-batch 6000
step 0 planner simulate plan.json --jitter 5% --slow-rank 1=1.5 --seed 3 --trace traces

# To other tools, and back.
step 0 planner export plan.json --to inputs -o inputs
step 0 planner plan -t inputs/topology.yaml -w inputs/workload.yaml -p inputs/policy.yaml --effort 0 -q -o same.json
step 0 planner check same.json --same-as plan.json
step 0 planner plan -t dgx.yaml -w tables.csv --global-batch 4096 --runtime torchrec --effort 0 -q -o one.json
step 0 planner export one.json --to torchrec -o torchrec.json
step 0 planner import torchrec.json --from torchrec -t dgx.yaml -w tables.csv --global-batch 4096 -o theirs.json
step 0 planner topology export dgx.yaml --nodes 2 --to infragraph -o graph.yaml
step 0 planner topology import graph.yaml --like dgx-h100 -o back.yaml
step 0 planner plan -t dgx.yaml -w tables.csv --global-batch 4096 --nodes 2 --from one.json --effort 0 -q
printf 'name,*.pooling_factor,user.dim\nshort,1,64\nwide,2,128\n' > candidates.csv
step 0 planner cost two.json --changes candidates.csv --format csv

# Sizes, studies, runs.
step 0 planner size -t dgx.yaml -w tables.csv --global-batch 4096 --fits --max-nodes 4 --effort 0 -q
step 0 planner size -t cluster.yaml --group new -w workload.yaml --fits --max-nodes 4 --effort 0 -q --no-each-tier
cat > study.yaml <<'END'
name: batches
topology: dgx.yaml
workload: starter/workload.yaml
axes: {workload.embedding.dtype: [fp32, fp16]}
END
step 0 planner study study.yaml -q --no-cache -o results.csv --workers 1
step 0 planner study study.yaml -q --no-cache --workers 1 --format json > points.json
cat > run.yaml <<'END'
name: short
kind: run
topology: dgx.yaml
workload: workload.yaml
stages: [{global_batch: 12000, samples: 1.2e6, nodes: 1}]
END
step 0 planner run run.yaml -q
step 0 planner cache info

# Mistakes, each of which is named with a remedy.
step 3 planner plan -t cluster.yml -w workload.yaml -q
step 3 planner check cluster.yaml tables.csv nothing.yaml
sed 's/80GB,/80,/' cluster.yaml > unit.yaml
step 3 planner check unit.yaml
says "has no unit; write for example 40GB"
sed 's/embedding_dim/dimm/' tables.csv > key.csv
step 3 planner check key.csv
sed 's/^rare/user/' tables.csv > twice.csv
step 3 planner check twice.csv
says "the name 'user' stands twice"
step 3 $plan --set workload.tables.user.dim=30
says "not a multiple of 4; pad the table to 32"
step 3 $plan --pin user=12
step 2 $plan --max-move 5GB
says "no effect without --from"
step 2 $plan -o cluster.yaml
says "would be overwritten"
step 2 $plan -o /nowhere/plan.json
step 2 $plan --gap 1
step 2 planner explain plan.json --table usr
says "did you mean 'user'"
step 3 planner explain workload.yaml
step 4 $plan --set topology.nodes.0.accelerators.hbm.capacity=1MB --set topology.nodes.1.accelerators.hbm.capacity=1MB
step 3 planner size -t cluster.yaml --group nope -w workload.yaml --fits
says "--group: 'nope' is not a node group"

echo "$steps steps, $wrong wrong"
[ "$wrong" = 0 ]
