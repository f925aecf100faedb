"""The 405 writers of EMNIST that results of this project rest on, taken out of TFF's files."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from taciturn.data import sources, tff
from taciturn.data.dataset import Examples
from taciturn.data.emnist import FEATURES, from_tff
from taciturn.errors import DataError, WriteError, require
from taciturn.files import atomic_write

# The four digits in the names of these writers, such as `f0424_27`.
_NUMBERS = """
0424 1255 1501 1512 1515 1521 1525 1529 1536 1537 1541 1545 1549 1567 1576 1580 1583 1593 1595 1600
1605 1610 1612 1613 1620 1621 1627 1630 1631 1634 1635 1639 1640 1642 1643 1648 1650 1655 1658 1663
1667 1670 1689 1693 1695 1701 1702 1711 1712 1738 1740 1745 1747 1762 1764 1767 1768 1773 1786 1787
1788 1810 1815 1817 1822 1831 1832 1835 1837 1840 1851 1859 1860 1864 1871 1878 1879 1882 1896 1903
1905 1906 1907 1912 1932 1937 1939 1941 1943 1946 1947 1949 1953 1984 1987 1994 1998 2003 2004 2011
2012 2013 2018 2025 2033 2044 2052 2062 2065 2070 2071 2073 2075 2083 2088 2095 2097 2111 2119 2126
2127 2128 2129 2131 2151 2153 2166 2168 2170 2171 2172 2175 2176 2180 2183 2186 2190 2202 2216 2221
2226 2234 2245 2249 2250 2255 2261 2263 2265 2269 2274 2279 2284 2287 2288 2296 2304 2313 2316 2319
2320 2327 2333 2339 2343 2346 2348 2353 2358 2362 2364 2365 2368 2369 2370 2381 2385 2388 2390 2393
2398 2402 2410 2413 2417 2434 2449 2457 2459 2460 2468 2472 2486 2488 2489 2499 2505 2506 2507 2509
2511 2512 2526 2530 2540 2541 2542 2543 2548 2550 2554 2557 2562 2564 2572 2574 2582 2584 2588 2596
3101 3113 3115 3116 3122 3123 3130 3135 3136 3137 3140 3146 3152 3155 3163 3169 3171 3179 3180 3190
3199 3203 3207 3209 3220 3221 3226 3231 3241 3246 3263 3265 3273 3281 3302 3303 3304 3306 3309 3311
3313 3314 3325 3328 3329 3342 3359 3364 3365 3367 3368 3372 3374 3388 3392 3394 3396 3399 3404 3407
3412 3414 3428 3444 3455 3460 3471 3481 3489 3496 3498 3505 3512 3516 3517 3521 3528 3532 3535 3536
3549 3550 3556 3558 3562 3566 3567 3574 3580 3584 3585 3594 3600 3608 3612 3613 3618 3619 3625 3634
3635 3636 3647 3649 3663 3665 3673 3679 3684 3692 3711 3714 3733 3740 3742 3749 3760 3768 3783 3787
3788 3791 3795 3796 3802 3808 3809 3811 3815 3819 3826 3830 3835 3839 3848 3854 3857 3862 3869 3871
3879 3888 3899 3901 3903 3904 3905 3906 3907 3909 3910 3933 3934 3943 3944 3947 3958 3964 3966 3983
3988 3994 3997 3999 4000 4002 4006 4013 4015 4023 4027 4033 4034 4048 4051 4059 4069 4070 4071 4073
4075 4077 4084 4085 4086
"""
WRITERS = frozenset(_NUMBERS.split())

# What `checksum` makes of the images and labels in each file.
CHECKSUMS = {
    "fed_emnist_train.h5": "e77f372f9834de4c5f42b94ae4cddc3f642b6672399f58f342abc94937b14aea",
    "fed_emnist_test.h5": "12b847f70d01f96d3d15d966cd0bba9b3538b8abee418e4c4158c9ead4691dc0",
}


def write(folder: Path, data: Any = None) -> list[Path]:
    """The two files of the subset, written into `folder` in TFF's layout.

    The whole set is looked for in `data` and wherever else data are looked for, or downloaded.
    """
    h5py = require("h5py", "data")
    splits = {}
    for source in sources.find_or_fetch("emnist", data):
        writers = tff.read(source, FEATURES, from_tff, lambda name: name[1:5] in WRITERS)
        if (seen := checksum(writers)) != CHECKSUMS[source.name]:
            raise DataError(
                f"{source} has {len(writers)} of the {len(WRITERS)} writers of the subset; the "
                f"SHA-256 of their images is {seen} and not {CHECKSUMS[source.name]}."
            )
        splits[folder / source.name] = writers
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"{folder} cannot be made: {error.strerror}.") from None
    for path, writers in splits.items():
        with atomic_write(path, "w+b") as raw, h5py.File(raw, "w") as file:
            for name, examples in writers.items():
                group = file.create_group(f"examples/{name}")
                pixels = examples["x"] / np.float32(255)
                group.create_dataset("pixels", data=pixels, compression="gzip")
                group["label"] = examples["y"]
    return list(splits)


def checksum(writers: Mapping[str, Examples]) -> str:
    """The SHA-256 of the writers' images and labels, in whatever order each one's are."""
    seen = hashlib.sha256()
    for name, examples in sorted(writers.items()):
        pairs = zip(examples["x"], examples["y"], strict=True)
        rows = [image.tobytes() + bytes([label]) for image, label in pairs]
        seen.update(name.encode() + b"".join(sorted(rows)))
    return seen.hexdigest()
