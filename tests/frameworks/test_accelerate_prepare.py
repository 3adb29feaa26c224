"""Accelerate's prepare builds a DataLoader of its own: under patch() it is ours, with the options of the first."""

from __future__ import annotations

from collections.abc import Iterator
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

pytestmark = needs("accelerate")

SEEDED = Made(THREADS, 5, "skip", 500)


def seeded(photos_path: Path) -> Any:
    return zcd.DataLoader(
        open_photos(photos_path), BATCH, shuffle=True, num_workers=1, seed=5, on_error="skip", stall_after=500
    )


def accelerator(**loaders: Any) -> Any:
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    return Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**loaders))


def train(loader: Any, how: Any, epochs: int = 2, skip: int = 0) -> tuple[list[list[int]], list[list[float]], Any]:
    """Trains a model as Accelerate's users do.

    Args:
        loader: Goes through `prepare`.
        how: The accelerator.
        epochs: Their number.
        skip: So many batches of the first epoch are skipped.

    Returns:
        The numbers of the samples of each epoch, the sums of their pixels, and the prepared loader.
    """
    net = model()
    net, optimizer, prepared = how.prepare(net, torch.optim.SGD(net.parameters(), 0.01), loader)
    before = [parameter.detach().clone() for parameter in net.parameters()]
    numbers, sums = [], []
    for epoch in range(epochs):
        numbers.append([])
        sums.append([])
        for batch in how.skip_first_batches(prepared, skip) if skip and epoch == 0 else prepared:
            optimizer.zero_grad()
            how.backward(torch.nn.functional.cross_entropy(net(batch["image"]), batch["label"]))
            optimizer.step()
            numbers[-1] += batch["number"].tolist()
            sums[-1] += batch["image"].sum((1, 2, 3)).tolist()
    assert not any(parameter.equal(old) for parameter, old in zip(net.parameters(), before, strict=True))
    return numbers, sums, prepared


def alone(loader: Any, epochs: int = 2) -> tuple[list[list[int]], list[list[float]]]:
    """What the loader gives without Accelerate."""
    numbers: list[list[int]] = [[] for _ in range(epochs)]
    sums: list[list[float]] = [[] for _ in range(epochs)]
    for epoch in range(epochs):
        for batch in loader:
            numbers[epoch] += batch["number"].tolist()
            sums[epoch] += batch["image"].sum((1, 2, 3)).tolist()
    return numbers, sums


@pytest.fixture
def patched() -> Iterator[None]:
    import accelerate.data_loader

    with zcd.patch():
        yield
    assert accelerate.data_loader.DataLoader is torch.utils.data.DataLoader


@pytest.mark.usefixtures("patched")
def test_a_prepared_loader_is_ours_with_its_options_and_epochs(photos_path: Path) -> None:
    with recorded() as made:
        numbers, sums, prepared = train(seeded(photos_path), accelerator())
    assert made == [SEEDED] * 2
    assert isinstance(prepared, zcd.DataLoader)
    assert isinstance(prepared.base_dataloader, zcd.DataLoader)
    assert (numbers, sums) == alone(seeded(photos_path))


@pytest.mark.usefixtures("patched")
def test_worker_processes_send_through_slots() -> None:
    with recorded() as made:
        numbers, _, _ = train(zcd.DataLoader(Rows(), BATCH, shuffle=True, num_workers=1), accelerator(), epochs=1)
    assert [one.engine for one in made] == [PROCESSES]
    assert sorted(numbers[0]) == list(range(ROWS))


@pytest.mark.usefixtures("patched")
def test_a_script_that_says_torchs_loader_gets_ours() -> None:
    with recorded() as made:
        train(torch.utils.data.DataLoader(Rows(), BATCH, num_workers=1), accelerator(), epochs=1)
    assert made == [Made(PROCESSES, None, "raise", None)]


@pytest.mark.usefixtures("patched")
def test_skipping_the_first_batches_keeps_options_and_order(photos_path: Path) -> None:
    with recorded() as made:
        numbers, sums, _ = train(seeded(photos_path), accelerator(), skip=3)
    assert made == [SEEDED] * 2
    whole = alone(seeded(photos_path))
    assert (numbers[0], sums[0]) == (whole[0][0][3 * BATCH :], whole[1][0][3 * BATCH :])


@pytest.mark.usefixtures("patched")
def test_a_run_resumed_in_a_later_epoch_has_that_epochs_order_and_crops(photos_path: Path) -> None:
    how = accelerator()
    prepared = how.prepare(seeded(photos_path))
    prepared.set_epoch(1)
    resumed = how.skip_first_batches(prepared, 2)
    whole = alone(seeded(photos_path))
    numbers, sums = alone(resumed, epochs=1)
    assert (numbers[0], sums[0]) == (whole[0][1][2 * BATCH :], whole[1][1][2 * BATCH :])


