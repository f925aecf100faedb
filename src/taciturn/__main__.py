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
    except TaciturnError as error:
        if debug:
            raise
        sys.stderr.write(f"taciturn: {error}\n")
        sys.exit(128 + error.signal if isinstance(error, Stopped) else 1)
    except MemoryError as error:
        if debug:
            raise
        sys.stderr.write(f"taciturn: there is not enough memory: {error}\n")
        sys.exit(1)
    except BrokenPipeError:  # the reader of `taciturn list | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:  # a folder that may not be read, and the like
        if debug:
            raise
        where = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"taciturn: {where}{error.strerror or error}\n")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.stderr.write("taciturn: stopped\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
