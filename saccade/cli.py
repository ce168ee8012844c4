"""The command line: one plain function per command; its signature is the options, its docstring the help."""

import errno
import io
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import tyro

import saccade
from saccade.commands.data import check, prepare
from saccade.commands.demo import demo
from saccade.commands.detect import detect
from saccade.commands.evaluate import evaluate
from saccade.commands.export import export
from saccade.commands.options import REGISTRY, renamed
from saccade.commands.recordings import convert, info, view
from saccade.commands.simulate import simulate
from saccade.commands.train import train
from saccade.commands.weights import weights
from saccade.machine import allow_open_files
from saccade.types import InputError

__all__ = [
    "COMMANDS", "check", "convert", "demo", "detect", "evaluate", "export", "info", "main", "prepare", "simulate", "train", "view",
    "weights",
]  # fmt: skip

COMMANDS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (demo, info, convert, view, simulate, check, prepare, train, evaluate, detect, export, weights)
}

MENDS = {
    errno.ENOSPC: "make room and run the same command again",
    errno.EDQUOT: "make room and run the same command again",
    errno.EMFILE: "allow more open files (`ulimit -n 4096`) and run the same command again",
    errno.EROFS: "choose another folder",
    errno.EACCES: "ask for permission or choose another folder",
}


def main() -> None:
    """Entry point: wrong input is one line and exit code 2, never a traceback."""
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="backslashreplace")  # names of files may be no valid text
    notes, log = logging.StreamHandler(), logging.getLogger("saccade")
    notes.setFormatter(logging.Formatter("note: %(message)s"))
    log.addHandler(notes)
    about = (saccade.__doc__ or "").partition("\n")[0] + " `saccade --version` prints the version."
    arguments = renamed(sys.argv[1:])
    try:
        if arguments == ["--version"]:
            print(f"saccade {saccade.__version__}")
            return
        _check_names(arguments)
        allow_open_files()
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS, prog="saccade", description=about, args=arguments, config=(tyro.conf.FlagCreatePairsOff,), registry=REGISTRY
        )
    except InputError as error:
        _refuse(str(error))
    except KeyboardInterrupt as interrupt:
        print(f"saccade: interrupted; {interrupt or 'nothing was left half-written'}", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # `saccade info FILE | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:  # of the machine, not of the program: no space, no permission, too many open files, a file that vanished
        if error.errno is None:
            raise
        where = f"{error.filename}: " if error.filename else ""
        _refuse(f"{where}{error.strerror or error}; {MENDS.get(error.errno, 'see to that and run the same command again')}")
    except MemoryError as error:
        _refuse(f"not enough memory{f' ({error})' if str(error) else ''}; try less at once, or a smaller file")
    finally:
        log.removeHandler(notes)  # a program may call more than one command


def _check_names(arguments: Sequence[str]) -> None:
    """Bytes that aren't text come as surrogates that the system turns back into them; any others can't name a file."""
    for argument in arguments:
        try:
            os.fsencode(argument)
        except UnicodeEncodeError as error:
            raise InputError(f"{argument!r:.80}: is no text that can be encoded; give it without surrogates") from error


def _refuse(text: str) -> NoReturn:
    print(f"saccade: {' '.join(text.splitlines())}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
