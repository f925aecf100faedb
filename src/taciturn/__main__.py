"""`python -m taciturn` and the `taciturn` command."""

import os
import sys

from taciturn import __version__
from taciturn.errors import Stopped, TaciturnError, require


def main() -> None:
    debug = False
    try:
        if sys.argv[1:] == ["--version"]:
            sys.stdout.write(f"taciturn {__version__}\n")
            return
        to_look = sys.argv[1:2] in (["report"], ["watch"], ["runs"])
        require("tyro", "report" if to_look else "sim")
        from taciturn import cli

        command = cli.read()
        debug = command.debug
        command.go()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of `taciturn list | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (TaciturnError, MemoryError, OSError) as error:
        if debug:
            raise
        text = str(error)
        if isinstance(error, MemoryError):
            text = f"there is not enough memory: {error}"
        elif isinstance(error, OSError):  # a folder that may not be read, and the like
            text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        sys.stderr.write(f"taciturn: {text}\n")
        sys.exit(128 + error.signal if isinstance(error, Stopped) else 1)
    except KeyboardInterrupt:
        sys.stderr.write("taciturn: stopped\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
