"""`zcd.patch()` and `python -m zerocopy_data.patch`: our DataLoader in scripts that say torch's.

The name is the function's and the module's. `from zerocopy_data import patch` gives the function; where an import of
this module has put the module there, calling the module does the same.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import multiprocessing.spawn
import os
import sys
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from .loader.swap import Patch

__all__ = ["patch"]

_USAGE = """\
usage: python -m zerocopy_data.patch [-h] SCRIPT.py [ARGS…]
       python -m zerocopy_data.patch -m MODULE [ARGS…]
"""

_HELP = (
    _USAGE
    + """
Runs a training script unchanged, with zerocopy_data's DataLoader in the place of torch's: wherever the script, or a
framework that it uses (Accelerate, the HF Trainer, Lightning), says torch.utils.data.DataLoader, it gets ours. Batches
are the same for the same seed; those of worker processes travel faster and need no /dev/shm.

The script runs as under `python SCRIPT.py ARGS…`: sys.argv, sys.path[0], __main__, tracebacks and the exit status are
its own. Processes that it starts by multiprocessing are patched too. Other programs that it starts are not; with
several ranks put the launcher first:

    python -m zerocopy_data.patch train.py --epochs 3
    torchrun --nproc-per-node 2 -m zerocopy_data.patch train.py --epochs 3
    accelerate launch -m zerocopy_data.patch train.py --epochs 3

In a script that you can edit, `import zerocopy_data; zerocopy_data.patch()` at the top does the same, and
`from zerocopy_data import DataLoader` is better still.
"""
)


def patch() -> Patch:
    """Puts zcd.DataLoader in the place of torch's class, for code that cannot be edited.

    Swaps every name under which loaded modules of torch, Accelerate and transformers hold the class, so that modules
    imported afterwards get ours too. Modules of your own that have already imported it keep what they have: call this
    first. isinstance and issubclass against the swapped name hold for torch's class and ours alike. Loaders that
    Accelerate builds anew keep `seed`, `on_error`, `stall_after`, `device`, `static`, `decode` and `read_ahead` of the
    zcd.DataLoader that they come from.

        zcd.patch()                        # for good, or until .undo() of what it returns
        with zcd.patch(): ...              # for a block

    Patches nest. After the last one torch's class is back in all these places; loaders and subclasses made meanwhile
    stay ours.

    Returns:
        The patch, already in force: a context manager with `undo()` and `active`.
    """
    from .loader.swap import Patch

    return Patch()


class _CallableModule(ModuleType):
    def __call__(self) -> Patch:
        return patch()


sys.modules[__name__].__class__ = _CallableModule


# ---------------------------------------------------------------------------------------------------------------
# python -m zerocopy_data.patch


class _PatchOnArrival:
    """Patches the process in which it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return patch_for_good, ()


def patch_for_good() -> None:
    """Patches this process, and those that multiprocessing spawns from it before they import the main script."""
    patch()
    prepare = multiprocessing.spawn.get_preparation_data
    if not getattr(prepare, "patches", False):

        def get_preparation_data(name: str) -> dict[str, Any]:
            # Unpickled as a whole before any of it is acted upon; names that multiprocessing doesn't know it ignores.
            return {**prepare(name), "zerocopy_data.patch": _PatchOnArrival()}

        get_preparation_data.patches = True  # type: ignore[attr-defined]
        multiprocessing.spawn.get_preparation_data = get_preparation_data


def main(arguments: list[str]) -> None:
    """Runs a script or module as Python would.

    Args:
        arguments: What follows `python -m zerocopy_data.patch`.

    Raises:
        SystemExit: with status 2 and a message where the arguments name nothing that can be run.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_HELP, end="")
        raise SystemExit(0 if arguments else 2)
    if arguments[0] == "-m":
        if len(arguments) == 1:
            _give_up("-m needs the name of a module.")
        patch_for_good()  # finding a module imports the packages that it lies in
        spec, code = _find_module(arguments[1])
        script, rest = spec.origin or arguments[1], arguments[2:]
    elif arguments[0].startswith("-"):
        _give_up(f"there is no option {arguments[0]}. Options of the script go behind its name.")
    else:
        spec, code = None, None
        script, rest = arguments[0], arguments[1:]
        if not Path(script).is_file():
            _give_up(f"{script} is not a file. For a module or package write -m NAME.")
        if not sys.flags.safe_path:
            sys.path[0] = os.path.dirname(os.path.realpath(script))  # noqa: PTH120 (sys.path holds strings)
    sys.argv[:] = [script, *rest]
    path = os.path.abspath(script)  # noqa: PTH100 (as Python names __main__.__file__: links not followed)
    # A module of its own, and left in place: pickle, multiprocessing and functions that outlive the run look there.
    module = ModuleType("__main__")
    module.__dict__.update(__file__=path, __cached__=None, __spec__=spec)
    if spec is None:
        module.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    else:
        module.__loader__, module.__package__ = spec.loader, spec.parent
        module.__dict__["__cached__"] = spec.cached
    sys.modules["__main__"] = module
    patch_for_good()
    _hide_own_frames()
    if code is None:
        with io.open_code(path) as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, module.__dict__)


def _find_module(name: str) -> tuple[importlib.machinery.ModuleSpec, CodeType]:
    """The spec and code of what `python -m NAME` runs."""
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        _give_up(f"module {name} cannot be found: {error}.")
    code = None if spec is None else getattr(spec.loader, "get_code", lambda _: None)(spec.name)
    if spec is None or code is None:
        _give_up(f"there is no module {name} that can be run. A package needs a __main__.py.")
    return spec, code


def _give_up(message: str) -> NoReturn:
    print(f"{_USAGE}python -m zerocopy_data.patch: {message}", file=sys.stderr)
    raise SystemExit(2)


def _hide_own_frames() -> None:
    """Makes a traceback that ends the script begin in the script."""
    show = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        while traceback is not None and _is_ours(traceback):
            traceback = traceback.tb_next
        show(kind, error.with_traceback(traceback), traceback)

    sys.excepthook = excepthook


def _is_ours(traceback: TracebackType) -> bool:
    file = traceback.tb_frame.f_code.co_filename
    return file == __file__ or file.startswith("<frozen runpy")


if __name__ == "__main__":
    from zerocopy_data.patch import main as run  # under its own name, which children can import

    run(sys.argv[1:])
