#!/usr/bin/env python3
"""Spreads the cases of an experiment over jobs of Slurm by submitit, and merges what they find.

    pip install submitit
    packaging/sweeps/submitit_sweep.py experiments/zncache-table5.toml results/table5 16

Without Slurm the shards run as processes of this machine. A shard that fails is submitted again,
three times, and goes on where it was; so does one that meets its time limit. The folder must lie
on a file system that all nodes share. FLOE names the binary.
"""

import argparse
import os
import pathlib
import subprocess
import sys

import submitit

TRIES = 4
# A mistake in the experiment, which no repetition mends.
USAGE = 2


class Shard:
    """One shard, as a job. Slurm may move it to another node at any time."""

    def __init__(self, experiment, folder, number, shards):
        self.experiment = experiment
        self.place = f"{folder}/shard-{number}-of-{shards}"
        self.share = f"{number}/{shards}"

    def __call__(self):
        made = sorted(pathlib.Path(self.place).glob("*/sweep.json"))
        where = ["--resume", str(made[0].parent)] if made else [
            "--shard", self.share, "--out", self.place]
        floe = os.environ.get("FLOE", "floe")
        command = [floe, "bench", self.experiment, "--quiet", "--jobs", "1", *where]
        return subprocess.run(command, check=False).returncode

    def checkpoint(self):
        """The job goes on after a time limit or a preemption."""
        return submitit.helpers.DelayedSubmission(self)


def run(executor, shards):
    """Runs all shards, and returns those that have failed for good."""
    waiting = shards
    for _ in range(TRIES):
        # The jobs of a batch are one array of Slurm.
        with executor.batch():
            jobs = [(shard, executor.submit(shard)) for shard in waiting]
        waiting = []
        for shard, job in jobs:
            try:
                status = job.result()
            except Exception as error:
                print(f"{shard.place}: {str(error).strip().splitlines()[-1]}", file=sys.stderr)
                status = None
            if status == USAGE:
                sys.exit(f"{shard.place}: the experiment is wrong; see the job's log")
            if status != 0:
                waiting.append(shard)
        if not waiting:
            break
    return waiting


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("experiment")
    parser.add_argument("folder")
    parser.add_argument("shards", type=int)
    parser.add_argument("--minutes", type=int, default=240, help="time limit of a shard")
    parser.add_argument("--memory-gb", type=float, default=4)
    parser.add_argument("--partition", help="of Slurm")
    options = parser.parse_args()
    folder = str(pathlib.Path(options.folder).absolute())
    experiment = str(pathlib.Path(options.experiment).absolute())
    executor = submitit.AutoExecutor(folder=f"{folder}/jobs")
    executor.update_parameters(
        name="floe-sweep",
        timeout_min=options.minutes,
        cpus_per_task=1,
        mem_gb=options.memory_gb,
        slurm_array_parallelism=options.shards,
        **({"slurm_partition": options.partition} if options.partition else {}),
    )
    numbers = range(1, options.shards + 1)
    failed = run(executor, [Shard(experiment, folder, n, options.shards) for n in numbers])
    floe = os.environ.get("FLOE", "floe")
    made = sorted(str(path.parent) for path in pathlib.Path(folder).glob("shard-*/*/sweep.json"))
    # It says which cases are missing.
    subprocess.run([floe, "report", *made, "--out", f"{folder}/merged"], check=True)
    if failed:
        sys.exit(f"failed {TRIES} times: {', '.join(shard.place for shard in failed)}")


if __name__ == "__main__":
    main()
