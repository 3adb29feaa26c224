"""How fast are image batches beside other loaders, and how much does everything around the decoder cost?

    tools/dev run python benchmarks/images.py [--data DIR] [--json FILE]

Prints the table of `zcd bench images` and then the claims that rest on it, each with the figure measured.
Exits with 1 when a claim does not hold.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from zerocopy_data.cli.bench import print_report
from zerocopy_data.tuning.harness import Plan, ratio
from zerocopy_data.tuning.image_arms import LOADERS, WORKLOADS
from zerocopy_data.tuning.images import Report, Request, bench_images
from zerocopy_data.tuning.statistics import estimate

SAMPLE = Path(__file__).parents[2] / "shared" / "imagenet-sample"


@dataclass(frozen=True)
class Claim:
    """What must hold on one workload."""

    text: str
    workload: str
    at_least: float
    over: str | None = None  # a loader: the figure is a ratio; None: images per second and core

    def measured(self, report: Report) -> float | None:
        """The figure; None when something it needs was not measured."""
        results = {(result.arm.loader, result.arm.workload): result for result in report.results}
        ours = results.get(("zcd", self.workload))
        if ours is None:
            return None
        if self.over is None:
            return estimate(ours.rates).median / report.request.threads
        theirs = results.get((self.over, self.workload))
        return None if theirs is None else ratio(ours, theirs).median


CLAIMS = [
    Claim("uint8 batches beside torch's DataLoader with PIL", "train-uint8", 3.3, "torch"),
    Claim("uint8 batches beside DALI on the CPU", "train-uint8", 1.9, "dali"),
    Claim("float32 normalised batches beside torch's DataLoader", "train-float32", 4.0, "torch"),
    Claim("uint8 batches beside the bare native loop", "train-uint8", 0.9, "zcd-native"),
    Claim("raw 256: RandomCrop and flip, images/s per core", "raw256-crop", 25_000),
    Claim("raw 256: RandomResizedCrop and flip, images/s per core", "raw256-rrc", 7_000),
]


def print_claims(report: Report, write: Callable[[str], object] = print) -> bool:
    """Prints every claim with its figure.

    Returns:
        Whether all that were measured hold.
    """
    holds = True
    for claim in CLAIMS:
        figure = claim.measured(report)
        unit = "" if claim.over is None else "x"
        bound = f"at least {claim.at_least:,g}{unit}"
        if figure is None:
            write(f"  --      {claim.text}: not measured ({bound})")
            continue
        held = figure >= claim.at_least
        holds = holds and held
        shown = f"{figure:,.0f}" if claim.over is None else f"{figure:.2f}x"
        write(f"  {'holds' if held else 'FAILS'}   {claim.text}: {shown} ({bound})")
    return holds


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=SAMPLE, help=f"ImageFolder of JPEGs (default: {SAMPLE})")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--loaders", default=",".join(LOADERS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="least time of one measurement")
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()

    request = Request(
        data=options.data,
        loaders=tuple(options.loaders.split(",")),
        workloads=tuple(options.workloads.split(",")),
        threads=options.threads,
    )
    plan = Plan(options.repeats, options.seconds, options.threads)
    report = bench_images(request, plan, lambda message: print(message, file=sys.stderr))
    print_report(report)
    holds = print_claims(report)
    if options.json is not None:
        options.json.write_text(json.dumps(report.as_json(), indent=2) + "\n")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
