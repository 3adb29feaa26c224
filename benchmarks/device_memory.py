"""How long does training stall when other processes take device memory, beside an oracle that knows the future?

    tools/dev run python benchmarks/device_memory.py [--steps 120] [--seed 3] [--work 1.0] [--json FILE]

Runs on the simulated device (tests/support/simulated_device), so seconds are simulated and the same on every machine;
no GPU is measured. A training step uses twelve layers forwards and backwards, each for `--work` milliseconds; a copy
of a layer takes 0.67 ms in either direction. Other processes take memory by a trace:

    ramp    up to three quarters of the device, for a third of the time, and back
    noise   hovering about the governor's low mark
    jumps   to random levels, a layer a step

The policy is a Governor over a SwapPool, with the first step recorded or not. The oracle may keep as many layers in
each step as the policy could, knows all uses (Belady's rule: fewest copies) and overlaps copies perfectly: a step takes
as long as the work or the copies, whichever is longer. Without a governor nothing moves, and a trace ends in the step
in which memory runs out.

Result of the defaults (2026-12-03), time over the oracle's, in brackets copies: recorded, ramp 1.047 (2,537), noise
1.001 (1,418), jumps 1.034 (1,211); first step not recorded 1.581, 1.327 and 1.272. The governor acts 5, 1 and 8 times.
Without it ramp and jumps end in steps 27 and 57, out of memory; noise would have needed nothing.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import memory_traces as traces

POLICIES = (("recorded", True, True), ("unrecorded", True, False), ("no governor", False, True))


def main() -> None:
    """Prints the table."""
    options = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    options.add_argument("--steps", type=int, default=120, help="training steps a trace")
    options.add_argument("--seed", type=int, default=3, help="of the random traces")
    options.add_argument("--work", type=float, default=1.0, help="milliseconds that a layer's work takes")
    options.add_argument("--json", type=Path, help="where to write the figures too")
    args = options.parse_args()
    if args.steps < 9 or args.work <= 0:
        options.error("--steps must be at least 9 and --work positive")
    seconds = args.work / 1000
    made = {
        "ramp": traces.ramp(args.steps),
        "noise": traces.noise(args.steps, args.seed),
        "jumps": traces.jumps(args.steps, args.seed),
    }
    results = []
    print(
        f"{'trace':7} {'policy':12} {'steps':>5} {'stall (s)':>10} {'oracle (s)':>10} {'time/oracle':>11} {'moves':>6} "
        f"{'peak (layers)':>13} {'actions':>7}"
    )
    for name, others in made.items():
        for policy, governed, recorded in POLICIES:
            outcome = traces.train(others, governed=governed, recorded=recorded, seconds=seconds)
            best = traces.oracle(outcome.room, seconds)
            if outcome.faults:
                raise SystemExit(f"{name}, {policy}: the simulated device found {outcome.faults[0]}")
            out_of_memory = "  out of memory" if outcome.steps < args.steps else ""
            print(
                f"{name:7} {policy:12} {outcome.steps:5d} {max(0.0, outcome.stall):10.3f} "
                f"{max(0.0, best - outcome.compute):10.3f} {outcome.elapsed / best:11.3f} {outcome.moves:6d} "
                f"{outcome.peak / traces.LAYER:13.1f} {outcome.actions:7d}{out_of_memory}"
            )
            figures = {k: v for k, v in asdict(outcome).items() if k not in ("room", "faults")}
            results.append({"trace": name, "policy": policy, "oracle_elapsed": best, **figures})
    if args.json is not None:
        args.json.write_text(json.dumps({"arguments": vars(args) | {"json": str(args.json)}, "results": results}))


if __name__ == "__main__":
    main()
