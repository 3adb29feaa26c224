"""patch(): our DataLoader under torch's name, taken out again without a trace; and unchanged scripts run with it."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
import types
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.utils.data
import torch.utils.data.dataloader

import zerocopy_data as zcd
import zerocopy_data.patch

TORCHS = torch.utils.data.DataLoader
DATA = torch.utils.data.TensorDataset(torch.arange(8))


@pytest.fixture(autouse=True)
def _torchs_class_comes_back() -> Iterator[None]:
    yield
    assert torch.utils.data.DataLoader is torch.utils.data.dataloader.DataLoader is TORCHS


def test_the_call_and_the_block_put_ours_in_torchs_place() -> None:
    patch = zcd.patch()
    assert issubclass(torch.utils.data.DataLoader, zcd.DataLoader)
    assert torch.utils.data.dataloader.DataLoader is torch.utils.data.DataLoader
    assert patch.active
    patch.undo()
    assert torch.utils.data.DataLoader is TORCHS
    assert not patch.active
    with zcd.patch():
        assert issubclass(torch.utils.data.DataLoader, zcd.DataLoader)


def test_the_name_is_the_function_and_the_module() -> None:
    from zerocopy_data import patch

    with patch():
        pass
    with zerocopy_data.patch():
        pass
    with sys.modules["zerocopy_data.patch"]():  # type: ignore[operator] # what an import of the module may leave there
        assert torch.utils.data.DataLoader is not TORCHS


def test_patches_nest_and_may_end_in_any_order() -> None:
    first, second = zcd.patch(), zcd.patch()
    first.undo()
    first.undo()
    assert torch.utils.data.DataLoader is not TORCHS
    with second:
        with second:
            pass
        assert second.active
    assert torch.utils.data.DataLoader is TORCHS
    with second:
        assert torch.utils.data.DataLoader is not TORCHS
    assert torch.utils.data.DataLoader is TORCHS


def test_an_error_in_the_block_undoes_it() -> None:
    with pytest.raises(KeyError), zcd.patch():
        raise KeyError
    assert torch.utils.data.DataLoader is TORCHS


def test_undone_inside_its_block_it_stays_undone() -> None:
    other = zcd.patch()
    with zcd.patch() as patch:
        patch.undo()
    assert torch.utils.data.DataLoader is not TORCHS
    other.undo()


@pytest.mark.parametrize("package", ["accelerate", "transformers"])
def test_frameworks_loaded_before_or_meanwhile_hold_ours_and_then_torchs(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, meanwhile = types.ModuleType(f"{package}.before"), types.ModuleType(f"{package}.meanwhile")
    users = types.ModuleType("users_own")
    before.Loader = users.DataLoader = TORCHS  # type: ignore[attr-defined]
    for module in (before, meanwhile, users):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    with zcd.patch():
        meanwhile.DataLoader = torch.utils.data.DataLoader  # type: ignore[attr-defined]
        assert before.Loader is torch.utils.data.DataLoader
        assert users.DataLoader is TORCHS
    assert before.Loader is meanwhile.DataLoader is TORCHS


def test_isinstance_against_the_name_holds_for_torchs_loaders_and_ours() -> None:
    class Before(TORCHS[Any]):
        pass

    loaders = [TORCHS(DATA), zcd.DataLoader(DATA), Before(DATA)]
    with zcd.patch():
        name = torch.utils.data.DataLoader

        class Under(name):  # type: ignore[misc, valid-type]
            pass

        loaders += [name(DATA), Under(DATA)]
        for loader in loaders:
            assert isinstance(loader, name)
            assert isinstance(loader, TORCHS)
            assert issubclass(type(loader), name)
        assert not isinstance(DATA, name)
        assert not isinstance(name(DATA), Under)
        assert not isinstance(TORCHS(DATA), zcd.DataLoader)
        assert isinstance(Under(DATA), zcd.DataLoader)
    assert all(isinstance(loader, TORCHS) for loader in loaders)


def test_subclasses_made_under_the_patch_are_ours_and_work() -> None:
    with zcd.patch():

        class Sized(ABC):
            @abstractmethod
            def size(self) -> int: ...

        class Loader(torch.utils.data.DataLoader[Any], Sized):
            def __init__(self, dataset: Any, **options: Any) -> None:
                super().__init__(dataset, **options)

            def size(self) -> int:
                return len(self)

        loader = Loader(DATA, batch_size=4, num_workers=1)
    iterator = iter(loader)
    assert type(iterator).__name__ == "ProcessIterator"
    assert [batch[0].tolist() for batch in iterator] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert loader.size() == 2


def test_a_subclass_from_before_that_calls_the_name_still_works() -> None:
    class Before(TORCHS[Any]):
        def __init__(self, dataset: Any) -> None:
            torch.utils.data.DataLoader.__init__(self, dataset, batch_size=8)

    with zcd.patch():
        assert [batch[0].tolist() for batch in Before(DATA)] == [list(range(8))]


def test_a_loader_made_under_the_patch_pickles_and_looks_like_torchs() -> None:
    with zcd.patch():
        loader = torch.utils.data.DataLoader(DATA, batch_size=3)
    assert type(loader).__name__ == "DataLoader"
    again = pickle.loads(pickle.dumps(loader))
    assert type(again) is type(loader)
    assert [len(batch[0]) for batch in again] == [3, 3, 2]


def test_our_class_keeps_torchs_as_its_base() -> None:
    with zcd.patch():
        assert zcd.DataLoader.__mro__[1] is TORCHS
        assert len(set(zcd.DataLoader.__mro__)) == len(zcd.DataLoader.__mro__)


# ---------------------------------------------------------------------------------------------------------------
# python -m zerocopy_data.patch

SCRIPT = """
import multiprocessing, os, sys
from torch.utils.data import DataLoader, Dataset
import beside

