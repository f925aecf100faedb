"""`python -m laconic` and the `laconic` command."""

from __future__ import annotations

import sys

from laconic.errors import LaconicError, require


def main() -> None:
    try:
        require("tyro", "sim")
        from laconic.cli import main as start

        start()
    except LaconicError as error:
        if "--debug" in sys.argv:
            raise
        sys.stderr.write(f"laconic: {error}\n")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.stderr.write("laconic: stopped\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
