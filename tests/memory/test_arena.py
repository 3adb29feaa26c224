"""Slots: aligned, distinct while leased, used again afterwards, never kept without bound."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from zerocopy_data.memory.arena import PAGE, Arena


def address(slot: ctypes.Array[ctypes.c_ubyte]) -> int:
    return ctypes.addressof(slot)


@pytest.mark.parametrize(("asked", "given_"), [(0, PAGE), (1, PAGE), (PAGE, PAGE), (PAGE + 1, 2 * PAGE)])
def test_slots_are_whole_aligned_pages(asked: int, given_: int) -> None:
    arena = Arena(asked, 2)
    slot = arena.lease()
    assert arena.slot_bytes == len(slot) == given_
    assert address(slot) % PAGE == 0
    memoryview(slot).cast("B")[-1] = 7
    assert slot[given_ - 1] == 7


def test_slots_leased_at_once_are_distinct() -> None:
    arena = Arena(100, 1)
    slots = [arena.lease() for _ in range(20)]
    assert len({address(slot) for slot in slots}) == 20 == arena.slots_made


def test_a_slot_is_used_again_once_its_lease_has_ended() -> None:
    arena = Arena(100, 2)
    slot = arena.lease()
    first = address(slot)
    del slot
    assert address(arena.lease()) == first
    assert arena.slots_made == 1


def test_no_more_free_slots_are_kept_than_asked_for() -> None:
    arena = Arena(PAGE, 2)
    slots = [arena.lease() for _ in range(10)]
    slots.clear()
    slots = [arena.lease() for _ in range(10)]
    assert arena.slots_made == 10 + 8
    assert len({address(slot) for slot in slots}) == 10


def test_surplus_slots_go_back_to_the_system() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE

    arena = Arena(4 << 20, 1)
    before = resident()
    slots = [arena.lease() for _ in range(10)]
    for slot in slots:
        ctypes.memset(slot, 1, len(slot))
    assert resident() - before > 30 << 20
    del slot
    slots.clear()
    assert resident() - before < 10 << 20


PARTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "tensor": lambda tensor: tensor,
    "view": lambda tensor: tensor.view(8, 8)[2:].T[1:],
    "numpy": lambda tensor: tensor.numpy(),
    "numpy_view": lambda tensor: tensor.numpy().reshape(8, 8)[1:][:, ::2].view(np.uint32),
    "storage": lambda tensor: tensor.untyped_storage(),
    "memoryview": lambda tensor: memoryview(tensor.numpy()),
}


@pytest.mark.parametrize("part", PARTS)
def test_whatever_refers_to_a_slot_keeps_its_lease(part: str) -> None:
    arena = Arena(PAGE, 4)
    slot = arena.lease()
    tensor = torch.frombuffer(slot, dtype=torch.float32, count=64, offset=128)
    tensor.fill_(3)
    held = PARTS[part](tensor)
    taken = address(slot)
    del slot, tensor
    gc.collect()
    others = [arena.lease() for _ in range(3)]
    assert taken not in [address(other) for other in others]
    del held
    gc.collect()
    assert address(arena.lease()) == taken


def test_a_lease_outlives_its_arena() -> None:
    arena = Arena(PAGE, 2)
    slot = arena.lease()
    tensor = torch.frombuffer(slot, dtype=torch.uint8).fill_(9)
    del arena, slot
    gc.collect()
    assert bool((tensor == 9).all())


def test_memory_is_private_after_a_fork() -> None:
    slot = Arena(PAGE, 1).lease()
    slot[0] = 1
    child = os.fork()
    if child == 0:
        slot[0] = 2
        os._exit(slot[0])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert slot[0] == 1


def test_leases_end_in_any_thread_without_mixing_slots_up() -> None:
    arena = Arena(PAGE, 4)
    clashes: list[int] = []

    def work(mark: int) -> None:
        for _ in range(300):
            slot = arena.lease()
            tensor = torch.frombuffer(slot, dtype=torch.uint8).fill_(mark)
            del slot
            if not bool((tensor == mark).all()):
                clashes.append(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clashes == []
    assert arena.slots_made < 300


@settings(max_examples=30, deadline=None)
@given(st.lists(st.booleans(), max_size=60), st.integers(1, 4))
def test_free_slots_are_taken_before_new_ones(steps: list[bool], keep: int) -> None:
    arena = Arena(1, keep)
    held: list[ctypes.Array[ctypes.c_ubyte]] = []
    free = made = 0
    for lease in steps:
        if lease:
            made, free = (made, free - 1) if free else (made + 1, 0)
            held.append(arena.lease())
        elif held:
            held.pop()
            free = min(free + 1, keep)
        assert arena.slots_made == made
        assert len({address(slot) for slot in held}) == len(held)
