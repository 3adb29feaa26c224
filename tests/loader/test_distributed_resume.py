"""Processes of torch.distributed: an epoch that two of them began is finished by three, each sample once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
from loader_data import CROP, ROWS

import zerocopy_data as zcd

STEPS, BATCH, EPOCH = 3, 4, 2
FORMS = ("torch.save", "checkpoint")


def _loader(path: str, **sampler: Any) -> Any:
    ds = zcd.open(path, CROP).select(["image", "number"])
    asked = zcd.EpochSampler(len(ds), seed=5, uneven="uneven", **sampler)
    loader = zcd.StatefulDataLoader(ds, BATCH, sampler=asked, seed=5, num_workers=1)
    loader.set_epoch(EPOCH)
    return loader


def _begin(rank: int, folder: str, path: str) -> None:
    """What a training script does: every rank for itself, with collective steps between; then it is stopped."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet-2", rank=rank, world_size=2)
    try:
        loader = _loader(path)
        seen = []
        for _, batch in zip(range(STEPS), loader, strict=False):
            dist.all_reduce(torch.ones(1))
            seen += _sums(batch)
        if rank == 0:
            torch.save({"loader": loader.state_dict()}, f"{folder}/torch.save")
        dcp.save({"loader": loader}, checkpoint_id=f"{folder}/checkpoint")
        Path(f"{folder}/begun-{rank}.json").write_text(json.dumps(seen))
    finally:
        dist.destroy_process_group()


def _finish(rank: int, folder: str, path: str) -> None:
    """Goes on with one rank more, from either form of checkpoint."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet-3", rank=rank, world_size=3)
    try:
        for form in FORMS:
            loader = _loader(path)
            if form == "torch.save":
                loader.load_state_dict(torch.load(f"{folder}/torch.save", weights_only=False)["loader"])
            else:
                dcp.load({"loader": loader}, checkpoint_id=f"{folder}/checkpoint")
            seen = [one for batch in loader for one in _sums(batch)]
            Path(f"{folder}/{form}-{rank}.json").write_text(json.dumps(seen))
            dist.barrier()
    finally:
        dist.destroy_process_group()


def _sums(batch: Any) -> list[tuple[int, float]]:
    numbers = batch["number"].tolist()
    return [(number, float(image.double().sum())) for image, number in zip(batch["image"], numbers, strict=True)]


def _read(folder: Path, name: str) -> list[tuple[int, float]]:
    return [tuple(one) for file in sorted(folder.glob(f"{name}-*.json")) for one in json.loads(file.read_text())]


@pytest.mark.skipif(sys.platform != "linux" or not dist.is_available(), reason="needs gloo")
def test_two_processes_begin_an_epoch_and_three_finish_it(photos_path: Path, tmp_path: Path) -> None:
    for function, world in ((_begin, 2), (_finish, 3)):
        torch.multiprocessing.spawn(function, (str(tmp_path), str(photos_path)), nprocs=world)
    begun = _read(tmp_path, "begun")
    assert len(begun) == 2 * STEPS * BATCH
    alone = dict(one for batch in _loader(str(photos_path), rank=0, world_size=1) for one in _sums(batch))
    for form in FORMS:
        seen = begun + _read(tmp_path, form)
        assert sorted(number for number, _ in seen) == list(range(ROWS)), form
        assert dict(seen) == alone, "crops are those of a run without a stop"
