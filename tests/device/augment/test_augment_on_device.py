"""On the simulated device: equal to the CPU, in the right order, and nothing reads the device back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from augment_cases import EPOCH, SEED, draws_of, numbers, pictures
from simulated_device import Machine, simulated, why_not
from simulated_device import tensor as simulated_tensor

from zerocopy_data import ConfigError
from zerocopy_data.device.augment import (
    Augment,
    ColorJitter,
    CutMix,
    MixUp,
    Normalize,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    TrivialAugmentWide,
)
from zerocopy_data.device.augment.batch import spec_of
from zerocopy_data.device.augment.policy import KINDS
from zerocopy_data.device.request import Staging
from zerocopy_data.device.staging import Stager

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

N = 10
CHAINS: dict[str, list[Any]] = {
    "flip": [RandomHorizontalFlip()],
    "crop": [RandomCrop(15, padding=3, fill=9)],
    "normalize": [Normalize()],
    "fused": [RandomCrop(15), RandomHorizontalFlip(), Normalize(dtype=torch.bfloat16)],
    "erasing": [RandomErasing(0.7, value=3)],
    "noise": [Normalize(), RandomErasing(0.7, value="random")],
    "mixup": [Normalize(), MixUp(num_classes=N)],
    "cutmix": [CutMix(num_classes=N)],
    "jitter": [ColorJitter(0.4, 0.4, 0.4)],
}


@pytest.fixture
def machine() -> Iterator[Machine]:
    with simulated(Machine()) as made:
        yield made
    assert not made.faults


@pytest.fixture
def read_back(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of a device that the host must wait for: an operation's name, or the wait itself."""
    seen: list[str] = []
    real = simulated_tensor.dispatch

    def watched(func: Any, args: Any, kwargs: Any) -> Any:
        name = func._schema.name.removeprefix("aten::")
        to_host = name == "_to_copy" and torch.device(kwargs.get("device") or "sim").type == "cpu"
        if to_host or name in ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal"):
            seen.append(name)
        return real(func, args, kwargs)

    def waited(stream: Any) -> None:
        seen.append("synchronize")
        wait(stream)

    kind = type(machine.current_stream(0))
    wait = kind.synchronize
    monkeypatch.setattr(kind, "synchronize", waited)
    monkeypatch.setattr(simulated_tensor, "dispatch", watched)
    return seen


@pytest.mark.parametrize("name", CHAINS)
def test_equal_to_the_cpu_and_never_read_back(name: str, machine: Machine, read_back: list[str]) -> None:
    augment, images, labels = Augment(CHAINS[name], SEED), pictures(N), torch.arange(N)
    expected = augment(images, labels, samples=numbers(N), epoch=EPOCH)
    made = augment(images.to("sim"), labels.to("sim"), samples=numbers(N), epoch=EPOCH)
    assert read_back == []  # before the results are looked at
    for ours, cpus in zip(made, expected, strict=True):
        assert ours.device.type == "sim"
        assert torch.equal(ours.cpu(), cpus)


def test_policies_equal_the_cpu_and_never_read_back(machine: Machine, read_back: list[str]) -> None:
    """All kinds but torchvision's own equalize: the simulated device can't follow its `unsqueeze_`, and would wait."""
    pytest.importorskip("torchvision")
    op = TrivialAugmentWide()
    (choice,) = op.draw(spec_of(pictures(80)), draws_of(range(80)))
    samples = [i for i in range(80) if KINDS[choice.kinds[i]] != "Equalize"]
    assert len({choice.kinds[i] for i in samples}) == len(KINDS) - 1
    images = pictures(80)[samples]
    expected = Augment([op], SEED)(images, samples=samples, epoch=EPOCH)
    made = Augment([op], SEED)(images.to("sim"), samples=samples, epoch=EPOCH)
    assert read_back == []
    assert torch.equal(made.cpu(), expected)


def test_the_watch_notices_a_planted_look_at_the_device(machine: Machine, read_back: list[str]) -> None:
    class Peeks:
        def plan(self, spec: Any, draws: Any, parcel: Any) -> Any:
            return lambda batch: batch.images.amax().item(), spec

    Augment([Peeks()])(pictures(2).to("sim"), samples=[0, 1], epoch=0)
    assert read_back == ["_local_scalar_dense", "synchronize"]


@pytest.mark.parametrize("static", [False, True])
def test_as_the_transform_of_staged_batches(static: bool, machine: Machine) -> None:
    augment = Augment([RandomCrop(15), RandomHorizontalFlip(), Normalize(), MixUp(num_classes=N)], SEED)
    transform = augment.on("image", "label", samples="index")
    transform.set_epoch(EPOCH)
    stager = Stager(Staging("sim", static=static, transform=transform))
    for start in range(0, 9, 3):
        images, labels = pictures(3, seed=start), torch.arange(start, start + 3)
        samples = torch.tensor(numbers(9)[start : start + 3])
        stager.put({"image": images, "label": labels, "index": samples, "name": ["a", "b", "c"]})
        batch = stager.get()
        made, soft = augment(images, labels, samples=samples, epoch=EPOCH)
        assert batch["image"].device.type == batch["label"].device.type == "sim"
        assert torch.equal(batch["image"].cpu(), made)
        assert torch.equal(batch["label"].cpu(), soft)
        assert batch["index"].tolist() == samples.tolist()
        assert batch["name"] == ["a", "b", "c"]
        stager.release()
    stager.drain()


def test_numbers_on_the_device_are_refused_rather_than_waited_for(machine: Machine) -> None:
    images = pictures(2).to("sim")
    with pytest.raises(ConfigError, match="keep the samples' numbers there"):
        Augment([RandomHorizontalFlip()])(images, samples=torch.arange(2).to("sim"), epoch=0)
    with pytest.raises(ConfigError, match="labels lie on cpu, the images on sim"):
        Augment([CutMix(num_classes=2)])(images, torch.arange(2), samples=[0, 1], epoch=0)
