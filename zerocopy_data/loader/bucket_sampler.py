"""Batches of similar length within a budget of tokens, as a torch batch sampler that can be resumed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from torch.utils.data import Sampler

from ..errors import ConfigError
from ..order.buckets import Batches, BatchRule, check_rule, epoch_batches, quantile_edges
from ..order.packing import lengths_array
from ..order.ranks import RankShare
from ..order.seed import seed_number
from .process_ranks import ProcessRanks, SharedOrder

# Of log-normal lengths that leaves some 3 % padding (benchmarks/padding.py), and a bucket's last batch, which is not
# full, hardly counts from some thousand batches on.
BUCKETS = 64


class BucketBatchSampler(SharedOrder, Sampler[list[int]]):
    """Batches of samples of similar length, as large as a budget of tokens allows, in an order drawn by (seed, epoch).

        sampler = zcd.BucketBatchSampler(zcd.lengths(ds, "tokens"), max_tokens=16_384, seed=0)
        loader = zcd.StatefulDataLoader(ds, batch_sampler=sampler, collate_fn=zcd.PadCollate())
        for epoch in range(epochs):
            sampler.set_epoch(epoch)  # as with torch's DistributedSampler; without, all epochs are the same

    Every sample comes once an epoch. All ranks serve as many batches, of which rank r of w takes the r-th, the r+w-th
    and so on; the batches and their order do not depend on the ranks.

    Its state is three numbers: the epoch, the batches that all ranks have served, and what tells whether the lengths
    and the arguments are the same. It may be loaded with another number of ranks. A StatefulDataLoader asks for it by
    itself.

    Args:
        lengths: Integers [samples], tokens of each. An empty sample counts as one token: it is a row all the same.
        max_tokens: What a batch may have, counted by `budget`.
        budget: 'padded', its greatest length times its samples; 'bucket', its bucket's upper edge times its samples,
            for batches that are padded so far; 'sum', the sum of its lengths, for batches that are not padded.
        max_batch: Samples of a batch at most.
        buckets: How many to make, with about as many tokens each; or their upper edges, ascending, beyond the last of
            which there is one more bucket where there are longer samples.
        multiple_of: Lengths, and edges, count as the next multiple of this. As in `PadCollate`.
        seed: Any integer.
        cost: (a, b), where a sample of L tokens costs a·L + b·L² in training. Batches of similar cost then follow each
            other, so ranks that step together wait less for each other.
        together: With `cost`, how many do: the number of ranks or a multiple, and no more than a small part of the
            epoch's batches, or they are not very similar.
        rank: This process's; None asks torch.distributed at each epoch, where that is initialised.
        world_size: Likewise the number of ranks.
        uneven: What becomes of a last round that has not a batch for each rank: 'pad' fills it with the epoch's first
            batches, 'drop' leaves it out.

    Attributes:
        epoch: The one that the next `iter` serves: `set_epoch`.
        edges: Upper edges of the buckets, the last one the greatest length: for `PadCollate(to=sampler.edges)`.
        size: Samples.

    Raises:
        ConfigError: an argument makes no sense, or a sample alone is over the budget.
    """

    def __init__(
        self,
        lengths: npt.ArrayLike,
        max_tokens: int,
        *,
        budget: str = "padded",
        max_batch: int | None = None,
        buckets: int | Sequence[int] = BUCKETS,
        multiple_of: int = 1,
        seed: int = 0,
        cost: tuple[float, float] | None = None,
        together: int = 64,
        rank: int | None = None,
        world_size: int | None = None,
        uneven: str = "pad",
    ) -> None:
        if multiple_of < 1:
            raise ConfigError(f"multiple_of={multiple_of}: at least 1.")
        if uneven not in ("pad", "drop"):
            raise ConfigError(f"uneven={uneven!r}: 'pad' or 'drop', so that all ranks serve as many batches.")
        self._lengths = _rounded(np.maximum(lengths_array(lengths), 1), multiple_of)
        self.size = len(self._lengths)
        self.edges = self._bucket_edges(buckets, multiple_of)
        self.seed = seed_number(seed)
        self.uneven = uneven
        self.epoch = 0
        cost = None if cost is None else (float(cost[0]), float(cost[1]))
        self._rule = BatchRule(int(max_tokens), budget, max_batch, self.edges, cost, together)
        check_rule(self._lengths, self._rule)
        self._order = self._rule.fingerprint(self._lengths, self.seed)
        self._ranks = ProcessRanks(rank, world_size)
        self._made: tuple[int, Batches] | None = None
        self._start = 0  # where the next `iter` begins
        # (Epoch, batches that all ranks have served) of the latest `iter`; None behind its end.
        self._place: tuple[int | None, int] | None = None
        self._world()

    def set_epoch(self, epoch: int) -> None:
        """Makes the next `iter` serve this epoch: from its beginning, unless it is that of a state just loaded."""
        if int(epoch) != self.epoch:
            self._start, self._place = 0, None
        self.epoch = int(epoch)

    def batches(self) -> Batches:
        """All ranks' batches of the epoch, in the order in which they are served."""
        if self._made is None or self._made[0] != self.epoch:
            self._made = self.epoch, epoch_batches(self._lengths, self._rule, self.seed, self.epoch)
        return self._made[1]

    def describe(self) -> str:
        """What the order depends on beside epoch and size, for states that must find it again."""
        return f"buckets({self._order:08x})"  # short: it is in every state

    def state_dict(self) -> dict[str, int]:
        """Where the latest `iter` stands: numbers. Behind its end they mean the beginning of the epoch told then."""
        epoch, position = (self.epoch, self._start) if self._place is None else self._place
        state = {"position": position, "order": self._order}
        return state if epoch is None else {**state, "epoch": epoch}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Makes the next `iter` go on where the state was taken, whatever the number of ranks was then.

        Raises:
            ConfigError: it was taken with other lengths or arguments.
        """
        if not {"position", "order"} <= set(state_dict):
            raise ConfigError("load_state_dict() takes what state_dict() of a BucketBatchSampler returned.")
        if state_dict["order"] != self._order:
            raise ConfigError(
                "the state was taken with other lengths, another seed, budget or other buckets: its place is none in "
                "this order. Make the BucketBatchSampler with the same."
            )
        self.epoch = state_dict.get("epoch", self.epoch)
        self._start, self._place = state_dict["position"], None

    def __len__(self) -> int:
        """Batches of this rank's whole epoch."""
        return len(self._share(0))

    def __iter__(self) -> Iterator[list[int]]:
        start, self._start = self._start, 0
        self._place = (self.epoch, start)
        return self._serve(self.epoch, start)

    def _serve(self, epoch: int, start: int) -> Iterator[list[int]]:
        # A generator begins at its first draw, by when another epoch may have been told.
        with self.serving(epoch):
            batches, share = self.batches(), self._share(start)
        for step in range(len(share)):
            self._place = (epoch, share.served(step + 1))
            yield batches[int(share.positions(step, step + 1)[0])].tolist()
        self._place = (None, 0)

    def _share(self, start: int) -> RankShare:
        return RankShare(len(self.batches()), *self._world(), self.uneven, start)

    def _world(self) -> tuple[int, int]:
        """(Rank, ranks)."""
        rank, world = self._ranks.now()
        RankShare(0, rank, world)  # refuses ranks that do not exist
        if self._rule.cost is not None and world > self._rule.together:
            raise ConfigError(
                f"together={self._rule.together} batches of similar cost for {world} ranks: give as many, or a "
                "multiple, and the same in runs with fewer ranks that are to see the same order."
            )
        return rank, world

    def _bucket_edges(self, buckets: int | Sequence[int], multiple_of: int) -> tuple[int, ...]:
        if isinstance(buckets, (int, np.integer)):
            if buckets < 1:
                raise ConfigError(f"buckets={buckets}: how many, at least 1, or their upper edges.")
            return quantile_edges(self._lengths, int(buckets))
        edges = np.unique(_rounded(lengths_array(buckets), multiple_of)).tolist()
        if list(buckets) != sorted(set(buckets)):
            raise ConfigError(f"buckets={list(buckets)}: upper edges in ascending order.")
        longest = int(self._lengths.max(initial=0))
        return tuple(edges) if max(edges, default=0) >= longest else (*edges, longest)


def _rounded(lengths: npt.NDArray[np.int64], multiple_of: int) -> npt.NDArray[np.int64]:
    """Up to the next multiple."""
    return -(-lengths // multiple_of) * multiple_of
