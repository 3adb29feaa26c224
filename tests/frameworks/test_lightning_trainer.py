"""PyTorch Lightning's Trainer over our loader: one process, and two with DDP."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from framework_runs import (
    BATCH,
    PROCESSES,
    RANKS,
    ROWS,
    THREADS,
    Made,
    Rows,
    assert_shared_out,
    model,
    needs,
    open_photos,
    recorded,
    run_ranks,
)

import zerocopy_data as zcd

pytestmark = needs("lightning")


def net() -> Any:
    from lightning.pytorch import LightningModule

    class Net(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model()
            self.epochs: list[list[int]] = []
            self.sums: list[list[float]] = []

        def on_train_epoch_start(self) -> None:
            self.epochs.append([])
            self.sums.append([])

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            self.epochs[-1] += batch["number"].tolist()
            self.sums[-1] += batch["image"].sum((1, 2, 3)).tolist()
            return torch.nn.functional.cross_entropy(self.inner(batch["image"]), batch["label"])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.01)

    return Net()


def trainer(**options: Any) -> Any:
    from lightning.pytorch import Trainer

    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return Trainer(accelerator="cpu", num_sanity_val_steps=0, **quiet, **options)


def fit(loader: Any, epochs: int = 2, **options: Any) -> tuple[Any, list[Made]]:
    """The trained module and the iterators that served it."""
    module = net()
    before = module.inner[1].weight.clone()
    with recorded() as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer(max_epochs=epochs, **options).fit(module, loader)
    assert not module.inner[1].weight.equal(before)
    return module, made


def test_one_process_gets_the_loaders_own_epochs(photos_path: Path) -> None:
    def loader() -> Any:
        return zcd.DataLoader(
            open_photos(photos_path), batch_size=BATCH, shuffle=True, num_workers=2, seed=5, on_error="skip"
        )

    module, made = fit(loader())
    assert [(one.engine, one.seed, one.on_error) for one in made] == [(THREADS, 5, "skip")] * 2
    alone = loader()
    assert module.epochs == [[n for batch in alone for n in batch["number"].tolist()] for _ in range(2)]


def test_one_process_gets_batches_of_worker_processes_through_slots() -> None:
    module, made = fit(zcd.DataLoader(Rows(), batch_size=BATCH, shuffle=True, num_workers=1), epochs=1)
    assert [one.engine for one in made] == [PROCESSES]
    assert sorted(module.epochs[0]) == list(range(ROWS))


def test_persistent_workers_survive_the_end_of_a_fit() -> None:
    loader = zcd.DataLoader(Rows(), batch_size=BATCH, num_workers=1, persistent_workers=True)
    module, made = fit(loader)
    assert [one.engine for one in made] == [PROCESSES]
    assert module.epochs == [list(range(ROWS))] * 2


@pytest.mark.parametrize("kind", [zcd.DataLoader, zcd.StatefulDataLoader])
def test_a_run_that_goes_on_from_a_checkpoint_sees_the_epochs_that_it_had_not_seen(
    photos_path: Path, tmp_path: Path, kind: Any
) -> None:
    def loader() -> Any:
        return kind(open_photos(photos_path), batch_size=BATCH, shuffle=True, seed=1)

    whole, _ = fit(loader(), epochs=3)
    half = trainer(max_epochs=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        half.fit(net(), loader())
        half.save_checkpoint(tmp_path / "half.ckpt")
        rest = net()
        trainer(max_epochs=3).fit(rest, loader(), ckpt_path=tmp_path / "half.ckpt", weights_only=False)
    assert rest.epochs == whole.epochs[2:]
    assert rest.sums == whole.sums[2:]  # the crops too


def rank_of_ddp(photos_path: Path) -> dict[str, Any]:
    """In one of two ranks: what each kind of loader gave it."""
    ds = open_photos(photos_path)
    loaders = {
        "seeded": zcd.DataLoader(ds, batch_size=BATCH, shuffle=True, num_workers=1, seed=5, on_error="skip"),
        "threads": zcd.DataLoader(ds, batch_size=BATCH, shuffle=True, num_workers=1, on_error="substitute"),
        "processes": zcd.DataLoader(Rows(), batch_size=BATCH, shuffle=True, num_workers=1, stall_after=500),
    }
    results = {}
    for name, loader in loaders.items():
        module, made = fit(loader, devices=RANKS, strategy="ddp")
        results[name] = module.epochs, module.sums, made, loader.seed
    return results


@pytest.fixture(scope="module")
def ddp(photos_path: Path) -> list[dict[str, Any]]:
    return run_ranks(rank_of_ddp, photos_path)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("seeded", Made(THREADS, 5, "skip", None)),
        ("threads", Made(THREADS, None, "substitute", None)),
        ("processes", Made(PROCESSES, None, "raise", 500)),
    ],
)
def test_with_ddp_the_rebuilt_loader_keeps_engine_and_options(
    ddp: list[dict[str, Any]], kind: str, expected: Made
) -> None:
    for rank in ddp:
        epochs, _, made, _ = rank[kind]
        assert made == [expected] * 2
        assert epochs[0] != epochs[1]
    for epoch in range(2):
        assert_shared_out([rank[kind][0][epoch] for rank in ddp])


def test_with_ddp_a_sample_has_the_crop_that_it_has_without(photos_path: Path, ddp: list[dict[str, Any]]) -> None:
    alone, _ = fit(zcd.DataLoader(open_photos(photos_path), batch_size=BATCH, shuffle=True, seed=5))
    for epoch in range(2):
        expected = dict(zip(alone.epochs[epoch], alone.sums[epoch], strict=True))
        for rank in ddp:
            epochs, sums, _, _ = rank["seeded"]
            assert dict(zip(epochs[epoch], sums[epoch], strict=True)).items() <= expected.items()
