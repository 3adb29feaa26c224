"""A Lightning checkpoint of mid-epoch: two ranks began the epoch, three or one finish it, each sample once."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from framework_runs import RANKS, ROWS, model, needs, open_photos, recorded, run_ranks

import zerocopy_data as zcd

pytestmark = needs("lightning")

BATCH = 4
STEPS = ROWS // (RANKS * BATCH)
EPOCH, STOP = 1, 2  # the run ends after so many batches of this epoch
LEFT = ROWS - STOP * RANKS * BATCH
Seen = dict[int, list[tuple[int, float]]]  # by epoch: the samples' numbers and the sums of their pixels


class StopError(Exception):
    """What ends the run."""


def net(loader: Any, stop: int | None = None) -> Any:
    """A module that notes its samples; raises StopError at the batch after the `stop`-th."""
    from lightning.pytorch import LightningModule

    class Net(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model()
            self.seen: Seen = {}
            self.last: list[bool] = []

        def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:  # README, "With Lightning, …"
            fit = checkpoint["loops"]["fit_loop"]
            served = fit["state_dict"]["combined_loader"][0]["position"]
            left = math.ceil((len(loader.dataset) - served) / (loader.batch_size * self.trainer.world_size))
            if not left:
                del fit["state_dict"]["combined_loader"]
            count = fit["epoch_loop.batch_progress"]["current"]
            ahead = len(loader) - left - count["ready"]
            count.update({name: number + ahead for name, number in count.items()})

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            if self.trainer.global_step == stop:
                raise StopError
            sums = batch["image"].double().sum((1, 2, 3)).tolist()
            self.seen.setdefault(self.trainer.current_epoch, []).extend(
                zip(batch["number"].tolist(), sums, strict=True)
            )
            self.last.append(self.trainer.is_last_batch)
            return torch.nn.functional.cross_entropy(self.inner(batch["image"]), batch["label"])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.01)

    return Net()


def train(photos_path: Path, folder: Path, world: int, stop: int | None = None, resume: bool = False) -> Any:
    """Trains to the end of the epoch after EPOCH, with a checkpoint when the run is to stop; or goes on from it."""
    from lightning.pytorch import Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    ds = open_photos(photos_path)
    loader = zcd.StatefulDataLoader(ds, BATCH, sampler=zcd.EpochSampler(len(ds), seed=5), seed=5, num_workers=1)
    module = net(loader, stop)
    with recorded() as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = Trainer(
            accelerator="cpu",
            devices=world,
            strategy="ddp" if world > 1 else "auto",
            use_distributed_sampler=False,
            max_epochs=EPOCH + 2,
            num_sanity_val_steps=0,
            callbacks=[ModelCheckpoint(folder, filename="middle", every_n_train_steps=stop)] if stop else None,
            **dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False),
            enable_checkpointing=stop is not None,
        )
        try:
            trainer.fit(module, loader, ckpt_path=folder / "middle.ckpt" if resume else None, weights_only=False)
        except StopError:
            assert stop is not None
    assert {one.engine for one in made} == {"StatefulThreads"}
    return module.seen, module.last


@pytest.fixture(scope="module")
def alone(photos_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """What a run without a stop sees, in one process."""
    seen: Seen = train(photos_path, tmp_path_factory.mktemp("alone"), world=1)[0]
    return seen


@pytest.fixture(scope="module")
def begun(photos_path: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[int, float]]]:
    """The folder with the checkpoint, and what both ranks saw of EPOCH before it."""
    folder = tmp_path_factory.mktemp("begun")
    ranks = run_ranks(train, photos_path, folder, RANKS, EPOCH * STEPS + STOP)
    seen = [one for seen, _ in ranks for one in seen[EPOCH]]
    assert len(seen) == ROWS - LEFT
    return folder, seen


@pytest.mark.parametrize("world", [3, 1])
def test_another_number_of_ranks_finishes_the_epoch(
    photos_path: Path, alone: Seen, begun: tuple[Path, list[tuple[int, float]]], world: int
) -> None:
    folder, before = begun
    arguments = photos_path, folder, world, None, True
    ranks = run_ranks(train, *arguments, world=world) if world > 1 else [train(*arguments)]
    for seen, last in ranks:
        assert list(seen) == [EPOCH, EPOCH + 1]
        mine = [len(seen[epoch]) for epoch in seen]
        assert mine == [math.ceil(LEFT / world), ROWS // world]
        ends = [math.ceil(count / BATCH) for count in mine]
        assert last == [step == end for end in ends for step in range(1, end + 1)]
    rest = [one for seen, _ in ranks for one in seen[EPOCH]]
    padding = alone[EPOCH][: len(rest) - LEFT]
    assert Counter(before + rest) == Counter(alone[EPOCH]) + Counter(padding)  # the same crops, too
    assert Counter(one for seen, _ in ranks for one in seen[EPOCH + 1]) == Counter(alone[EPOCH + 1])


def test_a_checkpoint_at_an_epochs_last_batch_goes_on_with_the_next(
    photos_path: Path, alone: Seen, tmp_path: Path
) -> None:
    before, _ = train(photos_path, tmp_path, world=1, stop=ROWS // BATCH)
    rest, _ = train(photos_path, tmp_path, world=1, resume=True)
    assert list(before) == [0]
    assert before | rest == alone
