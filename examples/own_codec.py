"""A codec of your own: the sign of every weight, and their mean size.

python examples/own_codec.py
"""

# %% A codec writes an update as arrays whose forms depend on its size alone, and reads it back.
# The same lines run on JAX and on NumPy: `xp` is the library that an array comes from.
import math

import taciturn
from taciturn.core.codecs.packing import pack, packed_bytes, unpack


def sign() -> taciturn.Codec:
    """One bit per weight, and four bytes."""

    def encode(update, key):
        xp = update.__array_namespace__()
        bits = xp.astype(update >= 0, xp.uint8)
        return pack(bits, 1), xp.astype(xp.mean(xp.abs(update)), xp.float32)[None]

    def decode(code, key, size):
        bits, mean = code
        xp = mean.__array_namespace__()
        return (2 * xp.astype(unpack(bits, 1, size), xp.float32) - 1) * mean

    return taciturn.Codec(
        "sign",
        encode=encode,
        decode=decode,
        forms=lambda size: (taciturn.Form("u1", (packed_bytes(size, 1),)),
                            taciturn.Form("<f4", (1,))),
        # Of normal weights, 1 − 2/π of the squared length is lost; none grows longer.
        error=lambda size: 1 - 2 / math.pi,
        unbiased=False,
        norm_range=lambda norm, size: (0.0 * norm, 1.001 * norm),
    )  # fmt: skip


taciturn.register("codec", sign)

# %% A thirty-second of the upload for a large model; a tenth here, where headers weigh more.
taciturn.prepare()
arms = {name: name for name in ("full", "full+sign", "adaptive+ignore+sign")}
for name, history in taciturn.compare("synthetic", arms, rounds=60, cohort=10, seeds=2).items():
    summary = history.summary()
    print(f"{name:28} {summary['accuracy_mean']:5.1f} % right, "
          f"{summary['upload_share']:5.1f} % of the uploads")  # fmt: skip
