"""The command line: one plain function per command; its signature is the options, its docstring the help."""

import ast
import errno
import io
import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import tyro

import saccade
from saccade.commands.options import REGISTRY, renamed
from saccade.machine import allow_open_files, interruptible
from saccade.types import InputError

# Commands, in the order of the help, and the module of each: imported when it is called, because of what the others import.
MODULES = {
    "demo": "demo", "info": "recordings", "convert": "recordings", "view": "view", "simulate": "simulate", "check": "data",
    "prepare": "data", "train": "train", "evaluate": "evaluate", "detect": "detect", "live": "live", "send": "live", "export": "export",
    "weights": "weights",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """`saccade.cli.info` and so on, as plain functions, and COMMANDS, all of them by name."""
    if name == "COMMANDS":
        return {name: __getattr__(name) for name in MODULES}
    if name in MODULES:
        return getattr(import_module(f"saccade.commands.{MODULES[name]}"), name)
    raise AttributeError(f"module 'saccade.cli' has no attribute {name!r}")


def _listed(name: str) -> Callable[..., Any]:
    """What the list of commands shows of one that isn't called: its docstring, read without importing its module."""
    source = Path(__file__).with_name("commands") / f"{MODULES[name]}.py"
    found = next(node for node in ast.parse(source.read_text()).body if isinstance(node, ast.FunctionDef) and node.name == name)

    def command() -> None: ...

    command.__name__, command.__doc__ = name, ast.get_docstring(found)
    return command


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
    called = next((word for word in arguments if word in MODULES), None)
    try:
        if arguments == ["--version"]:
            print(f"saccade {saccade.__version__}")
            return
        _check_names(arguments)
        allow_open_files()
        with interruptible():
            commands = {name: __getattr__(name) if name == called else _listed(name) for name in MODULES}
            tyro.extras.subcommand_cli_from_dict(
                commands, prog="saccade", description=about, args=arguments, config=(tyro.conf.FlagCreatePairsOff,), registry=REGISTRY
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
