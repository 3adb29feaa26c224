"""What does `zcd.compile` bring to an unchanged torch script over a folder of JPEGs, without packing it?

    tools/dev run python benchmarks/compile.py [--data DIR] [--json FILE]

The script: torchvision's ImageFolder with RandomResizedCrop(224), RandomHorizontalFlip and PILToTensor (or ToTensor and
Normalize), torch's DataLoader, two persistent workers, batches of 64, shuffled. Beside it the same ImageFolder through
`zcd.compile` and `zcd.DataLoader` with two threads. Each in a process of its own, bound to two cores, taking turns.
Exits with 1 when the claim does not hold.

Measured 2026-12-01 on two cores of an AMD EPYC, five rounds, 500 JPEGs of ImageNet; zcd.compile beside the script:
    uint8    1,389 [1,266–1,478] beside 327 [283–337] images/s: 4.38 [4.10–4.88] times; CPU 1.22 beside 5.19 ms an image
    float32  1,229 [1,195–1,334] beside 248 [236–275] images/s: 5.13 [4.35–5.38] times; CPU 1.37 beside 6.70 ms an image
"""

import argparse
import datetime
import json
import math
import sys
from pathlib import Path
from typing import Any

from zerocopy_data.tuning import machine
from zerocopy_data.tuning.harness import Arm, Plan, Result, measure, ratio
from zerocopy_data.tuning.image_arms import (
    CROP,
    IMAGENET_MEAN,
    IMAGENET_STD,
    WORKLOADS,
    Setting,
    TensorLoaderArm,
    TorchArm,
    list_images,
)
from zerocopy_data.tuning.images import find_tree
from zerocopy_data.tuning.statistics import Estimate

SAMPLE = Path(__file__).parents[2] / "shared" / "imagenet-sample"
MEASURED = ("train-uint8", "train-float32")
CLAIM = ("train-uint8", 3.0)  # times as fast as the unchanged script


class CompiledArm(TensorLoaderArm):
    """The script's own dataset, compiled."""

    def __init__(self, setting: Setting) -> None:
        import numpy as np
        from torchvision import datasets, transforms

        import zerocopy_data as zcd

        operations: list[Any] = [transforms.RandomResizedCrop(CROP), transforms.RandomHorizontalFlip()]
        if setting.workload == "train-float32":
            operations += [transforms.ToTensor(), transforms.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
        else:
            operations += [transforms.PILToTensor()]
        folder = datasets.ImageFolder(str(setting.folder), transforms.Compose(operations))
        dataset = zcd.compile(folder)
        dataset = dataset.subset(np.tile(np.arange(len(dataset)), setting.copies))
        loader = zcd.DataLoader(
            dataset, setting.batch_size, shuffle=True, num_workers=setting.threads, drop_last=True, seed=0
        )
        assert loader.uses_threads()
        super().__init__(loader)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=SAMPLE, help=f"ImageFolder of JPEGs (default: {SAMPLE})")
    parser.add_argument("--workloads", default=",".join(MEASURED))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="least time of one measurement")
    parser.add_argument("--epoch-items", type=int, default=2000, help="a smaller folder is passed over several times")
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()

    tree = find_tree(options.data)
    files = list_images(tree)
    copies = math.ceil(options.epoch_items / len(files))
    plan = Plan(options.repeats, options.seconds, options.threads)
    pairs: list[tuple[Result, Result, Estimate]] = []
    for workload in options.workloads.split(","):
        setting = Setting(workload, tree, tree, None, options.batch_size, options.threads, copies)
        arms = [Arm("zcd.compile", workload, CompiledArm, (setting,)), Arm("torch", workload, TorchArm, (setting,))]
        ours, theirs = measure(arms, plan, lambda message: print(message, file=sys.stderr))
        pairs.append((ours, theirs, ratio(ours, theirs)))

    print(
        f"{machine.cpu_model()}, {len(files)} images, batch {options.batch_size}, {options.threads} threads or workers"
    )
    for ours, theirs, faster in pairs:
        print(WORKLOADS[ours.arm.workload])
        for result in (ours, theirs):
            line = result.as_json()
            rates = f"{line['items_per_s']:8,.0f} images/s [{line['low']:,.0f}–{line['high']:,.0f}]"
            costs = f"{1e3 * line['cpu_s_per_item']:.2f} ms CPU  {line['peak_pss_mb']:,.0f} MB"
            print(f"  {result.arm.loader:<12}{rates}  {costs}")
        print(f"  {faster.median:.2f} times as fast [{faster.low:.2f}–{faster.high:.2f}]")
    if options.json is not None:
        report = {
            "benchmark": "compile",
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": machine.describe(),
            "versions": machine.versions(),
            "commit": machine.commit(Path(__file__).parent),
            "options": {"batch_size": options.batch_size, "threads": options.threads, "images": len(files)},
            "results": [result.as_json() for ours, theirs, _ in pairs for result in (ours, theirs)],
            "ratios": [
                {"workload": ours.arm.workload, "loader": "zcd.compile", "over": "torch", **vars(faster)}
                for ours, _, faster in pairs
            ],
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    claimed, least = CLAIM
    figures = [faster.median for ours, _, faster in pairs if ours.arm.workload == claimed]
    for figure in figures:
        print(f"{'holds' if figure >= least else 'FAILS'}: at least {least:g} times as fast on {claimed}: {figure:.2f}")
    return 0 if all(figure >= least for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