class Squares(Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return i * i

def child():
    from torch.utils.data import DataLoader as Theirs
    return Theirs.__module__, __name__

if __name__ == "__main__":
    print(type(iter(DataLoader(Squares(), num_workers=1))).__name__)
    print(sys.argv, sys.path[0] == os.path.dirname(os.path.abspath(__file__)), __spec__, __package__)
    loader = DataLoader(Squares(), batch_size=8, num_workers=1, multiprocessing_context="spawn")
    print(next(iter(loader)).tolist())
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(child))
    exec(sys.argv[1])
"""


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "zerocopy_data.patch", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def test_an_unchanged_script_runs_with_our_loader(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train.py").write_text(SCRIPT)
    (tmp_path / "job" / "beside.py").write_text("")
    done = run("job/train.py", "raise ValueError('lost')", "-m", "--help", cwd=tmp_path)
    assert done.stdout.splitlines() == [
        "ProcessIterator",
        "['job/train.py', \"raise ValueError('lost')\", '-m', '--help'] True None None",
        "[0, 1, 4, 9, 16, 25, 36, 49]",
        "('zerocopy_data.loader.swap', '__mp_main__')",
    ]
    assert done.returncode == 1
    shown = done.stderr[done.stderr.index("Traceback") :].splitlines()
    assert shown[1].startswith(f'  File "{tmp_path}/job/train.py", line 21')
    assert shown[-1] == "ValueError: lost"


LOADER = (
    "from torch.utils.data import DataLoader\nimport sys\nprint(DataLoader.__module__, sys.argv[1:], __package__)\n"
)


def test_a_module_runs_as_under_python_m(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "__init__.py").write_text("from torch.utils.data import DataLoader")
    (tmp_path / "job" / "__main__.py").write_text(
        LOADER + "from . import DataLoader as Early\nassert Early is DataLoader\nsys.exit(7)\n"
    )
    done = run("-m", "job", "-m", "x", cwd=tmp_path)
    assert done.stdout == "zerocopy_data.loader.swap ['-m', 'x'] job\n"
    assert done.returncode == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.py"], "nowhere.py is not a file"),
        (["-m"], "-m needs the name of a module"),
        (["-m", "nowhere.to_be.found"], "module nowhere.to_be.found cannot be found"),
        (["--seed", "1", "train.py"], "there is no option --seed"),
        (["-m", "zerocopy_data.errors_of_nobody"], "that can be run"),
    ],
)
def test_what_cannot_be_run_is_named(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "usage:" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_shows_how_to_start_several_ranks(tmp_path: Path) -> None:
    done = run("--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "torchrun --nproc-per-node 2 -m zerocopy_data.patch" in done.stdout
    assert run(cwd=tmp_path).returncode == 2


def test_a_syntax_error_in_the_script_is_shown_as_its_own(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent("x = 1\nif x\n"))
    done = run("train.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "zerocopy_data/patch.py" not in done.stderr
    assert f'File "{tmp_path}/train.py", line 2' in done.stderr
