"""`python -m laconic` and the `laconic` command."""

from __future__ import annotations

import os
import sys

from laconic.errors import LaconicError, require


def main() -> None:
    try:
        require("tyro", "sim")
        from laconic.cli import main as start

        start()
        sys.stdout.flush()
    except LaconicError as error:
        if "--debug" in sys.argv:
            raise
        sys.stderr.write(f"laconic: {error}\n")
        sys.exit(1)
    except BrokenPipeError:  # the reader of `laconic list | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.stderr.write("laconic: stopped\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
