"""A client of NVFlare that moves half of the way to a target of its own, in the arrays it got."""

import argparse

import numpy as np
import nvflare.client as flare


def target(site: str, shape: tuple[int, ...]) -> np.ndarray:
    """Where a site wants an array to be."""
    k = int(site.rpartition("-")[2])
    return (1 + k * np.random.default_rng(k).standard_normal(shape)).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--garbage", default="", help="the site that sends some")
    options = parser.parse_args()
    flare.init()
    site = flare.get_site_name()
    while flare.is_running():
        model = flare.receive()
        params = model.params
        for array in params.values():
            array += np.float32(0.5) * (target(site, array.shape) - array)
            if site == options.garbage:
                array[:] = np.nan
        steps = 10 * int(site.rpartition("-")[2])
        flare.send(
            flare.FLModel(
                params=params,
                metrics={"loss": float(steps)},
                meta={"NUM_STEPS_CURRENT_ROUND": steps},
            )
        )


if __name__ == "__main__":
    main()
