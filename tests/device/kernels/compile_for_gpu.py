"""Compiles the Triton kernel for a GPU that need not be there; prints the sizes of what came out. Run by a test."""

import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from zerocopy_data.device.kernels.triton_normalize import _kernel

for element in ("i16", "i32"):
    pointers = {"images": "*u8", "table": f"*{element}", "offsets": "*i64", "flips": "*u8", "out": f"*{element}"}
    numbers = dict.fromkeys(
        [
            "image_n",
            "image_c",
            "image_y",
            "image_x",
            "out_n",
            "out_c",
            "out_y",
            "out_x",
            "blocks",
            "height",
            "width",
            "most_down",
            "most_right",
        ],
        "i32",
    )
    constants = {"channels": 3, "has_offsets": True, "has_flips": True, "block": 1024}
    signature = {**pointers, **numbers, **dict.fromkeys(constants, "constexpr")}
    # A batch of more than 2^31 bytes has a stride of 64 bits.
    for wide in ({}, {"image_n": "i64", "out_n": "i64", "image_c": "i64", "out_c": "i64"}):
        source = ASTSource(_kernel, {**signature, **wide}, constants)
        made = triton.compile(source, target=GPUTarget("cuda", int(sys.argv[1]), 32))
        print(element, len(made.asm["cubin"]))
