"""The command line: one plain function per command; its signature is the options, its docstring the help."""

import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import tyro

import saccade
from saccade.commands.data import check, prepare
from saccade.commands.demo import demo
from saccade.commands.detect import detect
from saccade.commands.evaluate import evaluate
from saccade.commands.export import export
from saccade.commands.live import live, send
from saccade.commands.options import REGISTRY, renamed
from saccade.commands.recordings import convert, info, view
from saccade.commands.simulate import simulate
from saccade.commands.train import train
from saccade.commands.weights import weights
from saccade.types import InputError

__all__ = [
    "COMMANDS", "check", "convert", "demo", "detect", "evaluate", "export", "info", "live", "main", "prepare", "send", "simulate", "train",
    "view", "weights",
]  # fmt: skip

COMMANDS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (demo, info, convert, view, simulate, check, prepare, train, evaluate, detect, live, send, export, weights)
}


def main() -> None:
    """Entry point: wrong input is one line and exit code 2, never a traceback."""
    notes, log = logging.StreamHandler(), logging.getLogger("saccade")
    notes.setFormatter(logging.Formatter("note: %(message)s"))
    log.addHandler(notes)
    about = (saccade.__doc__ or "").partition("\n")[0] + " `saccade --version` prints the version."
    arguments = renamed(sys.argv[1:])
    try:
        if arguments == ["--version"]:
            print(f"saccade {saccade.__version__}")
            return
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS, prog="saccade", description=about, args=arguments, config=(tyro.conf.FlagCreatePairsOff,), registry=REGISTRY
        )
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
