"""Arrays as Flower writes them, in NumPy's file format: seen, and filled in, without a copy."""

import io
import math
from typing import Any

import numpy as np
from flwr.app import Array

from taciturn.errors import InputError


def view(array: Array) -> np.ndarray:
    """The array as a flat NumPy vector in C order that shares the record's memory.

    `Array.numpy` copies twice; at fifty million weights that is most of a round.
    """
    if array.stype != "numpy.ndarray":
        raise InputError(f"Arrays must be written by NumPy, got {array.stype!r}.")
    head = io.BytesIO(array.data[:4096])
    try:
        version = np.lib.format.read_magic(head)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = read(head)
        flat = np.frombuffer(array.data, dtype, math.prod(shape), head.tell())
    except Exception as error:  # NumPy reads a header as Python, which fails in many ways
        raise InputError(f"An array cannot be read: {str(error)[:200]}.") from None
    if (shape, str(dtype)) != (tuple(array.shape), array.dtype):
        raise InputError(
            f"What is called {array.dtype} of shape {tuple(array.shape)} "
            f"is {dtype} of shape {shape}."
        )
    if fortran and len(shape) > 1:
        flat = flat.reshape(shape, order="F").reshape(-1)
    return flat if dtype.isnative else flat.astype(dtype.newbyteorder("="))


def blank(shape: tuple[int, ...], dtype: np.dtype[Any]) -> io.BytesIO:
    """What `np.save` would write for an array of zeros, to be filled in where it lies: no copy."""
    head = io.BytesIO()
    about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False,
             "shape": shape}  # fmt: skip
    np.lib.format.write_array_header_1_0(head, about)
    # Nobody else holds these bytes, so the file writes into them and hands them out as they are.
    file = io.BytesIO(bytes(head.tell() + math.prod(shape) * dtype.itemsize))
    file.write(head.getvalue())
    return file
