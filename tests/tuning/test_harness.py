"""Arms take turns in processes of their own; what fails is named."""

import os
import time
from pathlib import Path

import pytest

from zerocopy_data.tuning.harness import Arm, BenchError, Plan, Result, Sample, measure, ratio


class Sleeper:
    """Delivers ten items in a given time, and writes down each epoch."""

    def __init__(self, name: str, seconds: float, log: str) -> None:
        self.name = name
        self.seconds = seconds
        self.log = Path(log)

    def epoch(self) -> int:
        time.sleep(self.seconds)
        with self.log.open("a") as file:
            file.write(f"{self.name} {os.getpid()} {len(os.sched_getaffinity(0))}\n")
        return 10


class Failing:
    """Fails in its first epoch."""

    def epoch(self) -> int:
        raise RuntimeError("no such picture")


class Dying:
    """Its process ends in its first epoch."""

    def epoch(self) -> int:
        os._exit(7)


def test_arms_take_turns_in_processes_of_their_own(tmp_path: Path) -> None:
    log = tmp_path / "log"
    arms = [Arm(name, "sleep", Sleeper, (name, 0.01, str(log))) for name in ("a", "b")]
    results = measure(arms, Plan(repeats=2, min_seconds=0.0, cores=1))
    lines = [line.split() for line in log.read_text().splitlines()]
    # Each turn is an epoch that is thrown away and one that counts.
    assert [name for name, _, _ in lines[:8]] == ["a", "a", "b", "b"] * 2
    timed = {name: {pid for other, pid, _ in lines[:8] if other == name} for name in ("a", "b")}
    assert len(timed["a"]) == len(timed["b"]) == 1
    assert timed["a"] != timed["b"]
    assert {cores for _, _, cores in lines} == {"1"}
    assert [len(result.samples) for result in results] == [2, 2]
    assert all(result.peak_pss_bytes > 1 << 20 for result in results)


def test_rate_counts_whole_epochs_until_the_least_time_has_passed(tmp_path: Path) -> None:
    arm = Arm("a", "sleep", Sleeper, ("a", 0.05, str(tmp_path / "log")))
    [result] = measure([arm], Plan(repeats=1, min_seconds=0.12))
    [sample] = result.samples
    assert sample.items == 30
    assert sample.seconds >= 0.15
    figures = result.as_json()
    assert figures["loader"] == "a"
    assert figures["items_per_s"] == pytest.approx(30 / sample.seconds, rel=0.01)


def test_failure_in_an_arm_is_raised_with_its_traceback() -> None:
    with pytest.raises(BenchError, match=r"(?s)broken on work failed:.*no such picture"):
        measure([Arm("broken", "work", Failing)], Plan(repeats=1))


def test_death_of_an_arm_is_raised() -> None:
    with pytest.raises(BenchError, match="its process ended with 7"):
        measure([Arm("dead", "work", Dying)], Plan(repeats=1))


def test_ratio_compares_within_rounds() -> None:
    arm = Arm("a", "w", Failing)
    # The machine halved its speed in the second round: within each round the ratio is the same.
    ours = Result(arm, [Sample(400, 1.0, 1.0), Sample(200, 1.0, 1.0)])
    theirs = Result(arm, [Sample(100, 1.0, 1.0), Sample(50, 1.0, 1.0)])
    assert vars(ratio(ours, theirs)) == {"median": 4.0, "low": 4.0, "high": 4.0}
