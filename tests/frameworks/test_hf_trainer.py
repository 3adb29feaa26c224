"""The Hugging Face Trainer, which makes its loaders from a name of its own and has Accelerate build them anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from framework_runs import (
    BATCH,
    PROCESSES,
    ROWS,
    THREADS,
    Rows,
    assert_shared_out,
    model,
    needs,
    open_photos,
    recorded,
    run_ranks,
)

import zerocopy_data as zcd

pytestmark = needs("transformers", "accelerate")


class Net(torch.nn.Module):
    """A small model with the Trainer's calling convention; remembers which samples it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = model()
        self.seen: list[int] = []

    def forward(self, image: torch.Tensor, label: torch.Tensor, number: torch.Tensor) -> dict[str, torch.Tensor]:
        if self.training:
            self.seen += number.tolist()
        scores = self.inner(image)
        return {"loss": torch.nn.functional.cross_entropy(scores, label), "scores": scores}


def train(dataset: Any, out: Path) -> tuple[list[int], list[str]]:
    """Trains for an epoch and evaluates; the samples trained on and the engines that served."""
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=str(out),
        num_train_epochs=1,
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=BATCH,
        dataloader_num_workers=1,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo" if torch.distributed.is_torchelastic_launched() else None,
    )
    net = Net()
    before = net.inner[1].weight.detach().clone()
    with recorded() as made:
        trainer = Trainer(
            model=net,
            args=arguments,
            train_dataset=dataset,
            eval_dataset=dataset,
            data_collator=torch.utils.data.default_collate,
        )
        trainer.train()
        assert trainer.evaluate()["eval_loss"] > 0
    assert not net.inner[1].weight.equal(before)
    return net.seen, [one.engine for one in made]


def both(photos_path: Path, out: Path) -> list[tuple[list[int], list[str]]]:
    """What the two kinds of dataset gave under the patch."""
    import transformers.trainer

    with zcd.patch():
        results = [train(dataset, out) for dataset in (open_photos(photos_path), Rows())]
    assert transformers.trainer.DataLoader is torch.utils.data.DataLoader
    return results


@pytest.mark.filterwarnings("ignore:worker_init_fn is not called")
def test_the_trainer_trains_and_evaluates_with_our_engines(photos_path: Path, tmp_path: Path) -> None:
    for (seen, engines), engine in zip(both(photos_path, tmp_path), (THREADS, PROCESSES), strict=True):
        assert engines == [engine] * 2
        assert sorted(seen) == list(range(ROWS))
        assert seen != sorted(seen)


def test_two_ranks_share_the_samples_out(photos_path: Path, tmp_path: Path) -> None:
    ranks = run_ranks(both, photos_path, tmp_path)
    for kind, engine in enumerate((THREADS, PROCESSES)):
        assert [rank[kind][1] for rank in ranks] == [[engine] * 2] * 2
        assert_shared_out([rank[kind][0] for rank in ranks])
