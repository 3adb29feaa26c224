"""How a dataset gets onto disk: sources, the plan, the workers, transcoding. Never imports torch."""

import sys
from types import ModuleType
from typing import Any

from .packer import pack
from .summary import PackProgress, PackSummary, SkippedSample, SplitSummary

__all__ = ["PackProgress", "PackSummary", "SkippedSample", "SplitSummary", "pack"]


class _CallableModule(ModuleType):
    # Importing any module below this one binds `zerocopy_data.pack` to this package, where users expect the
    # function of that name. Being called like it keeps `zcd.pack(…)` right in either case.
    def __call__(self, *args: Any, **options: Any) -> PackSummary:
        return pack(*args, **options)


sys.modules[__name__].__class__ = _CallableModule