@pytest.mark.usefixtures("patched")
def test_two_loaders_over_one_dataset_keep_each_its_own_options(photos_path: Path) -> None:
    ds = open_photos(photos_path)
    loaders = zcd.DataLoader(ds, BATCH, seed=1), zcd.DataLoader(ds, BATCH), zcd.DataLoader(ds, BATCH, on_error="skip")
    prepared = accelerator().prepare(*loaders)
    assert [(one.seed, one.on_error) for one in prepared] == [(1, "raise"), (None, "raise"), (None, "skip")]


@pytest.mark.usefixtures("patched")
@needs("torchdata")
@pytest.mark.parametrize("taken", [1, 3, ROWS // BATCH])
def test_a_stateful_loader_is_ours_and_resumes(taken: int) -> None:
    how = accelerator(use_stateful_dataloader=True)
    prepared = how.prepare(zcd.DataLoader(Rows(), BATCH, num_workers=1))
    assert isinstance(prepared, zcd.StatefulDataLoader)
    assert "zerocopy_data" in type(prepared.base_dataloader).__module__
    batches = iter(prepared)
    numbers = [number for _ in range(taken) for number in next(batches)["number"].tolist()]
    state = prepared.state_dict()
    del batches
    again = accelerator(use_stateful_dataloader=True).prepare(zcd.DataLoader(Rows(), BATCH, num_workers=1))
    again.load_state_dict(state)
    rest = [number for batch in again for number in batch["number"].tolist()]
    # After the last batch Accelerate's state is that of the epoch's end: the next epoch follows.
    assert rest == list(range(ROWS))[len(numbers) % ROWS :]


@pytest.mark.usefixtures("patched")
@needs("torchdata")
def test_a_stateful_loader_over_shards_resumes_with_its_crops(photos_path: Path) -> None:
    def prepared() -> Any:
        return accelerator(use_stateful_dataloader=True).prepare(seeded(photos_path))

    whole = list(prepared())
    loader = prepared()
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    del batches
    again = prepared()
    again.load_state_dict(state)
    for batch, expected in zip(again, whole[1:], strict=True):
        assert all(torch.equal(batch[name], expected[name]) for name in expected)


@needs("torchdata")
def test_torchdatas_class_is_put_back() -> None:
    import torchdata.stateful_dataloader as theirs

    before = theirs.StatefulDataLoader
    with zcd.patch():
        assert theirs.StatefulDataLoader is not before
        assert issubclass(before, theirs.StatefulDataLoader)
    assert theirs.StatefulDataLoader is before


def test_without_the_patch_accelerate_takes_torchs_own_class(photos_path: Path) -> None:
    """Why the README asks for patch(): should this fail one day, it need not."""
    prepared = accelerator().prepare(seeded(photos_path))
    assert not isinstance(prepared, zcd.DataLoader)


def rank_of_accelerate(photos_path: Path) -> dict[str, Any]:
    """In one of two ranks: what each way of preparing gave it."""
    zcd.patch()
    ways: dict[str, tuple[Any, dict[str, Any], int]] = {
        "shard": (seeded(photos_path), {}, 0),
        "split": (seeded(photos_path), {"split_batches": True}, 0),
        "dispatch": (seeded(photos_path), {"dispatch_batches": True}, 0),
        "skip": (seeded(photos_path), {}, 2),
        "processes": (zcd.DataLoader(Rows(), BATCH, shuffle=True, num_workers=1), {}, 0),
    }
    results = {}
    for name, (loader, options, skip) in ways.items():
        with recorded() as made:
            numbers, sums, _ = train(loader, accelerator(**options), skip=skip)
        results[name] = numbers, sums, made
    return results


@pytest.fixture(scope="module")
def ranks(photos_path: Path) -> list[dict[str, Any]]:
    return run_ranks(rank_of_accelerate, photos_path)


@pytest.mark.parametrize("way", ["shard", "split", "dispatch"])
def test_each_sample_goes_to_one_rank_with_the_crop_that_it_has_alone(
    photos_path: Path, ranks: list[dict[str, Any]], way: str
) -> None:
    whole = alone(seeded(photos_path))
    for epoch in range(2):
        assert_shared_out([rank[way][0][epoch] for rank in ranks])
        expected = dict(zip(whole[0][epoch], whole[1][epoch], strict=True))
        for rank in ranks:
            numbers, sums, made = rank[way]
            assert made == [SEEDED] * 2
            assert dict(zip(numbers[epoch], sums[epoch], strict=True)).items() <= expected.items()


def test_ranks_that_skip_batches_share_out_the_rest(photos_path: Path, ranks: list[dict[str, Any]]) -> None:
    (order, _), _ = alone(seeded(photos_path))
    parts = [rank["skip"][0][0] for rank in ranks]
    assert sorted(parts[0] + parts[1]) == sorted(order[2 * RANKS * BATCH :])
    for rank in ranks:
        assert rank["skip"][2] == [SEEDED] * 2


def test_ranks_with_worker_processes_share_the_samples_out(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert [one.engine for one in rank["processes"][2]] == [PROCESSES] * 2
    for epoch in range(2):
        assert_shared_out([rank["processes"][0][epoch] for rank in ranks])
