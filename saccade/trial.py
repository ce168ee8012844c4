"""What may end a process without an error to catch is tried in another process first."""

import subprocess
import sys


def killing_signal(code: str, *arguments: str) -> int | None:
    """The signal that ends a Python process which runs CODE with these ARGUMENTS; None if it ends by itself, well or with an exception.

    Some virtual machines offer vector instructions (AMX, for bfloat16 and int8) and then refuse them: SIGILL.
    """
    ended = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True).returncode
    return -ended if ended < 0 else None
