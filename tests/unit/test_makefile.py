"""The command `make format` puts code into the project's style."""

from __future__ import annotations

import shutil

from tests.pages import runs
from tests.paths import ROOT
from tests.terminal import Terminal

COPIED_FILES = ("Makefile", "pyproject.toml", "constraints.txt")


@runs("CONTRIBUTING.md", "make format")
def test_format_puts_code_into_the_projects_style(terminal: Terminal) -> None:
    for link in terminal.folder.iterdir():
        if link.is_symlink():
            link.unlink()
    for name in COPIED_FILES:
        shutil.copy(ROOT / name, terminal.folder / name)
    (terminal.folder / ".venv" / ".installed").touch()
    code = terminal.folder / "code.py"
    code.write_text('"""Code."""\nimport sys\nimport os\nprint( os.name,sys.path )\n')
    (command,) = terminal.commands
    terminal.type(command)
    assert code.read_text() == '"""Code."""\n\nimport os\nimport sys\n\nprint(os.name, sys.path)\n'
