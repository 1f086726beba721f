#!/bin/sh
# Spreads the cases of an experiment over processes of this machine, and merges
# what they find. Each process is a shard; a shard that was broken off goes on
# where it was when the same command is given again.
#
#   packaging/sweeps/local.sh experiments/zncache-table5.toml results/table5 4
#
# With GNU parallel the processes also go to other machines: see the end.
set -eu

if [ $# -lt 2 ]; then
    echo "usage: $0 EXPERIMENT.toml FOLDER [SHARDS]" >&2
    exit 2
fi
experiment=$1
folder=$2
shards=${3:-$(nproc)}
floe=${FLOE:-floe}

# One shard: into a folder of its own, which is resumed if it is there.
run_shard() {
    place=$folder/shard-$1-of-$shards
    for made in "$place"/*/sweep.json; do
        if [ -e "$made" ]; then
            "$floe" bench "$experiment" --quiet --jobs 1 --resume "${made%/sweep.json}"
            return
        fi
    done
    "$floe" bench "$experiment" --quiet --jobs 1 --shard "$1/$shards" --out "$place"
}

mkdir -p "$folder"
pids=
index=1
while [ "$index" -le "$shards" ]; do
    run_shard "$index" >"$folder/shard-$index-of-$shards.log" 2>&1 &
    pids="$pids $!"
    index=$((index + 1))
done

failed=0
index=1
for pid in $pids; do
    if ! wait "$pid"; then
        failed=1
        echo "shard $index of $shards failed:" >&2
        cat "$folder/shard-$index-of-$shards.log" >&2
    fi
    index=$((index + 1))
done
if [ "$failed" -ne 0 ]; then
    echo "what is done is kept in $folder; give the same command again to go on" >&2
    exit 1
fi

# Shards without a case of their own made a folder, too: all are merged.
"$floe" report "$folder"/shard-*-of-"$shards"/*/ --out "$folder/merged"

# The same with GNU parallel over machines that share the folder's file system:
#
#   parallel --sshloginfile hosts --joblog sweep.log --resume-failed --wd "$PWD" \
#       floe bench experiments/zncache-table5.toml --quiet --jobs 1 \
#       --shard {}/32 --out results/table5/shard-{}-of-32 ::: $(seq 32)
#   floe report results/table5/shard-*-of-32/*/ --out results/table5/merged
