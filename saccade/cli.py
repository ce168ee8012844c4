"""The command line: one plain function per command; its signature is the options, its docstring the help."""

import ast
import logging
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import tyro

from saccade.types import InputError

# Commands, in the order of the help, and the module of each: imported when it is called, because of what the others import.
MODULES = {
    "demo": "demo", "info": "recordings", "convert": "recordings", "view": "recordings", "simulate": "simulate", "check": "data",
    "prepare": "data", "train": "train", "evaluate": "evaluate", "detect": "detect", "export": "export", "weights": "weights",
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


def main() -> None:
    """Entry point: wrong input is one line and exit code 2, never a traceback."""
    notes, log = logging.StreamHandler(), logging.getLogger("saccade")
    notes.setFormatter(logging.Formatter("note: %(message)s"))
    log.addHandler(notes)
    about = (sys.modules["saccade"].__doc__ or "").partition("\n")[0]
    called = next((word for word in sys.argv[1:] if word in MODULES), None)
    try:
        commands = {name: __getattr__(name) if name == called else _listed(name) for name in MODULES}
        tyro.extras.subcommand_cli_from_dict(commands, prog="saccade", description=about, config=(tyro.conf.FlagCreatePairsOff,))
    except InputError as error:
        print(f"saccade: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as interrupt:
        print(f"saccade: interrupted; {interrupt or 'nothing was left half-written'}", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # `saccade info FILE | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    finally:
        log.removeHandler(notes)  # a program may call more than one command


if __name__ == "__main__":
    main()
