"""Processes of torch.distributed: an epoch that two of them began is finished by three, each sample once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing
from loader_data import CROP, ROWS

import zerocopy_data as zcd

STEPS, BATCH, EPOCH = 3, 4, 2


def _loader(path: str, **sampler: Any) -> Any:
    ds = zcd.open(path, CROP).select(["image", "number"])
    asked = zcd.EpochSampler(len(ds), seed=5, uneven="uneven", **sampler)
    loader = zcd.StatefulDataLoader(ds, BATCH, sampler=asked, seed=5, num_workers=1)
    loader.set_epoch(EPOCH)
    return loader


def _train(rank: int, world: int, folder: str, path: str, form: str, stop: bool) -> None:
    """What a training script does: every rank for itself, with collective steps between."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    dist.init_process_group("gloo", init_method=f"file://{folder}/meet-{world}", rank=rank, world_size=world)
    try:
        loader = _loader(path)
        saved = Path(folder) / "saved"
        if not stop:
            if form == "torch.save":
                loader.load_state_dict(torch.load(saved, weights_only=False)["loader"])
            else:
                dcp.load({"loader": loader}, checkpoint_id=saved)
        seen = []
        for step, batch in enumerate(loader, 1):
            for image, number in zip(batch["image"], batch["number"].tolist(), strict=True):
                seen.append((number, float(image.double().sum())))
            if stop:
                dist.all_reduce(torch.ones(1))
                if step == STEPS:
                    break
        if stop and form == "torch.save" and rank == 0:
            torch.save({"loader": loader.state_dict()}, saved)
        elif stop and form != "torch.save":
            dcp.save({"loader": loader}, checkpoint_id=saved)
        (Path(folder) / f"seen-{world}-{rank}.json").write_text(json.dumps(seen))
        dist.barrier()
    finally:
        dist.destroy_process_group()


@pytest.mark.skipif(sys.platform != "linux" or not torch.distributed.is_available(), reason="needs gloo")
@pytest.mark.parametrize("form", ["torch.save", "torch.distributed.checkpoint"])
def test_two_processes_begin_an_epoch_and_three_finish_it(photos_path: Path, tmp_path: Path, form: str) -> None:
    for world, stop in ((2, True), (3, False)):
        given = (world, str(tmp_path), str(photos_path), form, stop)
        torch.multiprocessing.spawn(_train, given, nprocs=world)
    seen = [tuple(one) for file in sorted(tmp_path.glob("seen-*.json")) for one in json.loads(file.read_text())]
    assert sum(len(json.loads(file.read_text())) for file in tmp_path.glob("seen-2-*")) == 2 * STEPS * BATCH
    assert sorted(number for number, _ in seen) == list(range(ROWS))
    alone = {
        number: float(image.double().sum())
        for batch in _loader(str(photos_path), rank=0, world_size=1)
        for image, number in zip(batch["image"], batch["number"].tolist(), strict=True)
    }
    assert dict(seen) == alone, "crops are those of a run without a stop"
