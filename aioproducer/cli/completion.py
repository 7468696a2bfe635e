"""``aioproducer completion``: prints the script with which a shell completes verbs, flags and files; needs shtab."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any, Final

from aioproducer.cli.extras import require
from aioproducer.cli.verb import ExitCode, Verb

__all__ = ["VERB"]

_EPILOG: Final = """examples:
  bash:  aioproducer completion bash > ~/.local/share/bash-completion/completions/aioproducer
  zsh:   aioproducer completion zsh > ~/.zfunc/_aioproducer    (with fpath+=~/.zfunc before compinit in ~/.zshrc)
  tcsh:  aioproducer completion tcsh > ~/.aioproducer.tcsh     (and source it in ~/.tcshrc)

exit codes: 0; 2 shtab is not installed: pip install 'aioproducer[cli]'"""

#: shtab's registration in bash, which switches the completion of file names off; with it, the values of flags have it.
_WITHOUT_FILES: Final = "complete -o bashdefault -F "
_WITH_FILES: Final = "complete -o bashdefault -o default -F "


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("shell", choices=["bash", "zsh", "tcsh"], help="the shell")


def _run(options: argparse.Namespace) -> ExitCode:
    from aioproducer.cli.verbs import whole_parser

    require("Completion", ["shtab"], "cli")
    shtab: Any = import_module("shtab")
    script: str = shtab.complete(whole_parser(), shell=options.shell)
    print(script.replace(_WITHOUT_FILES, _WITH_FILES))
    return ExitCode.OK


VERB: Final = Verb(
    "completion", "Print a script for bash, zsh or tcsh that completes verbs and flags.", _configure, _run
)
